"""Arrays as one thread sees them, and the diary of who touched what.

Floor 0. Every access is written down as (cell, thread, what, line); races are then found by looking at all pairs.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from lockstep.simt import rules
from lockstep.simt.errors import OutOfBounds, RaceError, UninitializedRead
from lockstep.simt.slow.numbers import Number


@dataclass(frozen=True)
class Touch:
    """`sync` counts the thread's syncwarps in this interval; `block` and `thread` are indices."""

    block: tuple
    thread: tuple
    warp: int
    what: str
    line: int
    sync: int


class Diary:
    """`interval` since the last barrier of the running block; `launch` of all blocks, global memory alone."""

    def __init__(self) -> None:
        self.interval: dict[tuple, set[Touch]] = defaultdict(set)
        self.launch: dict[tuple, set[Touch]] = defaultdict(set)
        self.unwritten: UninitializedRead | None = None

    def touch(self, cell: tuple, touch: Touch, is_global: bool) -> None:
        self.interval[cell].add(touch)
        if is_global:
            self.launch[cell].add(touch)

    def end_interval(self) -> None:
        """At a barrier, and when a block has ended: raise the first race, then an uninitialised read."""
        cells, self.interval = self.interval, defaultdict(set)
        look_for_races(cells, lambda a, b: a.block == b.block and (a.warp != b.warp or a.sync == b.sync))
        if self.unwritten is not None:
            raise self.unwritten

    def end_launch(self) -> None:
        look_for_races(self.launch, lambda a, b: a.block != b.block)


def look_for_races(cells: dict[tuple, set[Touch]], unordered) -> None:
    """Raise RaceError for two threads on one cell, one writing, not both atomic, with nothing to order them."""
    for cell, touches in cells.items():
        if {touch.what for touch in touches} <= {"r"}:
            continue
        for a in touches:
            for b in touches:
                different = (a.block, a.thread) != (b.block, b.thread)
                if different and (a.what == "w" or (a.what == "a" and b.what == "r")) and unordered(a, b):
                    first, second = sorted([a, b], key=lambda touch: (touch.block, touch.thread, touch.line))
                    raise RaceError(
                        f"{first} and {second} on {cell}",
                        (first.thread, second.thread),
                        (first.block, second.block),
                        (first.line, second.line),
                    )


class SlowArray:
    """`cells` is a NumPy view; `written` says where something was, or None for memory that starts full."""

    def __init__(self, executor, cells: np.ndarray, name: str, space: str, numbers: np.ndarray | None = None) -> None:
        self.executor, self.cells, self.name, self.space = executor, cells, name, space
        self.written = np.zeros(cells.shape, dtype=bool) if space in ("shared", "local") else None
        self.numbers = numbers  # global memory: each element's number in its allocation, so that views can overlap
        self.kind = cells.dtype

    shape = property(lambda self: tuple(Number(size, rules.INT64) for size in self.cells.shape))
    size = property(lambda self: Number(self.cells.size, rules.INT64))
    ndim = property(lambda self: Number(self.cells.ndim, rules.INT64))
    dtype = property(lambda self: self.executor.cast(self.kind))

    def __len__(self) -> int:
        return len(self.cells)

    def index(self, index: object) -> tuple[int, ...]:
        """Python integers; raises OutOfBounds."""
        at = tuple(int(part.value) for part in (index if isinstance(index, tuple) else (index,)))
        if any(not 0 <= part < size for part, size in zip(at, self.cells.shape, strict=True)):
            self.executor.fault(OutOfBounds, f"{self.name}{list(at)} of shape {self.cells.shape}")
        return at

    def note(self, at: tuple[int, ...], what: str) -> None:
        executor = self.executor
        if self.written is not None:
            if what == "w":
                self.written[at] = True
            elif not self.written[at] and executor.diary.unwritten is None:
                executor.diary.unwritten = executor.made(UninitializedRead, f"{self.name}{list(at)}")
        if self.space == "shared":
            executor.diary.touch((id(self), at), executor.touch(what), False)
        elif self.space == "global":
            executor.diary.touch((self.name, int(self.numbers[at])), executor.touch(what), True)

    def __getitem__(self, index: object) -> Number:
        at = self.index(index)
        self.note(at, "r")
        return Number(self.cells[at], self.kind)

    def __setitem__(self, index: object, value: Number) -> None:
        at = self.index(index)
        self.note(at, "w")
        self.cells[at] = Number(value, self.kind).value

    def change(self, index: object, new) -> Number:
        """Atomic: `new(old)` replaces the element; returns the old one."""
        at = self.index(index)
        self.note(at, "a")
        old = self.cells[at]
        self.cells[at] = new(old)
        return Number(old, self.kind)
