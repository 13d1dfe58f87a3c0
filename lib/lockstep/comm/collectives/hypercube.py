"""All-reduce on a hypercube: partners at distance 1, 2, 4, ..., and a fold for ranks beyond a power of two.

Floor 1, room `comm`. Legend in `lockstep.comm.collectives`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from lockstep.comm.collectives.layout import Subset, chunk_sizes, flatten, levels, scratch_like, write_back
from lockstep.comm.reduction import check_op, combine, divide

if TYPE_CHECKING:
    from lockstep.comm.communicator import Communicator


def _fold(comm: Communicator, flat: Tensor, op: str) -> list[int]:
    """Leave 2^k ranks at work: of the first 2(p - 2^k) ranks the even ones hand their data to their neighbours.

    Gives the ranks still at work, in order. One message of n elements for each rank that drops out
    (Thakur, Rabenseifner and Gropp 2005).
    """
    p, r = comm.size, comm.rank
    extra = p - (1 << (p.bit_length() - 1))
    if r < 2 * extra and r % 2 == 0:
        comm.send(flat, r + 1)
    elif r < 2 * extra:
        partial = scratch_like(flat)
        comm.recv(partial, r - 1)
        combine(op, partial, flat, r, out=flat)
    return [rank for rank in range(p) if rank >= 2 * extra or rank % 2 == 1]


def _unfold(comm: Communicator, flat: Tensor, at_work: Sequence[int]) -> None:
    """Hand the result back to the ranks that `_fold` left idle."""
    if comm.rank not in at_work:
        comm.recv(flat, comm.rank + 1)
    elif comm.rank - 1 >= 0 and comm.rank - 1 not in at_work:
        comm.send(flat, comm.rank - 1)


def recursive_doubling_all_reduce(comm: Communicator, tensor: Tensor, op: str = "sum") -> Tensor:
    """All-reduce in place: at each step swap everything with the rank at twice the distance; gives `tensor`.

    lg p messages of n elements, few and long: the choice for short tensors. Where p is not a power of two,
    one fold before and one after (Thakur, Rabenseifner and Gropp 2005).
    """
    check_op(op, tensor.dtype)
    flat = flatten(tensor)
    at_work = _fold(comm, flat, op)
    if comm.rank in at_work:
        cube = Subset(comm, at_work)
        for level in levels(cube.size):
            partner = cube.rank ^ (1 << level)
            partial = scratch_like(flat)
            cube.exchange([(flat, partner)], [(partial, partner)])
            # Lower ranks first on both sides, so that both round alike.
            lower, upper = (flat, partial) if cube.rank < partner else (partial, flat)
            combine(op, lower, upper, comm.rank, out=flat)
        divide(op, flat, comm.size)
    _unfold(comm, flat, at_work)
    return write_back(tensor, flat)


def rabenseifner_all_reduce(comm: Communicator, tensor: Tensor, op: str = "sum") -> Tensor:
    """All-reduce in place: reduce-scatter by halving the vector, all-gather by doubling it; gives `tensor`.

    2 lg p messages and 2n elements less two chunks: as few bytes as the ring in far fewer messages. Where p
    is not a power of two, one fold before and one after (Rabenseifner 2004; Thakur et al. 2005).
    """
    check_op(op, tensor.dtype)
    flat = flatten(tensor)
    at_work = _fold(comm, flat, op)
    if comm.rank in at_work:
        cube = Subset(comm, at_work)
        bounds = [0]
        for size in chunk_sizes(flat.numel(), cube.size):
            bounds.append(bounds[-1] + size)
        low, high = _halve(cube, flat, bounds, op)
        divide(op, flat[bounds[low] : bounds[high]], comm.size)
        _double(cube, flat, bounds)
    _unfold(comm, flat, at_work)
    return write_back(tensor, flat)


def _window(r: int, p: int, steps: int) -> tuple[int, int]:
    """First and last+1 chunk that rank r still works on after `steps` halvings: bit 0 of r chooses first."""
    low, length = 0, p
    for level in range(steps):
        length //= 2
        low += length * (r >> level & 1)
    return low, low + length


def _halve(cube: Subset, flat: Tensor, bounds: Sequence[int], op: str) -> tuple[int, int]:
    """Vector halving, distance doubling: rank r ends with one reduced chunk, whose window it gives."""
    p, r = cube.size, cube.rank
    for level in levels(p):
        partner = r ^ (1 << level)
        (keep_low, keep_high), (give_low, give_high) = _window(r, p, level + 1), _window(partner, p, level + 1)
        mine, theirs = flat[bounds[keep_low] : bounds[keep_high]], flat[bounds[give_low] : bounds[give_high]]
        partial = scratch_like(mine)
        cube.exchange([(theirs, partner)], [(partial, partner)])
        lower, upper = (mine, partial) if r < partner else (partial, mine)
        combine(op, lower, upper, r, out=mine)
    return _window(r, p, len(levels(p)))


def _double(cube: Subset, flat: Tensor, bounds: Sequence[int]) -> None:
    """Vector doubling, distance halving: the same swaps backwards, each rank giving the window it has."""
    p, r = cube.size, cube.rank
    for level in reversed(levels(p)):
        partner = r ^ (1 << level)
        (low, high), (other_low, other_high) = _window(r, p, level + 1), _window(partner, p, level + 1)
        cube.exchange(
            [(flat[bounds[low] : bounds[high]], partner)], [(flat[bounds[other_low] : bounds[other_high]], partner)]
        )
