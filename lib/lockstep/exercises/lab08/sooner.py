"""Where few answers are possible, mistakes coincide: one that fails an earlier case was not made by who passed that.

Floor 4, room `exercises`, used by 08.4 and 08.5, whose answers are a handful of orders or two numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.judge import Judge, judged
from lockstep.exercises.observe import Observation
from lockstep.exercises.remembered import remembered


def unless_sooner(
    observe: Callable[[Callable[..., Any], Case], Observation],
    judge: Judge,
    right: Callable[..., Any],
    cases: Sequence[Case],
    mistakes: Sequence[Mistake],
) -> tuple[Mistake, ...]:
    """The mistakes, whose symptoms now hold only where their own functions pass all of `cases` before that one.

    `cases` are the first ones of every draw; a case is found again among them by its first words, up to "node".
    """

    def narrowed(mistake: Mistake) -> Mistake:
        def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
            if not mistake.symptom(case, seen, expected):
                return False
            before = takewhile(lambda one: _start(one) != _start(case), cases)
            return all(
                judged(judge, one, *(remembered(observe, fn, one) for fn in (mistake.function, right))) is None
                for one in before
            )

        return replace(mistake, symptom=symptom)

    return tuple(map(narrowed, mistakes))


def _start(case: Case) -> str:
    return case.name.partition("node")[0]
