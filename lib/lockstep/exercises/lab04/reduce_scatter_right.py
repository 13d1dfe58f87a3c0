"""04.2 `ring_reduce_scatter`: right ways, and the skeleton.

Floor 4, room `exercises`; the exercise is in `reduce_scatter.py`.
"""

from __future__ import annotations

import torch


def ring_reduce_scatter(comm, tensor):
    r, p = comm.rank, comm.size
    chunks = tensor.clone().tensor_split(p)
    for s in range(p - 1):
        outgoing, incoming = chunks[(r - s - 1) % p], chunks[(r - s - 2) % p]
        arrived = torch.empty_like(incoming)
        comm.exchange([(outgoing, (r + 1) % p)], [(arrived, (r - 1) % p)])
        incoming += arrived
    return chunks[r]


def with_a_travelling_sum(comm, tensor):
    """The partial sum is one tensor that moves; chunks stay as they are."""
    p = comm.size
    chunks = list(torch.tensor_split(tensor, p))
    travelling = chunks[comm.rank - 1].clone()
    for index in range(comm.rank - 2, comm.rank - 1 - p, -1):
        handle = comm.isend(travelling, (comm.rank + 1) % p)
        arrived = torch.zeros_like(chunks[index])
        comm.recv(arrived, (comm.rank - 1) % p)
        handle.wait()
        travelling = arrived + chunks[index]
    return travelling


def the_other_way_round(comm, tensor):
    """To the left, in place, skipping empty chunks."""
    size, rank = comm.size, comm.rank
    n = tensor.numel()
    bounds = [0]
    for c in range(size):
        bounds.append(bounds[-1] + n // size + (1 if c < n % size else 0))
    part = {c: tensor[bounds[c] : bounds[c + 1]] for c in range(size)}
    for step in range(1, size):
        leaves, comes = part[(rank + step) % size], part[(rank + step + 1) % size]
        handles, inbox = [], torch.empty(comes.shape, dtype=tensor.dtype)
        if comes.numel():
            handles.append(comm.irecv(inbox, (rank + 1) % size))
        if leaves.numel():
            handles.append(comm.isend(leaves, (rank - 1) % size))
        for handle in handles:
            handle.wait()
        if comes.numel():
            comes.add_(inbox)
    return part[rank].clone()


def ring_reduce_scatter_stub(comm, tensor):
    right = (comm.rank + 1) % comm.size  # noqa: F841 - the skeleton, as students get it
    left = (comm.rank - 1) % comm.size  # noqa: F841
    chunks = ...  # noqa: F841
    raise NotImplementedError("p - 1 steps: a chunk leaves to the right, one comes from the left and is added")
