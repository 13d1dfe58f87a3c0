"""Arrays in the four memories, as compiled code reads and writes them: bounds first, then the cells, then the log.

Floor 0, after `batch`. An index is one int64 a dimension, an array or a scalar; what is loaded broadcasts to
(blocks, lanes). Lanes that are not active load whatever lies near, and nobody reads it.
"""

from __future__ import annotations

import numpy as np

from lockstep.simt import errors
from lockstep.simt.run.batch import Batch, Site
from lockstep.simt.run.global_owners import GlobalOwners
from lockstep.simt.run.masks import Mask
from lockstep.simt.run.races import ATOMIC, LOG_LIMIT, READ, WRITE, conflict

INITIAL = "shared and local memory start with whatever was there before"


class Storage:
    """What the race finder knows of one piece of memory: `size` cells, per block or for the whole grid."""

    def __init__(self, size: int, shape: tuple[int, ...], watched: bool, per_block: bool, blocks: int) -> None:
        self.size, self.shape, self.watched, self.per_block = size, shape, watched, per_block
        self.cells = size * (blocks if per_block else 1)
        self.across_blocks: GlobalOwners | None = None
        self.logged, self.log_limit = 0, LOG_LIMIT
        self._owner: np.ndarray | None = None

    def conflict(self, touches: list, whos: list) -> int | None:
        if self._owner is None:
            self._owner = np.full(self.cells, -1, dtype=np.int32)
        return conflict(touches, whos, self._owner)

    def index(self, cell: int) -> tuple[int, ...]:
        """The index of a cell, as the kernel writes it."""
        return tuple(int(at) for at in np.unravel_index(cell % self.size, self.shape))


class Array:
    """What all memories share: shape, bounds, and the order in which an access is checked, counted and logged."""

    space = ""

    def __init__(self, batch: Batch, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, data) -> None:
        self.batch, self.data, self.offset = batch, data, offset
        self.bounds = tuple(int(size) for size in shape)
        self.shape = tuple(np.int64(size) for size in shape)
        self.strides = strides
        self.size = np.int64(np.prod(shape, dtype=np.int64))

    def address(self, index: tuple, mask: Mask, site: Site):
        """The cell's number in the memory, for each lane; raises OutOfBounds for an active lane outside."""
        address = self.offset
        for at, size, stride in zip(index, self.bounds, self.strides, strict=True):
            if isinstance(at, np.ndarray):
                if at.view(np.uint64).max(initial=0) >= size:
                    self._within(at, size, index, mask, site)
            elif not 0 <= at < size:
                self._outside(mask.full(), index, site)
            step = at if stride == 1 else at * stride
            address = step if address is self.offset and not self.offset else address + step
        return address

    def _within(self, at: np.ndarray, size: int, index: tuple, mask: Mask, site: Site) -> None:
        outside = mask.full() & ((at < 0) | (at >= size))
        if outside.any():
            self._outside(outside, index, site)

    def _outside(self, lanes: np.ndarray, index: tuple, site: Site) -> None:
        first = np.unravel_index(int(np.argmax(lanes)), lanes.shape)
        lanes = np.zeros_like(lanes)
        lanes[first] = True  # one thread, since each has an index of its own
        values = [int(np.broadcast_to(at, lanes.shape)[first]) for at in index]
        self.batch.fail(
            errors.OutOfBounds,
            outside_sentence(site, values, self.bounds),
            lanes,
            (site.line,),
        )

    def load(self, index: tuple, mask: Mask, site: Site):
        address = self.address(index, mask, site)
        self.seen(address, mask, READ, site)
        return self.fetch(address)

    def store(self, index: tuple, value, mask: Mask, site: Site) -> None:
        address = self.address(index, mask, site)
        self.seen(address, mask, WRITE, site)
        self.put(address, value, mask)

    def update(self, index: tuple, value, mask: Mask, site: Site, atomic) -> object:
        """An atomic: `atomic(cells, addresses, values)` changes flat cells one by one and returns the old values."""
        address = self.address(index, mask, site)
        self.seen(address, mask, ATOMIC, site)
        shape = (self.batch.blocks, self.batch.lanes)
        lanes = mask.full()
        values = tuple(np.broadcast_to(part, shape)[lanes] for part in value)
        old = np.zeros(shape, dtype=self.data.dtype)
        old[lanes] = atomic(self.data.reshape(-1), self.flat(address, shape)[lanes], *values)
        return old

    def flat(self, address, shape: tuple[int, int]) -> np.ndarray:
        """The addresses of all lanes in the flat data."""
        return np.broadcast_to(address, shape)


def outside_sentence(site: Site, values: list[int], bounds: tuple[int, ...]) -> str:
    """What an index outside its array says."""
    at = ",".join(map(str, values))
    has = f"{bounds[0]:,} elements" if len(bounds) == 1 else f"the shape {'x'.join(map(str, bounds))}"
    cure = "an index below 0 is never meant" if min(values) < 0 else "guard the access with `if`"
    return f"{{who}} touches {site.text}[{at}] at line {site.line}, and {site.text} has {has}: {cure}"


class GlobalArray(Array):
    """An argument of the launch: a view on `storage`, which the arrays of one allocation share."""

    space = "global"

    def __init__(self, batch: Batch, data, shape, strides, offset, storage: Storage) -> None:
        super().__init__(batch, shape, strides, offset, data)
        self.storage = storage

    def seen(self, address, mask: Mask, kind: str, site: Site) -> None:
        if self.batch.counters is not None:
            self.batch.counters.global_request(self, address, mask, kind, site)
        if self.storage.watched:
            self.batch.races.touch(self.storage, address, mask, kind, site)

    def fetch(self, address):
        return self.data.take(address, mode="clip")

    def put(self, address, value, mask: Mask) -> None:
        if mask.a is None and isinstance(address, np.ndarray) and address.shape == (mask.blocks, mask.lanes):
            self.data[address] = value
            return
        shape, lanes = (mask.blocks, mask.lanes), mask.full()
        self.data[np.broadcast_to(address, shape)[lanes]] = (
            np.broadcast_to(value, shape)[lanes] if isinstance(value, np.ndarray) else value
        )


class ConstantArray(Array):
    """A NumPy array from outside the kernel: read only, frozen when the kernel was compiled."""

    space = "const"

    def __init__(self, batch: Batch, data: np.ndarray) -> None:
        strides = tuple(np.cumprod([1, *data.shape[:0:-1]])[::-1].tolist())
        super().__init__(batch, data.shape, strides, 0, data.reshape(-1))

    def seen(self, address, mask: Mask, kind: str, site: Site) -> None:
        if self.batch.counters is not None:
            self.batch.counters.constant_request(address, mask, site)

    fetch = GlobalArray.fetch
