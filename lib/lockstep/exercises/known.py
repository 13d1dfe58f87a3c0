"""What functions of ours do on the cases of an exercise, each run at most once in a process.

Floor 4, room `exercises`. A check compares with the reference, and where something is wrong with every known mistake:
the next check of the same exercise need not run them again. Nothing of a student's is kept here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.observe import Observation
from lockstep.exercises.trial import observe_here

KEPT = 40  # draws: those of a lab's exercises with a few seeds


class Behaviour(Sequence):
    """What a function does on each case, run when it is first asked for: most mistakes differ on the first already."""

    def __init__(self, exercise: Exercise, fn: Callable[..., Any], cases: Sequence[Case]) -> None:
        self.exercise, self.fn, self.cases = exercise, fn, cases
        self.seen: dict[int, Observation] = {}

    def __len__(self) -> int:
        return len(self.cases)

    def __getitem__(self, at: int) -> Observation:
        if at in self.seen:
            return self.seen[at]
        (seen,) = observe_here(self.exercise, self.fn, [self.cases[at]])
        if seen.error is None or seen.error.type != "Timeout":  # which says more of a busy machine than of the function
            self.seen[at] = seen
        return seen


class Known:
    """The cases of one draw, and what functions of ours do on them."""

    def __init__(self, exercise: Exercise, seed: int) -> None:
        self.exercise, self.cases = exercise, exercise.draw(seed)
        self.behaviours: dict[Callable[..., Any], Behaviour] = {}

    @property
    def expected(self) -> Behaviour:
        """What the reference does."""
        return self.of(self.exercise.reference)

    def of(self, fn: Callable[..., Any]) -> Behaviour:
        """What a function of ours does: the reference, a right solution, a known mistake."""
        return self.behaviours.setdefault(fn, Behaviour(self.exercise, fn, self.cases))


@lru_cache(maxsize=KEPT)
def known(exercise: Exercise, seed: int) -> Known:
    """The same value each time, for everyone: nobody may change its cases."""
    return Known(exercise, seed)
