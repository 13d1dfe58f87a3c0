"""Loops: `range` for lanes that agree on its bounds and for lanes that do not, and the limit that ends an endless one.

Floor 0. The step limit counts the rounds of one `while`; `range` ends by itself.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

import numpy as np

from lockstep.simt.run.masks import Mask

STEP_LIMIT = 100_000
_limit = contextvars.ContextVar("step_limit", default=STEP_LIMIT)


@contextlib.contextmanager
def step_limit(rounds: int) -> Iterator[None]:
    """Within the block, a `while` of a simulated kernel may go on for `rounds` rounds (100,000 elsewhere)."""
    if not isinstance(rounds, int) or rounds < 1:
        raise ValueError(f"a step limit is an integer above 0, not {rounds!r}")
    token = _limit.set(rounds)
    try:
        yield
    finally:
        _limit.reset(token)


def current_limit() -> int:
    return _limit.get()


class UniformRange:
    """The same numbers for every lane."""

    __slots__ = ("numbers", "kind", "value")

    def __init__(self, start: int, stop: int, step: int, kind: type) -> None:
        self.numbers, self.kind = iter(range(int(start), int(stop), int(step))), kind

    def next(self, mask: Mask) -> tuple[Mask | None, Mask | None]:
        """(lanes that go on, lanes that leave); `value` is then the loop variable's."""
        for number in self.numbers:
            self.value = self.kind(number)
            return mask, None
        return None, mask


class VaryingRange:
    """Each lane has its own bounds."""

    __slots__ = ("batch", "at", "stop", "step", "kind", "key", "value")

    def __init__(self, batch, start, stop, step, kind: type, key: tuple[int, int]) -> None:
        self.batch, self.stop, self.step, self.kind, self.key = batch, stop, step, kind, key
        self.at = np.subtract(start, step, dtype=np.int64)

    def next(self, mask: Mask) -> tuple[Mask | None, Mask | None]:
        self.at = self.at + self.step
        self.value = self.at.astype(self.kind)
        going = self.at < self.stop if np.ndim(self.step) == 0 and self.step > 0 else self._going()
        return self.batch.split(mask, going, self.key)

    def _going(self) -> np.ndarray:
        return np.where(self.step > 0, self.at < self.stop, self.at > self.stop)
