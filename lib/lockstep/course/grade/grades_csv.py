"""`grades.csv`: everything about every submission in one table, for people and their scripts.

Floor 4, room `course`.
"""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.course.grade.result import Result
from lockstep.course.grade.text_table import csv_text

HEAD = ("student", "lms id", "lab", "points", "of", "raw", "penalty", "submitted", "due", "hours late")
TAIL = ("to mark", "kept from before", "isolation", "seconds", "feedback", "pseudonym", "notes")


def grades_csv(results: Sequence[Result]) -> str:
    """A row for each student and lab; a column of points and one of verdicts for each exercise."""
    exercises = sorted({one.exercise for result in results for one in result.outcomes}, key=_order)
    head = (*HEAD, *exercises, *(f"{id} verdict" for id in exercises), *TAIL)
    return csv_text([head, *(_row(one, exercises) for one in results)])


def _row(one: Result, exercises: Sequence[str]) -> list[object]:
    outcomes = [one.outcome(id) for id in exercises]
    levels = sorted({outcome.level for outcome in one.outcomes if outcome.level})
    notes = " ".join(
        text for text in (one.failure, one.submission.problem, one.doubt, *one.submission.warnings) if text
    )
    by_hand = "; ".join(f"{outcome.exercise} by hand: {outcome.by_hand}" for outcome in one.outcomes if outcome.by_hand)
    judged = not one.failure
    return [
        one.student, one.submission.lms_id, one.lab, one.points if judged else "", one.of if judged else "",
        one.raw if judged else "", one.penalty if judged else "",
        _time(one.submission.when), _time(one.due), "" if one.hours_late is None else one.hours_late,
        *("" if outcome is None else outcome.points for outcome in outcomes),
        *("" if outcome is None else outcome.verdict for outcome in outcomes),
        " ".join(one.open), " ".join(one.kept), ", ".join(levels),
        round(sum(outcome.seconds for outcome in one.outcomes), 2), f"feedback/{one.file}.html", one.pseudonym,
        f"{by_hand} {notes}".strip(),
    ]  # fmt: skip


def _time(when: object) -> str:
    return when.isoformat(sep=" ", timespec="seconds") if when else ""


def _order(id: str) -> tuple:
    lab, _, rest = id.partition(".")
    digits = "".join(c for c in rest if c.isdigit())
    return lab, rest.strip("0123456789"), int(digits or 0)
