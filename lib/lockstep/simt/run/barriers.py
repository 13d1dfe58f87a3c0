"""Barriers of a block: everybody has to reach them, and everything before is ordered before everything after.

Floor 0, after `races`. A batch's blocks may pass a barrier together or, where a loop's length depends on the block, a
part of them at a time; never a part of one block.
"""

from __future__ import annotations

import numpy as np

from lockstep.simt import errors
from lockstep.simt.places import listed, name
from lockstep.simt.run.batch import Batch, Site
from lockstep.simt.run.masks import Mask
from lockstep.simt.run.scratch import SharedArray

Levels = tuple[tuple[int, Mask], ...]


def syncthreads(batch: Batch, mask: Mask, site: Site, levels: Levels) -> None:
    """`cuda.syncthreads()`; `levels` are the branches around it, outermost first, as (line, mask that entered it)."""
    rows = _rows(batch, mask, site, levels)
    batch.races.settle(site.line, rows)
    for storage in batch.storage.values():
        if isinstance(storage, SharedArray):
            storage.settled()
    if batch.counters is not None:
        batch.counters.barrier(mask, site)


def vote(batch: Batch, how: str, predicate, mask: Mask, site: Site, levels: Levels):
    """`cuda.syncthreads_count`, `_and`, `_or`: a barrier that adds up `predicate` over each block, int32."""
    syncthreads(batch, mask, site, levels)
    yes = mask.full() & (predicate != 0)
    count = yes.sum(axis=1, dtype=np.int32)[:, None]
    if how == "syncthreads_count":
        return count
    threshold = batch.places.threads if how == "syncthreads_and" else 1
    return (count >= threshold).astype(np.int32)


def _rows(batch: Batch, mask: Mask, site: Site, levels: Levels) -> np.ndarray | None:
    """Which blocks are here, None for all; raises BarrierError if a part of a block is missing."""
    threads = batch.places.threads
    if mask.count == threads * batch.blocks:
        return None
    here = mask.full().sum(axis=1)
    rows = here == threads
    if not (rows | (here == 0)).all():
        _missing(batch, mask, site, levels, int(np.argmin(rows | (here == 0))))
    return rows


def _missing(batch: Batch, mask: Mask, site: Site, levels: Levels, block: int) -> None:
    batch.races.settle()
    absent = np.flatnonzero(batch.all.full()[block] & ~mask.full()[block])
    where = batch.place(block, 0)[1]
    threads = tuple(batch.place(block, int(lane))[0] for lane in absent)
    line, reason = _reason(batch, levels, block, int(absent[0]))
    names = listed([name(thread) for thread in threads])
    plural, verb = ("s", "do") if len(threads) > 1 else ("", "does")
    raise errors.BarrierError(
        f"thread{plural} {names} of block {name(where)} {verb} not reach the {site.text} at line {site.line}: {reason}. "
        "Every thread of a block has to reach the same barrier: move it out of that branch or loop",
        threads,
        (where,) * len(threads),
        (site.line, line),
    )


def _reason(batch: Batch, levels: Levels, block: int, lane: int) -> tuple[int, str]:
    for mask, line in batch.returned:
        if mask.full()[block, lane]:
            return line, f"line {line} returned before it"
    inside = [line for line, mask in levels if mask.full()[block, lane]]
    line = inside[-1] if inside else levels[0][0]
    return line, f"the branch or loop at line {line} left it without them"
