"""The race finder: who touched which cell since the last barrier.

Floor 0. Accesses are logged, and looked at when a barrier ends the interval: only then, and only in memory that somebody
wrote. Two threads race on a cell if both touched it in one interval, at least one wrote, and not both were atomic.
Barriers order the threads of a block and `syncwarp` the threads of a warp; nothing orders two blocks, so `global_owners`
also compares blocks over the whole launch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lockstep.simt.places import WARP
from lockstep.simt.run import race_report
from lockstep.simt.run.masks import Mask, spread

READ, WRITE, ATOMIC = "r", "w", "a"
LOG_LIMIT = 4_000_000  # lanes logged in one interval before repeated touches are thrown out


@dataclass(eq=False)
class Touch:
    """Threads (lane numbers in the batch) and the cells they touched, element by element; `order` counts syncwarps."""

    cells: np.ndarray
    who: np.ndarray
    kind: str
    site: object
    order: np.ndarray | None


class Races:
    """The log of one batch. `opened` is, for each block, the line of its last barrier, 0 before the first."""

    def __init__(self, batch) -> None:
        self.batch = batch
        self.log: dict[object, list] = {}
        self.opened = np.zeros(batch.blocks, dtype=np.int64)
        self.syncs: np.ndarray | None = None  # (blocks, lanes): syncwarps since the last barrier

    def touch(self, memory, cells, mask: Mask, kind: str, site) -> None:
        """Log an access by the lanes of `mask`."""
        self.log.setdefault(memory, []).append((cells, mask, kind, site, self.syncs))
        memory.logged += 1 if np.ndim(cells) == 0 else cells.size
        if memory.logged > memory.log_limit:
            self._compact(memory)

    def settle(self, closed: int = 0, rows: np.ndarray | None = None) -> None:
        """End the interval at the barrier of line `closed` (0: at the end of the kernel), for the blocks in `rows`.

        Raises RaceError for the first race, and else an uninitialised read that was put off until now.
        """
        log, kept = self.log, {}
        self.log = {}
        for memory, entries in log.items():
            touches, waiting = entries, []
            if rows is not None:
                touches, waiting = self._divided(memory, entries, rows)
            memory.logged = 0
            if any(kind != READ for _, _, kind, _, _ in _raw(touches)):
                self._check(memory, touches, closed)
            elif memory.across_blocks:
                memory.across_blocks.note(self, [self._flat(memory, entry) for entry in touches])
            if waiting:
                kept[memory] = waiting
        self.log = kept
        if rows is None:
            self.opened[:] = closed
            self.syncs = None
        else:
            self.opened[rows] = closed
        if self.batch.pending is not None:
            raise self.batch.pending

    def syncwarp(self, lanes: np.ndarray) -> None:
        """The lanes of a (blocks, lanes) array are ordered from here on, warp by warp."""
        before = 0 if self.syncs is None else self.syncs
        self.syncs = before + lanes.astype(np.int32)

    # From log entries to touches.

    def _flat(self, memory, entry) -> Touch:
        if isinstance(entry, Touch):
            return entry
        cells, mask, kind, site, order = entry
        shape = (self.batch.blocks, self.batch.lanes)
        cells = np.asarray(cells)
        if memory.per_block:
            cells = cells + np.arange(shape[0])[:, None] * memory.size
        cells = spread(cells, shape)
        who = np.arange(shape[0] * shape[1]).reshape(shape)
        if mask.a is None:
            return Touch(cells.ravel(), who.ravel(), kind, site, None if order is None else order.ravel())
        chosen = mask.full()
        return Touch(cells[chosen], who[chosen], kind, site, None if order is None else order[chosen])

    def _divided(self, memory, entries: list, rows: np.ndarray) -> tuple[list, list]:
        done, waiting = [], []
        for entry in entries:
            touch = self._flat(memory, entry)
            inside = rows[touch.who // self.batch.lanes]
            for part, chosen in ((done, inside), (waiting, ~inside)):
                order = None if touch.order is None else touch.order[chosen]
                part.append(Touch(touch.cells[chosen], touch.who[chosen], touch.kind, touch.site, order))
        return done, [touch for touch in waiting if touch.cells.size]

    def _compact(self, memory) -> None:
        """Throw out what a thread repeats, so that a long loop without barriers does not fill the memory."""
        together: dict[tuple, list[Touch]] = {}
        for entry in self.log[memory]:
            touch = self._flat(memory, entry)
            together.setdefault((touch.kind, touch.site, touch.order is None), []).append(touch)
        threads = self.batch.blocks * self.batch.lanes
        kept = []
        for (kind, site, _), touches in together.items():
            keys = np.concatenate([touch.cells.astype(np.int64) * threads + touch.who for touch in touches])
            orders = None if touches[0].order is None else np.concatenate([touch.order for touch in touches])
            _, first = np.unique(keys if orders is None else np.stack([keys, orders]), axis=-1, return_index=True)
            keys, orders = keys[first], None if orders is None else orders[first]
            kept.append(Touch(keys // threads, keys % threads, kind, site, orders))
        self.log[memory] = kept
        memory.logged = sum(touch.cells.size for touch in kept)
        memory.log_limit = max(LOG_LIMIT, 2 * memory.logged)

    # The check.

    def _check(self, memory, entries: list, closed: int) -> None:
        once = len(entries) == 1 and _rises(entries[0], memory)
        if once and not memory.across_blocks:
            return
        alike = memory.per_block and self._one_for_all(entries)
        touches = [self._one_block(entry) if alike else self._flat(memory, entry) for entry in entries]
        cell = None if once else self._conflict(memory, touches)
        if cell is not None:
            race_report.within_interval(self, memory, touches, cell, closed)
        if memory.across_blocks:
            memory.across_blocks.note(self, touches)

    def _conflict(self, memory, touches: list[Touch]) -> int | None:
        if all(touch.order is None for touch in touches):
            return memory.conflict(touches, [touch.who for touch in touches])
        return self._ordered_conflict(memory, touches)

    def _one_for_all(self, entries: list) -> bool:
        """Whether every block touched the same cells, so that one of them stands for all."""
        return all(
            not isinstance(entry, Touch)
            and (np.ndim(entry[0]) == 0 or entry[0].shape[0] == 1)
            and (entry[1].a is None or entry[1].a.shape[0] == 1)
            and entry[4] is None
            for entry in entries
        )

    def _one_block(self, entry) -> Touch:
        cells, mask, kind, site, _ = entry
        cells = spread(np.asarray(cells), (1, self.batch.lanes))[0]
        who = np.arange(self.batch.lanes)
        if mask.a is None:
            return Touch(cells, who, kind, site, None)
        chosen = spread(mask.a[0], who.shape)
        return Touch(cells[chosen], who[chosen], kind, site, None)

    def _ordered_conflict(self, memory, touches: list[Touch]) -> int | None:
        """With syncwarps in the interval: no order between warps, and within a warp only between equal counts."""
        cell = memory.conflict(touches, [touch.who // WARP for touch in touches])
        if cell is not None:
            return cell
        counts = {0} | {int(n) for touch in touches if touch.order is not None for n in np.unique(touch.order)}
        for count in sorted(counts):
            stage = [_at(touch, count) for touch in touches]
            cell = memory.conflict(stage, [touch.who for touch in stage])
            if cell is not None:
                return cell
        return None


def _raw(entries: list):
    for entry in entries:
        yield (None, None, entry.kind, None, None) if isinstance(entry, Touch) else entry


def _at(touch: Touch, count: int) -> Touch:
    if touch.order is None:
        return touch if count == 0 else Touch(touch.cells[:0], touch.who[:0], touch.kind, touch.site, None)
    chosen = touch.order == count
    return Touch(touch.cells[chosen], touch.who[chosen], touch.kind, touch.site, touch.order[chosen])


def _rises(entry, memory) -> bool:
    """Whether one write touches each cell once because its addresses only rise: the common case, seen quickly."""
    if isinstance(entry, Touch):
        return False
    cells, mask, _, _, _ = entry
    if np.ndim(cells) == 0 or cells.shape[1] != mask.lanes or (cells.shape[0] != mask.blocks and not memory.per_block):
        return False
    if memory.per_block:
        return bool((cells[:, 1:] > cells[:, :-1]).all())
    flat = cells.ravel()
    return bool((flat[1:] > flat[:-1]).all())


def conflict(touches: list[Touch], whos: list[np.ndarray], owner: np.ndarray) -> int | None:
    """A cell that two of `whos` touch, one of them writing; None if there is none. `owner` is all -1, and is left so.

    Writes first: each leaves its name on its cell, so whoever finds another's name there races, in any order of time.
    """
    try:
        for kind in (WRITE, ATOMIC, READ):
            for touch, who in zip(touches, whos, strict=True):
                if touch.kind != kind:
                    continue
                found = owner[touch.cells]
                wrong = (found >= 0) & (found != who)
                if kind == WRITE:
                    owner[touch.cells] = who
                    wrong |= owner[touch.cells] != who
                if wrong.any():
                    return int(touch.cells[np.argmax(wrong)])
        return _atomic_conflict(touches, whos, owner)
    finally:
        for touch in touches:
            if touch.kind != READ:
                owner[touch.cells] = -1


def _atomic_conflict(touches: list[Touch], whos: list[np.ndarray], owner: np.ndarray) -> int | None:
    """A cell that one thread reads plainly and another changes atomically."""
    for touch in touches:
        if touch.kind != READ:
            owner[touch.cells] = -1
    several = -2
    for touch, who in zip(touches, whos, strict=True):
        if touch.kind == ATOMIC:
            before = owner[touch.cells]
            mine = np.where((before == -1) | (before == who), who, several)
            owner[touch.cells] = mine
            owner[touch.cells[owner[touch.cells] != mine]] = several
    for touch, who in zip(touches, whos, strict=True):
        if touch.kind == READ:
            wrong = (owner[touch.cells] != -1) & (owner[touch.cells] != who)
            if wrong.any():
                return int(touch.cells[np.argmax(wrong)])
    return None
