"""What part of an answer is worth.

Floor 4, room `course`. A *kind of case* is a place in the list of cases, the same in every draw: "1 rank", "two of
unequal size". A kind counts when two things hold: a function that does nothing fails it, and its input differs from
draw to draw, so that nobody passes it with numbers learnt by heart. Somebody who gets more than half of the kinds that
count right, each of them in every draw, earns that share of the points, rounded down, and never all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from lockstep.course.grade.known import Draws
from lockstep.exercises.compare import alike
from lockstep.exercises.exercise import Exercise
from lockstep.exercises.judge import Finding, judged
from lockstep.exercises.plain import plain

FEWEST = 3  # kinds that count, below which a share says nothing


def partial_points(exercise: Exercise, draws: Draws, findings: Sequence[Sequence[Finding | None]]) -> int:
    """Points below the full number for a function with these findings, by draw and case."""
    sizes = {len(cases) for cases in draws.cases}
    whole = len(findings) == len(draws.cases) and {len(one) for one in findings} == sizes
    if exercise.points < 2 or len(sizes) > 1 or not whole:
        return 0
    kinds = [kind for kind in range(sizes.pop()) if _counts(exercise, draws, kind)]
    right = sum(all(one[kind] is None for one in findings) for kind in kinds)
    if len(kinds) < FEWEST or 2 * right <= len(kinds):
        return 0
    return min(exercise.points - 1, exercise.points * right // len(kinds))


def may_be_partial(exercise: Exercise, findings: Sequence[Finding | None]) -> bool:
    """Whether a function with these findings in one draw could earn a part of the points."""
    right = sum(one is None for one in findings)
    return exercise.points > 1 and 2 * right > min(FEWEST, len(findings))


def _counts(exercise: Exercise, draws: Draws, kind: int) -> bool:
    inputs = [plain([one.args, dict(one.kwargs), one.each]) for one in (cases[kind] for cases in draws.cases)]
    if any(alike(one, other) for one, other in combinations(inputs, 2)):
        return False
    case, expected = draws.cases[0][kind], draws.expected(0)[kind]
    try:
        return judged(exercise.judge, case, draws.idle(0)[kind], expected) is not None
    except Exception:  # a judge that cannot look at nothing
        return True
