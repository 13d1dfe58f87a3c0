"""What the exercises of lab 03 share: which of several returned numbers is wrong, and whose mistake gives that number.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from lockstep.exercises.compare import alike
from lockstep.exercises.exercise import Case, Mistake, Symptom
from lockstep.exercises.judge import Finding, Judge, same_value
from lockstep.exercises.observe import Observation


def by_name(*names: str) -> Judge:
    """As `same_value`, and `names` are what stands at the places of the returned tuple."""

    def judge(case: Case, seen: Observation, expected: Observation) -> Finding | None:
        found = same_value(rtol=1e-6)(case, seen, expected)
        if found is None:
            return None
        said = found.sentence
        for place, name in enumerate(names):
            said = said.replace(f" at [{place}]", f" for {name}")
        return replace(found, sentence=said)

    return judge


def by_wrong_number(mistakes: Sequence[Mistake]) -> tuple[Mistake, ...]:
    """The mistakes, each with this symptom: one of the returned numbers is wrong, and the mistake gives it too.

    Students combine mistakes: who ignores the groups and counts FLOPs returns two numbers that no single one explains.
    """

    def of(mistake: Mistake) -> Mistake:
        def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
            if seen.error is not None:
                return False
            mine, right, theirs = (_numbers(one) for one in (seen.value, expected.value, mistake.function(*case.args)))
            wrong = [key for key in right if key in mine and not alike(mine[key], right[key])]
            return any(key in theirs and alike(mine[key], theirs[key]) for key in wrong)

        return replace(mistake, symptom=symptom)

    return tuple(map(of, mistakes))


def gives_what(*functions: Callable[..., Any]) -> Symptom:
    """The returned value is what one of these functions gives: one mistake that is written in several ways."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        return seen.error is None and any(alike(seen.value, one(*case.args)) for one in functions)

    return symptom


def _numbers(value: Any) -> dict[Any, Any]:
    """What is returned by its place or name."""
    if isinstance(value, dict):
        return value
    return dict(enumerate(value)) if isinstance(value, (list, tuple)) else {}
