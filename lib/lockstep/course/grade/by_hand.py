"""Marks that people give: for words (`marks.csv`) and in place of a verdict (`overrides.csv`).

Floor 4, room `course`. Both files are the instructor's; grading reads them in every run and never writes them, so what
was decided by hand stays decided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from lockstep.course.grade.outcome import Outcome
from lockstep.course.grade.text_table import read_table


@dataclass(frozen=True)
class Mark:
    """Points that a person gave, and what they said; `where` names the line, for errors."""

    points: float
    why: str
    where: str


Marks = Mapping[tuple[str, str], Mark]


def read_marks(path: Path | None) -> Marks:
    """`marks.csv`: question, pseudonym, points, comment. A line without points is not marked yet."""
    return _read(path, "pseudonym", "question", "comment")


def read_overrides(path: Path | None) -> Marks:
    """`overrides.csv`: student (or pseudonym), exercise, points, why."""
    return _read(path, "student", "exercise", "why")


def _read(path: Path | None, who: str, what: str, why: str) -> Marks:
    found: dict[tuple[str, str], Mark] = {}
    for line, row in enumerate(read_table(path, [who, what, "points"]) if path else (), 2):
        if not row["points"]:
            continue
        where = f"{path}, line {line}"
        try:
            points = float(row["points"].replace(",", "."))
        except ValueError:
            raise ValueError(f"{where}: {row['points']!r} is no number of points") from None
        found[row[who].removeprefix("'"), row[what]] = Mark(points, row.get(why, ""), where)
    return found


def marked(outcome: Outcome, mark: Mark | None) -> Outcome:
    """The outcome with the mark in its place; raises ValueError when there are not as many points to be had."""
    if mark is None:
        return outcome
    if not 0 <= mark.points <= outcome.of:
        raise ValueError(
            f"{mark.where}: {mark.points:g} points for {outcome.exercise}, where 0 to {outcome.of:g} can be had"
        )
    verdict = "passed" if mark.points == outcome.of else "partial" if mark.points else "wrong"
    if outcome.verdict != "needs marking":
        return replace(outcome, points=mark.points, by_hand=mark.why or "set by hand")
    return replace(outcome, verdict=verdict, points=mark.points, sentence=mark.why)
