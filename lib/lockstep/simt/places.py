"""Where a thread sits: its index in its block, its block's index in the grid, its number among them.

Floor 0. Indices are tuples, x first, as CUDA writes them; numbers run x fastest. A name in a sentence is as short as the
launch allows: `3` in a 1-D block, `(3,0)` in a 2-D one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from lockstep.simt.errors import LaunchError

WARP = 32
MOST_THREADS = 1024
MOST_BLOCK = (1024, 1024, 64)
MOST_GRID = (2**31 - 1, 65535, 65535)


@dataclass(frozen=True)
class Places:
    """A launch's grid and block, each of 1 to 3 dimensions."""

    grid: tuple[int, ...]
    block: tuple[int, ...]

    @property
    def threads(self) -> int:
        """Threads in a block."""
        return math.prod(self.block)

    @property
    def blocks(self) -> int:
        return math.prod(self.grid)

    @property
    def lanes(self) -> int:
        """Lanes in a block's warps: the last warp may have lanes without a thread."""
        return -(-self.threads // WARP) * WARP

    def thread(self, number: int) -> tuple[int, ...]:
        return _index(number, self.block)

    def block_index(self, number: int) -> tuple[int, ...]:
        return _index(number, self.grid)


def _index(number: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    index = []
    for size in shape:
        index.append(int(number % size))
        number //= size
    return tuple(index)


def places(grid: object, block: object) -> Places:
    """Check a launch's shape; LaunchError says which bound it breaks."""
    found = Places(_shape(grid, "grid", MOST_GRID), _shape(block, "block", MOST_BLOCK))
    if found.threads > MOST_THREADS:
        raise LaunchError(
            f"a block of {'x'.join(map(str, found.block))} has {found.threads:,} threads, and a GPU takes at most "
            f"{MOST_THREADS:,}: make the block smaller and the grid larger"
        )
    return found


def _shape(given: object, what: str, most: tuple[int, ...]) -> tuple[int, ...]:
    sizes = tuple(given) if isinstance(given, Iterable) else (given,)
    if not 1 <= len(sizes) <= 3:
        raise LaunchError(f"a {what} has 1 to 3 dimensions, not {len(sizes)}")
    shape = []
    for size, bound in zip(sizes, most, strict=False):
        if isinstance(size, bool) or not hasattr(size, "__index__"):
            raise LaunchError(f"a {what} is one integer or a tuple of them, not {given!r}: `//` divides integers")
        if not 1 <= size.__index__() <= bound:
            raise LaunchError(f"a {what} of {given!r}: each dimension is 1 to {bound:,}")
        shape.append(size.__index__())
    return tuple(shape)


def name(index: tuple[int, ...]) -> str:
    """`3` or `(3,0)`."""
    return str(index[0]) if len(index) == 1 else f"({','.join(map(str, index))})"


def listed(names: list[str]) -> str:
    """`3`, `3 and 4`, `3, 4 and 2 others`."""
    if len(names) <= 3:
        return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    return f"{', '.join(names[:2])} and {len(names) - 2:,} others"
