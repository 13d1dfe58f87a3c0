"""Collectives with a root: binomial trees, and the star that they improve on.

Floor 1, room `comm`. Legend in `lockstep.comm.collectives`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from lockstep.comm.collectives.layout import flatten, levels, scratch_like, write_back
from lockstep.comm.reduction import check_op, combine, divide

if TYPE_CHECKING:
    from lockstep.comm.communicator import Communicator


def tree_broadcast(comm: Communicator, tensor: Tensor, src: int = 0) -> Tensor:
    """Broadcast in place along a binomial tree: at each level every rank that has the data sends it once.

    ceil(lg p) levels, p-1 messages in all (Thakur, Rabenseifner and Gropp 2005).
    """
    p, v = comm.size, (comm.rank - src) % comm.size  # v: the rank when src is counted as 0
    flat = flatten(tensor)
    for level in levels(p):
        d = 1 << level
        if v < d and v + d < p:
            comm.send(flat, (comm.rank + d) % p)
        elif d <= v < 2 * d:
            comm.recv(flat, (comm.rank - d) % p)
    return write_back(tensor, flat)


def tree_reduce(comm: Communicator, tensor: Tensor, dst: int = 0, op: str = "sum") -> Tensor:
    """Reduce in place on `dst` along a binomial tree, the broadcast backwards; other ranks' tensors are left alone."""
    check_op(op, tensor.dtype)
    p, v = comm.size, (comm.rank - dst) % comm.size  # v: the rank when dst is counted as 0
    total = flatten(tensor).clone()
    for level in reversed(levels(p)):
        d = 1 << level
        if v < d and v + d < p:
            partial = scratch_like(total)
            comm.recv(partial, (comm.rank + d) % p)
            combine(op, total, partial, comm.rank, out=total)
        elif d <= v < 2 * d:
            comm.send(total, (comm.rank - d) % p)
    return write_back(tensor, divide(op, total, p)) if v == 0 else tensor


def central_all_reduce(comm: Communicator, tensor: Tensor, op: str = "sum", root: int = 0) -> Tensor:
    """All-reduce in place through one rank, which receives from everyone and sends to everyone; gives `tensor`.

    The root moves 2(p-1)n elements through its one link: the hot spot that rings and trees avoid.
    """
    check_op(op, tensor.dtype)
    flat, others = flatten(tensor), [rank for rank in range(comm.size) if rank != root]
    if comm.rank != root:
        comm.send(flat, root)
        comm.recv(flat, root)
        return write_back(tensor, flat)
    partial = scratch_like(flat)
    for rank in others:
        comm.recv(partial, rank)
        combine(op, flat, partial, root, out=flat)
    divide(op, flat, comm.size)
    for rank in others:
        comm.send(flat, rank)
    return write_back(tensor, flat)
