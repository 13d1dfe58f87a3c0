"""What the lanes of a warp do together: `syncwarp`, shuffles, votes.

Floor 0, after `batch`. A mask names the lanes that take part, bit by bit; all of them have to be there. Lanes that the
mask leaves out and that are still running have no order with those inside, which we do not follow: refused by name.
"""

from __future__ import annotations

import numpy as np

from lockstep.simt import errors
from lockstep.simt.places import WARP
from lockstep.simt.run.batch import Batch, Site
from lockstep.simt.run.masks import Mask, by_warp

ALL = np.int64(0xFFFFFFFF)


def _members(batch: Batch, members, mask: Mask, site: Site) -> np.ndarray:
    """The (blocks, lanes) lanes that `members` names in the warps that are here; raises BarrierError if one is not."""
    here = mask.full()
    bits = np.broadcast_to(members, here.shape).astype(np.int64) >> batch.lane & 1 != 0
    lead = np.repeat(by_warp(here).any(axis=-1), WARP, axis=-1)  # warps in which anybody got here
    named = bits & lead & batch.all.full()
    missing = named & ~here
    if missing.any():
        batch.fail(
            errors.BarrierError,
            f"{{who}} {{do}} not reach {site.text} at line {site.line}: every lane that its mask names has to be there",
            missing,
            (site.line,),
        )
    outsiders = here & ~bits
    if outsiders.any():
        batch.fail(
            errors.BarrierError,
            f"{{who}} call{{s}} {site.text} at line {site.line}, and its mask does not name {{who}}",
            outsiders,
            (site.line,),
        )
    return named


def syncwarp(batch: Batch, members, mask: Mask, site: Site) -> None:
    """`cuda.syncwarp(members)`: orders the warp's threads before and after it."""
    named = _members(batch, members, mask, site)
    alive = batch.all.full() & np.repeat(by_warp(named).any(axis=-1), WARP, axis=-1)
    for gone, _ in batch.returned:
        alive = alive & ~gone.full()
    if (alive & ~named).any():
        raise errors.Unsupported("a syncwarp whose mask leaves out running threads of the warp", site.line)
    batch.races.syncwarp(named)


def shuffle(batch: Batch, how: str, members, value, argument, mask: Mask, site: Site):
    """`cuda.shfl_*_sync`: each lane gets another lane's value, its own where the other lies outside the warp."""
    named = _members(batch, members, mask, site)
    shape = named.shape
    lane = np.broadcast_to(batch.lane, shape).astype(np.int64)
    argument = np.broadcast_to(argument, shape).astype(np.int64)
    source = {
        "shfl_sync": argument % WARP,
        "shfl_up_sync": lane - argument,
        "shfl_down_sync": lane + argument,
        "shfl_xor_sync": lane ^ argument,
    }[how]
    source = np.where((source < 0) | (source >= WARP), lane, source)
    start = np.arange(shape[1]) - batch.lane
    column = start + source
    absent = mask.full() & ~np.take_along_axis(named, column, axis=1)
    if absent.any():
        batch.fail(
            errors.BarrierError,
            f"{{who}} read{{s}}, by {site.text} at line {site.line}, from a lane that does not take part",
            absent,
            (site.line,),
        )
    return np.take_along_axis(np.broadcast_to(value, shape), column, axis=1)


def vote(batch: Batch, how: str, members, predicate, mask: Mask, site: Site):
    """`cuda.all_sync`, `any_sync`, `eq_sync` (bool) and `ballot_sync` (int32): one answer a warp."""
    named = by_warp(_members(batch, members, mask, site))
    values = by_warp(np.broadcast_to(predicate, (mask.blocks, mask.lanes)))
    yes = named & (values != 0)
    if how == "all_sync":
        answer = (yes | ~named).all(axis=-1)
    elif how == "any_sync":
        answer = yes.any(axis=-1)
    elif how == "eq_sync":
        first = np.take_along_axis(values, named.argmax(axis=-1)[..., None], axis=-1)
        answer = ((values == first) | ~named).all(axis=-1)
    else:
        answer = _bits(yes).astype(np.int32)
    return np.repeat(answer, WARP, axis=-1)


def active(batch: Batch, mask: Mask) -> np.ndarray:
    """`cuda.activemask()`, uint32."""
    return np.repeat(_bits(by_warp(mask.full())), WARP, axis=-1).astype(np.uint32)


def _bits(lanes: np.ndarray) -> np.ndarray:
    return (lanes.astype(np.int64) << np.arange(WARP)).sum(axis=-1).astype(np.uint32)


def popc(values):
    """`cuda.popc`: the number of bits set in an unsigned integer, uint8."""
    if hasattr(np, "bitwise_count"):
        return np.bitwise_count(values)
    return sum(((values >> bit) & 1).astype(np.uint8) for bit in range(8 * values.dtype.itemsize))
