"""For the instructor: how each exercise went, which known mistakes were made, what took longest. Nobody stands out.

Floor 4, room `course`. A group of fewer than five is not counted out, so that no number speaks of one student.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from lockstep.course.grade.outcome import Outcome
from lockstep.course.grade.result import Result
from lockstep.course.grade.text_table import csv_text

FEWEST = 5
FEW = f"fewer than {FEWEST}"


@dataclass(frozen=True)
class ExerciseStatistics:
    """One exercise over a group. Every figure is None where it would speak of fewer than five students.

    handed_in: submissions. passed, attempted: shares of those. mistakes: how many made each known mistake that at
    least five made; rarer: how many different ones fewer made. seconds, slowest: median and greatest, of the code.
    """

    exercise: str
    handed_in: int | None
    attempted: float | None
    passed: float | None
    mistakes: Mapping[str, int]
    rarer: int
    seconds: float | None
    slowest: float | None


def statistics(results: Sequence[Result]) -> list[ExerciseStatistics]:
    """One entry for each exercise, in the order of the results."""
    by_exercise: dict[str, list[Outcome]] = {}
    for result in results:
        for one in result.outcomes:
            by_exercise.setdefault(one.exercise, []).append(one)
    return [_one(id, outcomes) for id, outcomes in by_exercise.items()]


def _one(id: str, outcomes: list[Outcome]) -> ExerciseStatistics:
    if len(outcomes) < FEWEST:
        return ExerciseStatistics(id, None, None, None, {}, 0, None, None)
    tried = [one for one in outcomes if one.verdict != "not attempted"]
    passed = sum(one.verdict == "passed" for one in outcomes)
    made = Counter(one.mistake for one in outcomes if one.mistake)
    often = {name: count for name, count in made.most_common() if count >= FEWEST}
    ran = [one.seconds for one in tried if one.seconds]
    seconds = ran if len(ran) >= FEWEST else []
    n = len(outcomes)
    return ExerciseStatistics(
        id, n, len(tried) / n, passed / n, often, len(made) - len(often),
        round(median(seconds), 2) if seconds else None, round(max(seconds), 2) if seconds else None,
    )  # fmt: skip


def statistics_csv(found: Sequence[ExerciseStatistics]) -> str:
    """The same as a table."""
    head = ["exercise", "handed in", "attempted", "passed", "known mistakes", "rarer mistakes", "seconds", "slowest"]
    return csv_text([head, *(_row(one) for one in found)])


def _row(one: ExerciseStatistics) -> list[object]:
    if one.handed_in is None:
        return [one.exercise, FEW]
    mistakes = "; ".join(f"{name} ({count})" for name, count in one.mistakes.items())
    return [
        one.exercise, one.handed_in, percent(one.attempted), percent(one.passed), mistakes, one.rarer,
        "" if one.seconds is None else one.seconds, "" if one.slowest is None else one.slowest,
    ]  # fmt: skip


def percent(share: float | None) -> str:
    """A share as people read it."""
    return FEW if share is None else f"{100 * share:.0f} %"
