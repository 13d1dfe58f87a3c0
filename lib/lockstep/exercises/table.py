"""A table that a notebook shows as HTML and everything else as text, from one value.

Floor 4, room `exercises`.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from functools import partial


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
        rows = [self.head, tuple("-" * width for width in widths), *self.rows]
        lines = [self.title, *(_line(row, widths, self.sides) for row in rows)]
        return "\n".join([*lines, self.foot] if self.foot else lines)

    @property
    def sides(self) -> list[str]:
        """For each column "right" when it holds numbers (or "2 of 3"), otherwise "left"."""
        if not self.rows:
            return ["left"] * len(self.head)
        return ["right" if all(map(_is_number, column)) else "left" for column in zip(*self.rows, strict=True)]

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        sides = self.sides
        head = "".join(map(partial(_cell, "th", 'scope="col" '), self.head, sides))
        body = "".join("<tr>" + "".join(map(partial(_cell, "td", ""), row, sides)) + "</tr>" for row in self.rows)
        title = f'<caption style="text-align:left;font-weight:600;color:inherit">{html.escape(self.title)}</caption>'
        foot = f'<div style="margin-top:4px">{html.escape(self.foot)}</div>' if self.foot else ""
        return (
            '<div style="color:inherit;line-height:1.45;margin:6px 0">'
            f'<table style="border-collapse:collapse;color:inherit;caption-side:top">{title}'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{foot}</div>"
        )


def _cell(tag: str, scope: str, text: str, side: str) -> str:
    style = "padding:2px 12px 2px 0;border-bottom:1px solid rgba(128,128,128,.4);color:inherit;background:transparent"
    return f'<{tag} {scope}style="{style};text-align:{side}">{html.escape(text)}</{tag}>'


def _line(texts: tuple[str, ...], widths: list[int], sides: list[str]) -> str:
    parts = [t.rjust(w) if side == "right" else t.ljust(w) for t, w, side in zip(texts, widths, sides, strict=True)]
    return "  ".join(parts).rstrip()


def _is_number(text: str) -> bool:
    return text.replace(" of ", "").isdigit()
