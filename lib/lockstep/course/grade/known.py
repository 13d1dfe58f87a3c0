"""What the grader knows of an exercise under one secret seed: cases, the right observations, the known mistakes.

Floor 4, room `course`. Worked out once for a whole batch, since every student gets the same draws.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from lockstep.exercises.check import SEED
from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.known import known as one_draw
from lockstep.exercises.observe import Observation

HIDDEN = 2  # draws beside the one that `check` shows


class Draws:
    """The draws of one exercise: number 0 is the one that `check` shows, the others come from the secret.

    visible: so many cases of draw 0 are what `check` shows; an instructor's own cases come after them.
    """

    def __init__(self, exercise: Exercise, secret: str) -> None:
        self.exercise, self.visible = exercise, _visible(exercise)
        words = (hashlib.sha256(f"{secret}\n{exercise.id}\n{draw}".encode()).digest() for draw in range(HIDDEN))
        seeds = [SEED, *(int.from_bytes(word[:7], "big") for word in words)]
        self._known = [one_draw(exercise, seed) for seed in seeds]
        self.cases: list[list[Case]] = [one.cases for one in self._known]

    def expected(self, draw: int) -> Sequence[Observation]:
        """What the reference does."""
        return self._known[draw].expected

    def idle(self, draw: int) -> Sequence[Observation]:
        """What a function does that does nothing."""
        return self._known[draw].of(_nothing)

    def behaviour(self, draw: int, mistake: Mistake) -> Sequence[Observation]:
        """What a known mistake does."""
        return self._known[draw].of(mistake.function)


def _visible(exercise: Exercise) -> int:
    """How many cases `check` draws: none of a pack's exercise, and of the course's those that are its own."""
    own = getattr(exercise.cases, "first", exercise.cases)
    if not str(getattr(own, "__module__", "")).startswith("lockstep.exercises."):
        return 0
    return len(list(own(np.random.default_rng(SEED))))


def _nothing(*_: Any, **__: Any) -> None:
    """What somebody hands in who has nothing."""


@lru_cache(maxsize=128)
def known(exercise: Exercise, secret: str) -> Draws:
    """The draws of an exercise; equal secrets draw equal cases."""
    return Draws(exercise, secret)
