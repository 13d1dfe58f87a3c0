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
from lockstep.exercises.observe import Observation
from lockstep.exercises.trial import observe_here

HIDDEN = 2  # draws beside the one that `check` shows


class Draws:
    """The draws of one exercise: number 0 is the one that `check` shows, the others come from the secret.

    visible: so many cases of draw 0 are what `check` shows; an instructor's own cases come after them.
    """

    def __init__(self, exercise: Exercise, secret: str) -> None:
        self.exercise = exercise
        words = (hashlib.sha256(f"{secret}\n{exercise.id}\n{draw}".encode()).digest() for draw in range(HIDDEN))
        seeds = [SEED, *(int.from_bytes(word[:7], "big") for word in words)]
        self.cases: list[list[Case]] = [exercise.draw(seed) for seed in seeds]
        self.visible = _visible(exercise)
        self._expected: dict[int, list[Observation]] = {}
        self._idle: dict[int, list[Observation]] = {}
        self._behaviours: dict[tuple[int, str], _Behaviour] = {}

    def expected(self, draw: int) -> list[Observation]:
        """What the reference does."""
        if draw not in self._expected:
            self._expected[draw] = observe_here(self.exercise, self.exercise.reference, self.cases[draw])
        return self._expected[draw]

    def idle(self, draw: int) -> list[Observation]:
        """What a function does that does nothing."""
        if draw not in self._idle:
            self._idle[draw] = observe_here(self.exercise, _nothing, self.cases[draw])
        return self._idle[draw]

    def behaviour(self, draw: int, mistake: Mistake) -> Sequence[Observation]:
        """What a known mistake does."""
        key = draw, mistake.name
        if key not in self._behaviours:
            self._behaviours[key] = _Behaviour(self.exercise, mistake, self.cases[draw])
        return self._behaviours[key]


class _Behaviour(Sequence):
    """A known mistake on each case, run when it is first asked for."""

    def __init__(self, exercise: Exercise, mistake: Mistake, cases: Sequence[Case]) -> None:
        self._exercise, self._mistake, self._cases = exercise, mistake, cases
        self._seen: dict[int, Observation] = {}

    def __len__(self) -> int:
        return len(self._cases)

    def __getitem__(self, at: int) -> Observation:
        if at not in self._seen:
            (self._seen[at],) = observe_here(self._exercise, self._mistake.function, [self._cases[at]])
        return self._seen[at]


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
