"""04.2 `ring_reduce_scatter`: wrong solutions that students write; their sentences are in `reduce_scatter_mistakes.py`.

Floor 4, room `exercises`.
"""

from __future__ import annotations

import torch


def ring(comm, tensor, leaves, add=torch.Tensor.add_, steps=None, split=None, back=0):
    """The loop of the mistakes: at step s the chunk with index `leaves(s)` goes right, the one before it comes in."""
    r, p = comm.rank, comm.size
    chunks = (split or torch.tensor_split)(tensor.clone(), p)
    for s in range(p - 1 if steps is None else steps(p)):
        incoming = chunks[(leaves(r, s) - 1) % p]
        arrived = torch.empty_like(incoming)
        comm.exchange([(chunks[leaves(r, s) % p], (r + 1) % p)], [(arrived, (r - 1) % p)])
        add(incoming, arrived)
    return chunks[(r + back) % p]


def starts_with_its_own_chunk(comm, tensor):
    return ring(comm, tensor, lambda r, s: r - s, back=1)


def returns_the_wrong_chunk(comm, tensor):
    return ring(comm, tensor, lambda r, s: r - s)


def counts_the_chunks_up(comm, tensor):
    return ring(comm, tensor, lambda r, s: r - 1 + s)


def sends_the_same_chunk(comm, tensor):
    return ring(comm, tensor, lambda r, s: r - 1)


def sends_the_owners_chunks_to_the_right(comm, tensor):
    return own_walk(comm, tensor, lambda r, s: r + s + 1, lambda r, s: r)


def own_walk(comm, tensor, leaves, comes, back=0):
    """As `ring`, but what comes in is added to the chunk with index `comes(r, s)`."""
    r, p = comm.rank, comm.size
    chunks = tensor.clone().tensor_split(p)
    for s in range(p - 1):
        incoming = chunks[comes(r, s) % p]
        arrived = torch.empty_like(incoming)
        comm.exchange([(chunks[leaves(r, s) % p], (r + 1) % p)], [(arrived, (r - 1) % p)])
        incoming += arrived
    return chunks[(r + back) % p]


def overwrites(comm, tensor):
    return ring(comm, tensor, lambda r, s: r - s - 1, add=torch.Tensor.copy_)


def one_step_too_many(comm, tensor):
    return ring(comm, tensor, lambda r, s: r - s - 1, steps=lambda p: p)


def halves_at_every_step(comm, tensor):
    return ring(comm, tensor, lambda r, s: r - s - 1, add=lambda own, came: own.add_(came).div_(2))


def divides_by_the_ranks(comm, tensor):
    return ring(comm, tensor, lambda r, s: r - s - 1) / comm.size


def buffer_like_its_own_chunk(comm, tensor):
    r, p = comm.rank, comm.size
    chunks = tensor.clone().tensor_split(p)
    arrived = torch.empty_like(chunks[r])
    for s in range(p - 1):
        comm.exchange([(chunks[(r - s - 1) % p], (r + 1) % p)], [(arrived, (r - 1) % p)])
        chunks[(r - s - 2) % p].add_(arrived)
    return chunks[r]


def buffer_of_the_default_dtype(comm, tensor):
    r, p = comm.rank, comm.size
    chunks = tensor.clone().tensor_split(p)
    for s in range(p - 1):
        incoming = chunks[(r - s - 2) % p]
        arrived = torch.empty(len(incoming))
        comm.exchange([(chunks[(r - s - 1) % p], (r + 1) % p)], [(arrived, (r - 1) % p)])
        incoming += arrived
    return chunks[r]


def returns_what_only_the_loop_knows(comm, tensor):
    r, p = comm.rank, comm.size
    chunks = tensor.clone().tensor_split(p)
    for s in range(p - 1):
        incoming = chunks[(r - s - 2) % p]
        arrived = torch.empty_like(incoming)
        comm.exchange([(chunks[(r - s - 1) % p], (r + 1) % p)], [(arrived, (r - 1) % p)])
        incoming += arrived
    return incoming


def returns_all_chunks(comm, tensor):
    r, p = comm.rank, comm.size
    chunks = list(tensor.clone().tensor_split(p))
    for s in range(p - 1):
        incoming = chunks[(r - s - 2) % p]
        arrived = torch.empty_like(incoming)
        comm.exchange([(chunks[(r - s - 1) % p], (r + 1) % p)], [(arrived, (r - 1) % p)])
        incoming += arrived
    return chunks


def drops_the_rest(comm, tensor):
    return ring(comm, tensor, lambda r, s: r - s - 1, split=lambda t, p: t[: t.numel() // p * p].tensor_split(p))


def splits_by_torch_chunk(comm, tensor):
    return ring(comm, tensor, lambda r, s: r - s - 1, split=lambda t, p: t.chunk(p))


def receives_from_the_right(comm, tensor):
    r, p = comm.rank, comm.size
    chunks, right = tensor.clone().tensor_split(p), (r + 1) % p
    for s in range(p - 1):
        incoming = chunks[(r - s - 2) % p]
        arrived = torch.empty_like(incoming)
        comm.exchange([(chunks[(r - s - 1) % p], right)], [(arrived, right)])
        incoming += arrived
    return chunks[r]


def sends_everything_each_step(comm, tensor):
    r, p = comm.rank, comm.size
    total, travelling = tensor.clone(), tensor.clone()
    for _ in range(p - 1):
        arrived = torch.empty_like(tensor)
        comm.exchange([(travelling, (r + 1) % p)], [(arrived, (r - 1) % p)])
        total += arrived
        travelling = arrived
    return total.tensor_split(p)[r]


def receives_into_the_buffer_it_sends(comm, tensor):
    r, p = comm.rank, comm.size
    chunks = tensor.tensor_split(p)
    buffer = chunks[(r - 1) % p].clone()
    for s in range(p - 1):
        sending = comm.isend(buffer, (r + 1) % p)
        buffer = buffer.resize_(chunks[(r - s - 2) % p].shape)
        comm.recv(buffer, (r - 1) % p)
        sending.wait()
        buffer += chunks[(r - s - 2) % p]
    return buffer


def all_send_first(comm, tensor):
    r, p = comm.rank, comm.size
    chunks = tensor.clone().tensor_split(p)
    for s in range(p - 1):
        arrived = torch.empty_like(chunks[(r - s - 2) % p])
        comm.send(chunks[(r - s - 1) % p], (r + 1) % p)
        comm.recv(arrived, (r - 1) % p)
        chunks[(r - s - 2) % p].add_(arrived)
    return chunks[r]


def through_rank_0(comm, tensor):
    chunks, arrived = tensor.clone().tensor_split(comm.size), torch.empty_like(tensor)
    if comm.rank == 0:
        total = tensor.clone()
        for other in range(1, comm.size):
            comm.recv(arrived, other)
            total += arrived
        for other in range(1, comm.size):
            comm.send(total.tensor_split(comm.size)[other], other)
        return total.tensor_split(comm.size)[0]
    comm.send(tensor, 0)
    comm.recv(chunks[comm.rank], 0)
    return chunks[comm.rank]


def straight_to_the_owner(comm, tensor):
    chunks = tensor.clone().tensor_split(comm.size)
    for d in range(1, comm.size):
        arrived = torch.empty_like(chunks[comm.rank])
        to, source = (comm.rank + d) % comm.size, (comm.rank - d) % comm.size
        comm.exchange([(chunks[to], to)], [(arrived, source)])
        chunks[comm.rank].add_(arrived)
    return chunks[comm.rank]


def one_rank_after_the_other(comm, tensor):
    r, p = comm.rank, comm.size
    chunks = tensor.clone().tensor_split(p)
    for s in range(p - 1):
        outgoing, incoming = chunks[(r - s - 1) % p], chunks[(r - s - 2) % p]
        arrived = torch.empty_like(incoming)
        if r == 0:
            comm.send(outgoing, (r + 1) % p)
        comm.recv(arrived, (r - 1) % p)
        if r > 0:
            comm.send(outgoing, (r + 1) % p)
        incoming += arrived
    return chunks[r]
