"""A table that a notebook shows as HTML and everything else as text, from one value.

Floor 4, room `exercises`.
"""

from __future__ import annotations

import html
from dataclasses import dataclass


@dataclass(frozen=True, repr=False)
class Table:
    """`title` above, `head` and `rows` of texts, `foot` below; numbers are aligned to the right."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    foot: str = ""

    @property
    def text(self) -> str:
        widths = [max(map(len, column)) for column in zip(self.head, *self.rows, strict=True)]
        lines = [self.title, _line(self.head, widths), "  ".join("-" * width for width in widths)]
        lines += [_line(row, widths) for row in self.rows]
        return "\n".join([*lines, self.foot] if self.foot else lines)

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        cell = (
            "padding:2px 12px 2px 0;border-bottom:1px solid rgba(128,128,128,.4);color:inherit;background:transparent"
        )
        head = "".join(f'<th scope="col" style="{cell};text-align:{_side(t)}">{html.escape(t)}</th>' for t in self.head)
        body = "".join(
            "<tr>" + "".join(f'<td style="{cell};text-align:{_side(t)}">{html.escape(t)}</td>' for t in row) + "</tr>"
            for row in self.rows
        )
        title = f'<caption style="text-align:left;font-weight:600;color:inherit">{html.escape(self.title)}</caption>'
        foot = f'<div style="margin-top:4px">{html.escape(self.foot)}</div>' if self.foot else ""
        return (
            '<div style="color:inherit;line-height:1.45;margin:6px 0">'
            f'<table style="border-collapse:collapse;color:inherit;caption-side:top">{title}'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{foot}</div>"
        )


def _line(texts: tuple[str, ...], widths: list[int]) -> str:
    parts = [t.rjust(w) if _side(t) == "right" else t.ljust(w) for t, w in zip(texts, widths, strict=True)]
    return "  ".join(parts).rstrip()


def _side(text: str) -> str:
    return "right" if text.replace(" of ", "").replace(".", "").isdigit() and text.count(".") == 0 else "left"
