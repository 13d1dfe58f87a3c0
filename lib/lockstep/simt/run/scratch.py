"""Shared and local arrays: memory that a kernel declares, one copy a block or a thread.

Floor 0, after `memory`. Neither starts with anything in it, so a cell is known to be written before it may be read.
"""

from __future__ import annotations

import numpy as np

from lockstep.simt import errors
from lockstep.simt.run.batch import Batch, Site
from lockstep.simt.run.masks import Mask, spread
from lockstep.simt.run.memory import INITIAL, Array, Storage
from lockstep.simt.run.races import WRITE


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(np.prod(shape[axis + 1 :], dtype=np.int64)) for axis in range(len(shape)))


class Declared(Array):
    """Cells in rows, one row a block (shared) or a lane (local); `written` is None once all of them are."""

    def __init__(self, batch: Batch, shape: tuple[int, ...], dtype: np.dtype, rows: int) -> None:
        cells = int(np.prod(shape, dtype=np.int64))
        super().__init__(batch, shape, _strides(shape), 0, np.zeros((rows, cells), dtype=dtype))
        self.written: np.ndarray | None = np.zeros((rows, cells), dtype=bool)

    def seen(self, address, mask: Mask, kind: str, site: Site) -> None:
        if self.written is not None:
            if kind == WRITE:
                self._place(self.written, address, True, mask)
            else:
                self._read_before(address, mask, site)
        self.log(address, mask, kind, site)

    def _read_before(self, address, mask: Mask, site: Site) -> None:
        unwritten = mask.full() & ~np.broadcast_to(self._gather(self.written, address), (mask.blocks, mask.lanes))
        if unwritten.any() and self.batch.pending is None:
            where = np.unravel_index(int(np.argmax(unwritten)), unwritten.shape)
            cell = int(np.broadcast_to(address, unwritten.shape)[where])
            thread, block = self.batch.place(*map(int, where))
            self.batch.pending = unwritten_read(thread, block, site, np.unravel_index(cell, self.bounds))

    def fetch(self, address):
        return self._gather(self.data, address)

    def put(self, address, value, mask: Mask) -> None:
        self._place(self.data, address, value, mask)


def unwritten_read(thread: tuple, block: tuple, site: Site, index: tuple) -> errors.UninitializedRead:
    """The error for a cell that nobody wrote."""
    from lockstep.simt.places import name

    cell = f"{site.text}[{','.join(str(int(at)) for at in index)}]"
    return errors.UninitializedRead(
        f"thread {name(thread)} of block {name(block)} reads {cell} at line {site.line}, and nothing was written "
        f"there: {INITIAL}",
        (thread,),
        (block,),
        (site.line,),
    )


class SharedArray(Declared):
    """One row a block."""

    space = "shared"

    def __init__(self, batch: Batch, shape: tuple[int, ...], dtype: np.dtype, watched: bool) -> None:
        super().__init__(batch, shape, dtype, batch.blocks)
        self.storage = Storage(int(self.size), shape, watched, True, batch.blocks)

    def log(self, address, mask: Mask, kind: str, site: Site) -> None:
        if self.batch.counters is not None:
            self.batch.counters.shared_request(self, address, mask, kind, site)
        if self.storage.watched:
            self.batch.races.touch(self.storage, address, mask, kind, site)

    def settled(self) -> None:
        """At a barrier: forget who wrote what, once everything was written."""
        if self.written is not None and self.written.all():
            self.written = None

    def flat(self, address, shape: tuple[int, int]) -> np.ndarray:
        return np.broadcast_to(address, shape) + np.arange(shape[0])[:, None] * int(self.size)

    def _gather(self, cells: np.ndarray, address):
        if not isinstance(address, np.ndarray):
            return cells[:, address : address + 1].copy()
        if address.shape[0] == 1:
            return cells.take(address[0], axis=1, mode="clip")
        return cells.reshape(-1).take(self._rows(address), mode="clip")

    def _rows(self, address: np.ndarray) -> np.ndarray:
        return address + np.arange(self.batch.blocks)[:, None] * int(self.size)

    def _place(self, cells: np.ndarray, address, value, mask: Mask) -> None:
        shape = (mask.blocks, mask.lanes)
        same_columns = not isinstance(address, np.ndarray) or address.shape[0] == 1
        if same_columns and (mask.a is None or mask.a.shape[0] == 1):
            columns = spread(np.asarray(address), (1, mask.lanes))[0]
            if mask.a is None:
                cells[:, columns] = value
                return
            lanes = spread(mask.a, (1, mask.lanes))[0]
            if isinstance(value, np.ndarray):
                value = spread(value, shape)[:, lanes]
            cells[:, columns[lanes]] = value
            return
        lanes = mask.full()
        if isinstance(value, np.ndarray):
            value = np.broadcast_to(value, shape)[lanes]
        cells.reshape(-1)[self.flat(address, shape)[lanes]] = value


class LocalArray(Declared):
    """One row a thread: registers, or memory that only its thread sees."""

    space = "local"

    def __init__(self, batch: Batch, shape: tuple[int, ...], dtype: np.dtype) -> None:
        super().__init__(batch, shape, dtype, batch.blocks * batch.lanes)

    def log(self, address, mask: Mask, kind: str, site: Site) -> None:
        """No other thread can see it, and no request leaves the multiprocessor for it."""

    def flat(self, address, shape: tuple[int, int]) -> np.ndarray:
        lanes = np.arange(shape[0] * shape[1]).reshape(shape)
        return np.broadcast_to(address, shape) + lanes * int(self.size)

    def _gather(self, cells: np.ndarray, address):
        shape = (self.batch.blocks, self.batch.lanes)
        if not isinstance(address, np.ndarray):
            return cells[:, address].reshape(shape).copy()
        return cells.reshape(-1).take(self.flat(address, shape), mode="clip")

    def _place(self, cells: np.ndarray, address, value, mask: Mask) -> None:
        shape, lanes = (mask.blocks, mask.lanes), mask.full()
        if isinstance(value, np.ndarray):
            value = np.broadcast_to(value, shape)[lanes]
        cells.reshape(-1)[self.flat(address, shape)[lanes]] = value
