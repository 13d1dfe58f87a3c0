"""A card: a heading, a badge and labelled rows, shown as HTML in a notebook and as text anywhere else.

Floor 4, room `exercises`. Both come from one value and say the same. The HTML has no script and no style sheet;
text takes the colour of its surroundings, so that it reads in light and dark themes, and the badge says
in words what its colour says.
"""

from __future__ import annotations

import html
import re
import textwrap
from dataclasses import dataclass

# Okabe-Ito hues. White on each badge has a contrast of at least 4.5; each edge at least 3 on white and on #111.
TONES = {
    "good": ("✓", "#006A9E", "#2E8FC4"),
    "bad": ("✗", "#A84300", "#D55E00"),
    "open": ("○", "#5F5F5F", "#8A8A8A"),
    "note": ("→", "#00684B", "#009E73"),
}
WIDTH = 100


@dataclass(frozen=True)
class Row:
    """One line of a card. `code` rows keep their spaces and line breaks."""

    label: str
    text: str
    code: bool = False


@dataclass(frozen=True, repr=False)
class Card:
    """What a notebook shows. `repr` is the text, so that a plain Python session shows it too."""

    heading: str
    badge: str
    tone: str
    rows: tuple[Row, ...] = ()

    @property
    def text(self) -> str:
        """The whole card without colours; `code` marks of prose stay as they are."""
        mark = TONES[self.tone][0]
        width = max((len(row.label) for row in self.rows), default=0) + 2
        lines = [f"{mark} {self.heading}: {self.badge}" if self.badge else f"{mark} {self.heading}"]
        for row in self.rows:
            body = row.text.splitlines() if row.code else _wrapped(row.text, WIDTH - width - 2)
            for i, line in enumerate(body or [""]):
                lines.append("  " + (row.label if i == 0 else "").ljust(width) + line)
        return "\n".join(line.rstrip() for line in lines)

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return card_html(self)


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width`; what stands between backticks stays on one line."""
    held = re.sub(r"`[^`]+`", lambda code: code[0].replace(" ", "\0"), text)
    return [
        line.replace("\0", " ") for line in textwrap.wrap(held, width, break_on_hyphens=False, break_long_words=False)
    ]


def card_html(card: Card) -> str:
    """The card as HTML; everything from outside is escaped."""
    mark, badge, edge = TONES[card.tone]
    rows = "".join(_row(row) for row in card.rows)
    label = (
        f'<span style="background:{badge};color:#fff;border-radius:3px;padding:1px 8px;margin-right:8px;'
        f'font-weight:600;white-space:nowrap">{mark} {html.escape(card.badge)}</span>'
        if card.badge
        else ""
    )
    return (
        f'<div role="group" style="border-left:5px solid {edge};padding:6px 0 6px 14px;margin:6px 0;'
        f'max-width:60em;line-height:1.45;color:inherit">'
        f'<div style="margin-bottom:4px">{label}<strong>{prose(card.heading)}</strong></div>{rows}</div>'
    )


def _row(row: Row) -> str:
    if row.code:
        body = (
            '<pre style="margin:0;padding:3px 8px;background:rgba(128,128,128,.16);color:inherit;'
            f'white-space:pre-wrap;overflow-wrap:anywhere;border-radius:3px">{html.escape(row.text)}</pre>'
        )
    else:
        body = prose(row.text)
    return (
        '<div style="display:flex;gap:12px;margin:3px 0">'
        f'<div style="flex:0 0 8.5em;font-weight:600">{html.escape(row.label)}</div>'
        f'<div style="flex:1 1 auto;min-width:0">{body}</div></div>'
    )


def prose(text: str) -> str:
    """Escape a sentence and set what stands between backticks as code."""
    style = 'style="background:rgba(128,128,128,.16);color:inherit;padding:0 3px;border-radius:3px"'
    return re.sub(r"`([^`]+)`", rf"<code {style}>\1</code>", html.escape(text))
