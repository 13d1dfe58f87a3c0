"""Collectives without forwarding: each block goes straight from the rank that has it to the rank that needs it.

Floor 1, room `comm`. Legend in `lockstep.comm.collectives`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lockstep.comm.collectives.layout import flatten, levels, sizes_or_equal, write_back
from lockstep.comm.errors import CommunicationError

if TYPE_CHECKING:
    from lockstep.comm.communicator import Communicator


def pairwise_all_to_all(
    comm: Communicator,
    tensor: Tensor,
    send_sizes: Sequence[int] | None = None,
    recv_sizes: Sequence[int] | None = None,
) -> Tensor:
    """Give the rows that every rank has for this one, joined along dimension 0 in rank order.

    `send_sizes[j]` rows go to rank j and `recv_sizes[j]` come from it; by default the rows split evenly.
    p-1 messages a rank: at step s to r+s and from r-s (Thakur, Rabenseifner and Gropp 2005).
    """
    r, p = comm.rank, comm.size
    own = tensor.detach().contiguous()
    give_rows, take_rows = rows_to_swap(own, p, r, send_sizes, recv_sizes)
    joined = own.new_empty((sum(take_rows), *own.shape[1:]))
    give, take = own.split(give_rows), joined.split(take_rows)
    take[r].copy_(give[r])
    for s in range(1, p):
        to, source = (r + s) % p, (r - s) % p
        comm.exchange([(give[to], to)], [(take[source], source)])
    return joined


def rows_to_swap(
    own: Tensor, p: int, r: int, send_sizes: Sequence[int] | None, recv_sizes: Sequence[int] | None
) -> tuple[list[int], list[int]]:
    """Rows that rank r gives to each rank and takes from each, in an all_to_all of `own`."""
    if own.dim() == 0:
        raise CommunicationError(
            "all_to_all splits rows, and a tensor without dimensions has none: give it one a rank."
        )
    if (send_sizes is None) != (recv_sizes is None):
        raise CommunicationError("all_to_all needs both send_sizes and recv_sizes, or neither.")
    if send_sizes is None and own.shape[0] % p:
        raise CommunicationError(
            f"all_to_all of {own.shape[0]} rows over {p} ranks does not split evenly: give send_sizes and recv_sizes."
        )
    give = sizes_or_equal(send_sizes, own.shape[0], p, "send_sizes")
    take = give if recv_sizes is None else sizes_or_equal(recv_sizes, sum(recv_sizes), p, "recv_sizes")
    if give[r] != take[r]:
        raise CommunicationError(
            f"Rank {r} keeps {give[r]} rows by send_sizes[{r}] and {take[r]} by recv_sizes[{r}]: they are the same rows."
        )
    return give, take


def direct_gather(
    comm: Communicator, tensor: Tensor, dst: int = 0, sizes: Sequence[int] | None = None
) -> list[Tensor] | None:
    """Give rank `dst` the tensors of all ranks as a list, the others None; `sizes` are the rows of each."""
    own = tensor.detach().contiguous()
    if sizes is not None and (own.dim() == 0 or len(sizes) != comm.size or sizes[comm.rank] != own.shape[0]):
        raise CommunicationError(
            f"sizes is {list(sizes)}: it needs {comm.size} row counts, and rank {comm.rank} gives {list(own.shape)}."
        )
    if comm.rank != dst:
        comm.send(own, dst)
        return None
    shapes = [own.shape if sizes is None else (sizes[rank], *own.shape[1:]) for rank in range(comm.size)]
    gathered = [own.clone() if rank == dst else own.new_empty(shapes[rank]) for rank in range(comm.size)]
    comm.exchange([], [(gathered[rank], rank) for rank in range(comm.size) if rank != dst])
    return gathered


def direct_scatter(comm: Communicator, tensor: Tensor, tensors: Sequence[Tensor] | None = None, src: int = 0) -> Tensor:
    """Fill `tensor` in place on rank r with `tensors[r]` of rank `src`; gives `tensor`."""
    if comm.rank != src:
        flat = flatten(tensor)
        comm.recv(flat.view(tensor.shape), src)
        return write_back(tensor, flat)
    if tensors is None or len(tensors) != comm.size:
        given = "None" if tensors is None else f"{len(tensors)} tensors"
        raise CommunicationError(
            f"scatter from rank {src} needs one tensor a rank, {comm.size} in all; it got {given}."
        )
    if tensors[src].shape != tensor.shape or tensors[src].dtype != tensor.dtype:
        raise CommunicationError(
            f"scatter: tensors[{src}] is {tensors[src].dtype} {list(tensors[src].shape)}, "
            f"but rank {src} receives into {tensor.dtype} {list(tensor.shape)}."
        )
    comm.exchange([(tensors[rank], rank) for rank in range(comm.size) if rank != src], [])
    tensor.detach().copy_(tensors[src].detach())
    return tensor


def dissemination_barrier(comm: Communicator) -> None:
    """Return when every rank has arrived: ceil(lg p) empty messages a rank (Hensgen, Finkel and Manber 1988)."""
    r, p = comm.rank, comm.size
    for level in levels(p):
        d = 1 << level
        token, heard = (torch.empty(0, dtype=torch.uint8, device=comm.device) for _ in range(2))
        comm.exchange([(token, (r + d) % p)], [(heard, (r - d) % p)])
