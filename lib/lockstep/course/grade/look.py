"""Likenesses as a table and as a page with both texts side by side, for the person who decides.

Floor 4, room `course`.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from lockstep.course.grade.likeness import Likeness
from lockstep.course.grade.page import page
from lockstep.course.grade.text_table import csv_text

SHOWN = 60  # pairs on the page; all are in the table
WHAT_IT_MEANS = (
    "Names, comments and layout do not count here, and neither does what the skeleton or most of the group has. "
    "A short exercise has few right forms: look at what both have in common that nobody needs."
)


def likeness_csv(found: Sequence[Likeness]) -> str:
    """One row for each pair."""
    rows = [[one.exercise, one.student, one.other, f"{100 * one.share:.0f} %", one.fingerprints] for one in found]
    return csv_text([["exercise", "student", "like", "of the shorter", "shared fingerprints"], *rows])


def likeness_page(found: Sequence[Likeness], texts: Mapping[tuple[str, str], str]) -> str:
    """The pairs with their texts, by (student or public place, exercise)."""
    parts = ["<h1>Alike by structure</h1>", f"<p>{html.escape(WHAT_IT_MEANS)}</p>"]
    for one in found[:SHOWN]:
        parts.append(
            f"<h2>{html.escape(one.exercise)}: {html.escape(one.student)} and {html.escape(one.other)}, "
            f"{100 * one.share:.0f} % of the shorter</h2>"
        )
        both = "".join(
            f"<div><strong>{html.escape(who)}</strong><pre>{html.escape(texts.get((who, one.exercise), ''))}</pre></div>"
            for who in (one.student, one.other)
        )
        parts.append(f'<div class="pair">{both}</div>')
    if len(found) > SHOWN:
        parts.append(f"<p>{len(found) - SHOWN} more pairs are in likeness.csv.</p>")
    return page("Alike by structure", "\n".join(parts), wide=True)
