"""Recognise a mistake by the smallest case that fails, where no known one goes wrong alike on every case.

Floor 4, room `exercises`. Students combine mistakes: who averages the ranks alike and also forgets missing gradients
fails later cases in a way of their own, and still has to hear of the first. Errors are alike when their messages are:
one type has many causes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.judge import Judge, judged
from lockstep.exercises.observe import Failure, Observation
from lockstep.exercises.remembered import remembered


@dataclass(frozen=True)
class FailsAlike:
    """A symptom: on the smallest failing case the mistake finds the same wrong."""

    observe: Callable[[Callable[..., Any], Case], Observation]
    judge: Judge
    function: Callable[..., Any]

    def __call__(self, case: Case, seen: Observation, expected: Observation) -> bool:
        return self.beside(remembered(self.observe, self.function, case), case, seen, expected)

    def beside(self, other: Observation, case: Case, seen: Observation, expected: Observation) -> bool:
        """The same, for who has seen already what the mistake does on that case."""
        if seen.error is not None:
            return other.error is not None and _told(seen.error) == _told(other.error)
        mine, theirs = (judged(self.judge, case, one, expected) for one in (seen, other))
        return mine is not None and theirs is not None and mine.like(theirs)


def by_first_failure(
    observe: Callable[[Callable[..., Any], Case], Observation], judge: Judge, mistakes: Sequence[Mistake]
) -> tuple[Mistake, ...]:
    """The mistakes, each without a symptom now with this one: it fails the same case with the same finding."""
    return tuple(
        mistake if mistake.symptom else replace(mistake, symptom=FailsAlike(observe, judge, mistake.function))
        for mistake in mistakes
    )


def _told(error: Failure) -> tuple[object, ...]:
    """What two errors with the same cause share: type, message and ranks, without names and numbers."""
    return error.type, error.fault, re.sub(r"'[^']*'|\d+", "", error.message)
