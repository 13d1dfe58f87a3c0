"""One page for a student: points, verdict, what is wrong and the next hint for each exercise, and no hidden case.

Floor 4, room `course`.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from lockstep.course.grade.outcome import Outcome
from lockstep.course.grade.page import card, page, sentence
from lockstep.course.grade.result import Result, number

TONES = {
    "passed": ("good", "✓"), "partial": ("note", "◐"), "not attempted": ("open", "○"), "needs marking": ("open", "…"),
}  # fmt: skip


def feedback(student: str, results: Sequence[Result], titles: Mapping[str, str]) -> str:
    """The page. titles: by exercise, lab ("lab 05") and question."""
    parts = [f'<p class="soft">{html.escape(student)}</p>']
    for one in results:
        parts.append(_lab(one, titles))
    labs = ", ".join(f"lab {one.lab}" for one in results if one.lab) or "your submission"
    return page(f"Feedback on {labs}", "\n".join(parts))


def _lab(one: Result, titles: Mapping[str, str]) -> str:
    heading = titles.get(f"lab {one.lab}", f"Lab {one.lab}" if one.lab else "Your submission")
    said = [f"<h1>{sentence(heading)}</h1>"]
    if one.failure:
        return "".join(said) + card("open", "…", "no result yet", "Grading did not finish", "", [])
    if not one.outcomes:
        return "".join(said) + card("bad", "✗", "not read", one.submission.problem, "", [])
    share = one.points / one.of if one.of else 0.0
    said.append(f'<p class="total">{number(one.points)} of {number(one.of)} points</p>')
    said.append(f'<div class="bar" aria-hidden="true"><div style="width:{100 * share:.1f}%"></div></div>')
    said += [f'<p class="soft">{sentence(text)}</p>' for text in _about(one)]
    if one.submission.problem:
        said.append(card("bad", "✗", "not read", "Nothing could be read", "", [_row("", one.submission.problem)]))
        return "\n".join(said)
    said += [_exercise(outcome, titles.get(outcome.exercise, "")) for outcome in one.outcomes]
    return "\n".join(said)


def _about(one: Result) -> list[str]:
    said = []
    if one.submission.when:
        said.append(f"Handed in {one.submission.when:%Y-%m-%d %H:%M}.")
    if one.hours_late:
        taken = f" {number(one.penalty)} of {number(one.raw)} points were taken off." if one.penalty else ""
        said.append(f"{number(one.hours_late)} hours after the deadline.{taken}")
    if one.open:
        said.append(f"Still to be read by a person: {', '.join(one.open)}.")
    if one.submission.warnings and not one.submission.problem:
        said += list(one.submission.warnings[:6])
    return said


def _exercise(one: Outcome, title: str) -> str:
    tone, mark = TONES.get(one.verdict, ("bad", "✗"))
    rows = [_row("", one.sentence)] if one.sentence else []
    if one.by_hand:
        rows.append(_row("Set by hand", one.by_hand))
    if one.hint and one.verdict != "passed":
        rows.append(_row("Hint", one.hint))
    points = f"{number(one.points)} of {number(one.of)}"
    return card(tone, mark, one.verdict, f"{one.exercise} {title}".strip(), points, rows)


def _row(label: str, text: str) -> str:
    lead = f"<strong>{html.escape(label)}.</strong> " if label else ""
    return f"<p>{lead}{sentence(text)}</p>"
