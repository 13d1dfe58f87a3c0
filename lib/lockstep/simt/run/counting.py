"""Counters: what each source line asked of the memories and of the warps.

Floor 0, after `patterns`. Caches are not modelled: each global request is counted as if it went to memory.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, fields

import numpy as np

from lockstep.simt.places import WARP
from lockstep.simt.run.masks import Mask, by_warp
from lockstep.simt.run.patterns import FAR, bank_ways, contention, distinct_rows, sectors

Key = tuple[int, int]


@dataclass
class LineCounts:
    """One source line. A warp that executes a statement takes a step, with 32 lanes, active or idle.

    `instructions` estimates what its warps issue: an operator, an access or a comparison is one, and an integer `//` or
    `%` is 20. `worst_sectors`, `bank_conflict` and `atomic_conflict` are the worst of any request; `shared_passes` is how
    often the shared memory was passed through for all requests together.
    """

    steps: int = 0
    active_lanes: int = 0
    instructions: int = 0
    branches: int = 0
    divergent_branches: int = 0
    barriers: int = 0
    flops: int = 0
    global_requests: int = 0
    sectors: int = 0
    worst_sectors: int = 0
    bytes_requested: int = 0
    global_reads: int = 0
    global_writes: int = 0
    shared_requests: int = 0
    shared_passes: int = 0
    bank_conflict: int = 0
    broadcasts: int = 0
    shared_reads: int = 0
    shared_writes: int = 0
    constant_requests: int = 0
    constant_passes: int = 0
    atomics: int = 0
    atomic_conflict: int = 0

    @property
    def idle_lanes(self) -> int:
        """Lanes that stood by while their warp executed the line."""
        return self.steps * WARP - self.active_lanes

    def add(self, other: LineCounts) -> None:
        """Sum, or the worse of the two for what is a worst case."""
        for field in fields(self):
            worst = field.name in ("worst_sectors", "bank_conflict", "atomic_conflict")
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            setattr(self, field.name, max(mine, theirs) if worst else mine + theirs)


class Counters:
    """`lines` maps a source line, as (number of the function in the program, line), to its counts."""

    def __init__(self) -> None:
        self.lines: dict[Key, LineCounts] = defaultdict(LineCounts)
        self.known: dict[tuple, object] = {}  # what a pattern costs: loops repeat the same few

    def cost(self, of, rows: np.ndarray, itemsize: int) -> np.ndarray:
        """`of(rows, itemsize)`, remembered for small patterns."""
        if len(rows) > 16:
            return of(rows, itemsize)
        key = (of, itemsize, rows.tobytes())
        if key not in self.known:
            if len(self.known) > 4096:
                self.known.clear()
            self.known[key] = of(rows, itemsize)
        return self.known[key]

    # Statements.

    def step(self, key: Key, mask: Mask, instructions: int, flops: int) -> None:
        """A statement under `mask`."""
        counts = self.lines[key]
        counts.steps += mask.warps
        counts.active_lanes += mask.count
        counts.instructions += instructions * mask.warps
        counts.flops += flops * mask.count

    def part(self, key: Key, mask: Mask, instructions: int, flops: int) -> None:
        """A part of a statement that only the lanes of `mask` evaluate."""
        counts = self.lines[key]
        counts.instructions += instructions * mask.warps
        counts.flops += flops * mask.count

    def branch(self, mask: Mask, taken: Mask | None, key: Key) -> None:
        """A warp diverges where some of its active lanes take a branch and some do not."""
        counts = self.lines[key]
        counts.branches += mask.warps
        if taken is None or taken is mask:
            return
        here = by_warp(mask.full()).sum(axis=-1) if mask.a is not None else WARP
        there = by_warp(taken.full()).sum(axis=-1)
        counts.divergent_branches += int(((there > 0) & (there < here)).sum())

    def barrier(self, mask: Mask, site) -> None:
        """Once for each block."""
        self.lines[site.key].barriers += int(mask.full().any(axis=1).sum())

    # Requests.

    def _rows(self, address, mask: Mask, period: int) -> tuple[np.ndarray, np.ndarray]:
        rows = 1 if mask.a is None or mask.a.shape[0] == 1 else mask.blocks
        if isinstance(address, np.ndarray):
            rows = max(rows, address.shape[0])
        shape = (rows, mask.lanes)
        active = None if mask.a is None else np.broadcast_to(mask.a, shape)
        found, counts = distinct_rows(np.broadcast_to(address, shape), active, period)
        return found, counts * (mask.blocks if rows == 1 else 1)

    def global_request(self, array, address, mask: Mask, kind: str, site) -> None:
        itemsize = array.data.dtype.itemsize
        rows, times = self._rows(address, mask, max(1, 32 // itemsize))
        counts = self.lines[site.key]
        counts.global_requests += int(times.sum())
        touched = self.cost(sectors, rows, itemsize)
        counts.sectors += int((touched * times).sum())
        counts.worst_sectors = max(counts.worst_sectors, int(touched.max(initial=0)))
        counts.bytes_requested += mask.count * itemsize
        counts.global_reads += mask.count if kind != "w" else 0
        counts.global_writes += mask.count if kind != "r" else 0
        if kind == "a":
            self._atomic(counts, rows, mask)

    def shared_request(self, array, address, mask: Mask, kind: str, site) -> None:
        itemsize = array.data.dtype.itemsize
        rows, times = self._rows(address, mask, max(1, 128 // itemsize))
        counts = self.lines[site.key]
        ways = self.cost(bank_ways, rows, itemsize)
        counts.shared_requests += int(times.sum())
        counts.shared_passes += int((ways * times).sum())
        counts.bank_conflict = max(counts.bank_conflict, int(ways.max(initial=0)))
        counts.broadcasts += int((self.cost(_broadcast, rows, itemsize) * times).sum())
        counts.shared_reads += mask.count if kind != "w" else 0
        counts.shared_writes += mask.count if kind != "r" else 0
        if kind == "a":
            self._atomic(counts, rows, mask)

    def constant_request(self, address, mask: Mask, site) -> None:
        """Constant memory serves one address of a warp after the other."""
        rows, times = self._rows(address, mask, 1)
        counts = self.lines[site.key]
        ordered = np.sort(rows, axis=1)
        passes = ((ordered[:, 1:] != ordered[:, :-1]) & (ordered[:, 1:] != FAR)).sum(axis=1) + 1
        counts.constant_requests += int(times.sum())
        counts.constant_passes += int((passes * times).sum())

    def _atomic(self, counts: LineCounts, rows: np.ndarray, mask: Mask) -> None:
        counts.atomics += mask.count
        counts.atomic_conflict = max(counts.atomic_conflict, int(contention(rows).max(initial=0)))


def _broadcast(rows: np.ndarray, itemsize: int) -> np.ndarray:
    """Requests in which several lanes share one element, which costs nothing."""
    ordered = np.sort(rows, axis=1)
    return ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != FAR)).any(axis=1)
