"""Which lanes of a batch are active.

Floor 0. A mask is an array of bools that broadcasts to (blocks, lanes), or None where every lane is active. No mask at
all (None in place of a Mask) stands for no lane.
"""

from __future__ import annotations

import numpy as np

from lockstep.simt.places import WARP


class Mask:
    """Active lanes; how many lanes and warps that are is computed once."""

    __slots__ = ("a", "blocks", "lanes", "_count", "_warps")

    def __init__(self, a: np.ndarray | None, blocks: int, lanes: int) -> None:
        self.a, self.blocks, self.lanes = a, blocks, lanes
        self._count = self._warps = None

    def narrowed(self, a: np.ndarray) -> Mask | None:
        """The lanes of `a`, which must lie within this mask; itself if that is all of them, None if none."""
        count = self.scaled(np.count_nonzero(a), a)
        if count == 0:
            return None
        if count == self.count:
            return self
        mask = Mask(a, self.blocks, self.lanes)
        mask._count = count
        return mask

    def scaled(self, count: int, a: np.ndarray) -> int:
        """What `count` elements of `a` stand for once it is broadcast."""
        rows, columns = a.shape
        return int(count) * (self.blocks if rows == 1 else 1) * (self.lanes if columns == 1 else 1)

    @property
    def count(self) -> int:
        """Active lanes."""
        if self._count is None:
            self._count = self.blocks * self.lanes if self.a is None else self.scaled(np.count_nonzero(self.a), self.a)
        return self._count

    @property
    def warps(self) -> int:
        """Warps with at least one active lane."""
        if self._warps is None:
            if self.a is None or self.a.shape[1] == 1:
                self._warps = self.count // WARP
            else:
                any_lane = by_warp(self.a).any(axis=-1)
                self._warps = int(np.count_nonzero(any_lane)) * (self.blocks if self.a.shape[0] == 1 else 1)
        return self._warps

    def full(self) -> np.ndarray:
        """As a (blocks, lanes) array that may not be written to."""
        return spread(np.True_ if self.a is None else self.a, (self.blocks, self.lanes))


def spread(values, shape: tuple[int, ...]) -> np.ndarray:
    """`values` in that shape, not to be written to. Most have it already, and asking NumPy all the same takes longest."""
    return values if values.shape == shape else np.broadcast_to(values, shape)


def by_warp(a: np.ndarray) -> np.ndarray:
    """(rows, lanes) as (rows, warps, 32)."""
    return a.reshape(a.shape[0], -1, WARP)


def join(left: Mask | None, right: Mask | None) -> Mask | None:
    """The lanes of either; the two have none in common."""
    if left is None or right is None:
        return right if left is None else left
    return Mask(left.a | right.a, left.blocks, left.lanes)
