"""Ring collectives: every rank sends to its right neighbour and receives from its left.

Floor 1, room `comm`. Legend in `lockstep.comm.collectives`. Read `ring_all_reduce` first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from lockstep.comm.collectives.layout import chunk_sizes, flatten, scratch_like, sizes_or_equal, write_back
from lockstep.comm.errors import CommunicationError
from lockstep.comm.reduction import check_op, combine, divide

if TYPE_CHECKING:
    from lockstep.comm.communicator import Communicator


def reduce_scatter_chunks(comm: Communicator, chunks: Sequence[Tensor], op: str) -> None:
    """Ring, p-1 steps, in place: afterwards chunk r of rank r is reduced and its other chunks are scratch.

    p = 4, which chunk rank r passes to the right at step s; it combines the one that comes in, its next:
        s   r=0  r=1  r=2  r=3
        0    3    0    1    2
        1    2    3    0    1
        2    1    2    3    0
    """
    r, p = comm.rank, comm.size
    right, left = (r + 1) % p, (r - 1) % p
    for s in range(p - 1):
        outgoing, incoming = chunks[(r - s - 1) % p], chunks[(r - s - 2) % p]
        partial = scratch_like(incoming)
        comm.exchange([(outgoing, right)], [(partial, left)])
        combine(op, partial, incoming, r, out=incoming)
    divide(op, chunks[r], p)


def all_gather_chunks(comm: Communicator, chunks: Sequence[Tensor]) -> None:
    """Ring, p-1 steps, in place: rank r starts with chunk r and ends with all."""
    r, p = comm.rank, comm.size
    right, left = (r + 1) % p, (r - 1) % p
    for s in range(p - 1):
        comm.exchange([(chunks[(r - s) % p], right)], [(chunks[(r - s - 1) % p], left)])


def ring_all_reduce(comm: Communicator, tensor: Tensor, op: str = "sum") -> Tensor:
    """All-reduce in place, as a ring reduce-scatter followed by a ring all-gather; gives `tensor`.

    2(p-1) messages a rank and 2n elements less two chunks, the least that is possible
    (Patarasu and Yuan 2009).
    """
    check_op(op, tensor.dtype)
    flat = flatten(tensor)
    chunks = flat.split(chunk_sizes(flat.numel(), comm.size))
    reduce_scatter_chunks(comm, chunks, op)
    all_gather_chunks(comm, chunks)
    return write_back(tensor, flat)


def ring_reduce_scatter(
    comm: Communicator, tensor: Tensor, op: str = "sum", sizes: Sequence[int] | None = None
) -> Tensor:
    """Give rank r the reduced chunk r, 1-D, `sizes[r]` elements; `tensor` is left alone.

    p-1 messages and n elements less one chunk (Patarasu and Yuan 2009).
    """
    check_op(op, tensor.dtype)
    flat = flatten(tensor).clone()
    chunks = flat.split(sizes_or_equal(sizes, flat.numel(), comm.size, "sizes"))
    reduce_scatter_chunks(comm, chunks, op)
    return chunks[comm.rank].clone()


def ring_all_gather(comm: Communicator, tensor: Tensor, sizes: Sequence[int] | None = None) -> Tensor:
    """Give the tensors of all ranks joined along dimension 0; `sizes` are the rows of each, by default all equal.

    p-1 messages a rank (Thakur, Rabenseifner and Gropp 2005).
    """
    r, p = comm.rank, comm.size
    own = tensor.detach() if tensor.dim() else tensor.detach().reshape(1)
    rows = sizes_or_equal([own.shape[0]] * p if sizes is None else sizes, sum(sizes or [own.shape[0] * p]), p, "sizes")
    if rows[r] != own.shape[0]:
        raise CommunicationError(f"sizes[{r}] is {rows[r]}, but rank {r} gives a tensor of {own.shape[0]} rows.")
    joined = own.new_empty((sum(rows), *own.shape[1:]))
    chunks = joined.split(rows)
    chunks[r].copy_(own)
    all_gather_chunks(comm, chunks)
    return joined
