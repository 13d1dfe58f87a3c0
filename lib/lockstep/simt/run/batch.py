"""A batch: blocks that run together, one NumPy element a lane, and what compiled code asks of it.

Floor 0, after `masks`. The names are short where generated code calls them once a statement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from lockstep.simt import errors
from lockstep.simt.places import WARP, Places, listed, name
from lockstep.simt.run.loops import UniformRange, VaryingRange, current_limit
from lockstep.simt.run.masks import Mask
from lockstep.simt.run.races import Races


@dataclass(frozen=True, eq=False)
class Site:
    """One place in a kernel's text: an access (`text` is the array's name there), a barrier, a division."""

    index: int
    line: int
    text: str = ""
    key: tuple[int, int] = (0, 0)  # what counters know its line by


class Batch:
    """`first` is the number of the first of `blocks` blocks. Thread indices have shape (1, lanes), blocks' (blocks, 1).

    `counters` is None when nothing is counted.
    """

    def __init__(self, places: Places, first: int, blocks: int, counters=None, dynamic_bytes: int = 0) -> None:
        self.places, self.first, self.blocks, self.lanes = places, first, blocks, places.lanes
        self.counters, self.dynamic_bytes, self.limit = counters, dynamic_bytes, current_limit()
        numbers = np.arange(self.lanes)
        padded = self.lanes != places.threads
        self.all = Mask((numbers < places.threads)[None] if padded else None, blocks, self.lanes)
        self.lane = (numbers % WARP).astype(np.int32)[None]
        self.thread = self._indices(numbers[None], places.block)
        self.block = self._indices(np.arange(first, first + blocks)[:, None], places.grid)
        self.block_dim = tuple(np.int32(size) for size in (*places.block, 1, 1)[:3])
        self.grid_dim = tuple(np.int32(size) for size in (*places.grid, 1, 1)[:3])
        self.storage: dict[object, object] = {}  # shared and local arrays by origin, constant ones by identity
        self.returned: list[tuple[Mask, int]] = []
        self.pending: errors.KernelFault | None = None  # an uninitialised read; a race explains it better
        self.races = Races(self)

    def _indices(self, numbers: np.ndarray, sizes: tuple[int, ...]) -> tuple:
        found = []
        for size in (*sizes, 1, 1)[:3]:
            found.append(np.int32(0) if size == 1 else self._small((numbers % size).astype(np.int32)))
            numbers = numbers // size
        return tuple(found)

    def _small(self, values: np.ndarray) -> np.ndarray | np.int32:
        return values[0, 0] if values.size == 1 else values

    def position(self, axis: int) -> np.ndarray:
        """`cuda.grid` along one axis, int64."""
        return np.int64(self.block_dim[axis]) * self.block[axis] + self.thread[axis]

    def extent(self, axis: int) -> np.int64:
        """`cuda.gridsize` along one axis."""
        return np.int64(self.block_dim[axis]) * self.grid_dim[axis]

    # Branches and loops.

    def when(self, mask: Mask, condition) -> Mask | None:
        """The lanes of `mask` for which `condition` holds; None if there are none, `mask` itself if all."""
        if not isinstance(condition, np.ndarray):
            return mask if condition else None
        return mask.narrowed(condition if mask.a is None else mask.a & condition)

    def split(self, mask: Mask, condition, key: tuple[int, int]) -> tuple[Mask | None, Mask | None]:
        """(lanes for which `condition` holds, lanes for which it does not)."""
        if not isinstance(condition, np.ndarray):
            return (mask, None) if condition else (None, mask)
        taken = self.when(mask, condition)
        if taken is None:
            return None, mask
        if taken is mask:
            return mask, None
        left = ~condition if mask.a is None else mask.a & ~condition
        return taken, Mask(left, self.blocks, self.lanes)

    def branch(self, mask: Mask, condition, key: tuple[int, int]) -> Mask | None:
        """`when` for an `if`, which is counted."""
        return self.when(mask, condition)

    def leaves(self, mask: Mask, line: int) -> None:
        """Note that lanes returned, which a barrier that waits for them will say."""
        self.returned.append((mask, line))

    def range(self, start, stop, step, kind: type, key: tuple[int, int]) -> UniformRange | VaryingRange:
        """What `for ... in range(...)` goes through; KernelFault for a step of 0."""
        if np.any(np.equal(step, 0)):
            raise errors.KernelFault(f"the step of range at line {key[1]} is 0", lines=(key[1],))
        if any(isinstance(bound, np.ndarray) for bound in (start, stop, step)):
            return VaryingRange(self, start, stop, step, kind, key)
        return UniformRange(start, stop, step, kind)

    def endless(self, mask: Mask, line: int) -> None:
        """End a loop that is past the limit."""
        rounds = f"the loop at line {line} is still going after {self.limit:,} rounds"
        self.fail(
            errors.EndlessLoop,
            f"{rounds} for {{who}}. Does its condition ever become false? A loop that needs more runs within "
            "lockstep.simt.step_limit(rounds)",
            mask.full(),
            (line,),
        )

    # Values.

    def merge(self, mask: Mask, new, old):
        """`new` for the lanes of `mask`, `old` for the others."""
        if old is None or mask.a is None or new is old:
            return new
        if isinstance(new, tuple):
            return tuple(self.merge(mask, a, b) for a, b in zip(new, old, strict=True))
        if not isinstance(new, (np.ndarray, np.generic)):
            raise errors.Unsupported("some threads of a block name one array and some another: index them in branches")
        return np.where(mask.a, new, old)

    def choose(self, condition, yes, no):
        """`yes if condition else no`, lane by lane."""
        if not isinstance(condition, np.ndarray):
            return yes if condition else no
        if isinstance(yes, tuple):
            return tuple(self.choose(condition, a, b) for a, b in zip(yes, no, strict=True))
        return np.where(condition, yes, no)

    def mark(self, defined, mask: Mask):
        """Note that the lanes of `mask` have assigned a variable."""
        return mask.full() if defined is None else defined | mask.full()

    def defined(self, defined, mask: Mask, site: Site) -> None:
        """Refuse to read a variable that some active lane never assigned."""
        missing = mask.full() if defined is None else mask.full() & ~defined
        if missing.any():
            self.fail(
                errors.UninitializedRead,
                f"{{who}} read{{s}} {site.text} at line {site.line} and never assigned it: give it a value before "
                "the branch or the loop",
                missing,
                (site.line,),
            )

    def divisor(self, value, mask: Mask, site: Site):
        """`value`, which divides an integer, refused where it is 0."""
        if not np.all(value):
            zero = mask.full() & (value == 0)
            if zero.any():
                self.fail(
                    errors.DivisionByZero,
                    f"{{who}} divide{{s}} by 0 at line {site.line}: {site.text}",
                    zero,
                    (site.line,),
                )
        return value

    def power(self, left, right, mask: Mask, site: Site):
        """An integer to the power of an integer, which has to be at least 0."""
        negative = np.less(right, 0)
        if np.any(negative) and (mask.full() & negative).any():
            self.fail(
                errors.KernelFault,
                f"{{who}} raise{{s}} an integer to a negative power at line {site.line}",
                mask.full() & negative,
                (site.line,),
            )
        return np.power(left, np.maximum(right, 0))

    # Faults.

    def place(self, block: int, lane: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(thread index, block index) of a lane of this batch."""
        return self.places.thread(lane), self.places.block_index(self.first + block)

    def fail(
        self, fault: type[errors.KernelFault], sentence: str, lanes: np.ndarray, lines: tuple[int, ...]
    ) -> NoReturn:
        """Raise `fault` for the lanes of a (blocks, lanes) array, of the first block that has any.

        `sentence` speaks of `{who}`, who `{do}` or read`{s}`. A race found in the same stretch, or an uninitialised
        read, is the cause rather than the effect, and is raised instead.
        """
        self.races.settle()
        block = int(np.argmax(lanes.any(axis=1)))
        numbers = np.flatnonzero(lanes[block])
        threads, blocks = zip(*(self.place(block, int(lane)) for lane in numbers), strict=True)
        raise fault(spoken(sentence, threads, blocks[0]), threads, blocks, lines)


def spoken(sentence: str, threads: tuple, block: tuple) -> str:
    """Fill in `{who}`, `{s}` and `{do}` for some threads of one block."""
    one = len(threads) == 1
    who = f"thread{'' if one else 's'} {listed([name(thread) for thread in threads])} of block {name(block)}"
    return sentence.format(who=who, s="s" if one else "", do="does" if one else "do")
