"""04.4 `ring_all_reduce`: wrong solutions that students write; their sentences are in `all_reduce_mistakes.py`.

Floor 4, room `exercises`.
"""

from __future__ import annotations

import torch


def halves(
    comm, tensor, gather_from=0, start=-1, add=torch.Tensor.add_, keep=torch.Tensor.copy_, split=torch.tensor_split
):
    """Both loops, for the mistakes: which chunk the all-gather starts from, what is done with what arrives."""
    r, p = comm.rank, comm.size
    chunks = split(tensor, p)

    def turn(first, take):
        for s in range(p - 1):
            incoming = chunks[(first - s - 1) % p]
            arrived = torch.empty_like(incoming)
            comm.exchange([(chunks[(first - s) % p], (r + 1) % p)], [(arrived, (r - 1) % p)])
            take(incoming, arrived)

    turn(r + start, add)
    turn(r + start + 1 + gather_from, keep)


def not_in_place(comm, tensor):
    total = tensor.clone()
    halves(comm, total)
    return total


def gathers_from_the_wrong_chunk(comm, tensor):
    halves(comm, tensor, gather_from=1)


def adds_in_both_halves(comm, tensor):
    halves(comm, tensor, keep=torch.Tensor.add_)


def keeps_new_tensors_in_a_list(comm, tensor, start=-1):
    r, p = comm.rank, comm.size
    chunks = list(tensor.tensor_split(p))
    for s in range(p - 1):
        index = (r + start - s - 1) % p
        arrived = torch.empty_like(chunks[index])
        comm.exchange([(chunks[(r + start - s) % p], (r + 1) % p)], [(arrived, (r - 1) % p)])
        chunks[index] = chunks[index] + arrived
    for s in range(start + 1, start + p):
        comm.exchange([(chunks[(r - s) % p], (r + 1) % p)], [(chunks[(r - s - 1) % p], (r - 1) % p)])


def stops_half_way(comm, tensor):
    r, p = comm.rank, comm.size
    chunks = tensor.tensor_split(p)
    for s in range(p - 1):
        incoming = chunks[(r - s - 2) % p]
        arrived = torch.empty_like(incoming)
        comm.exchange([(chunks[(r - s - 1) % p], (r + 1) % p)], [(arrived, (r - 1) % p)])
        incoming += arrived


def gives_the_result_a_name_only(comm, tensor):
    from lockstep.exercises.lab04.all_gather_right import ring_all_gather

    sizes = [len(chunk) for chunk in tensor.tensor_split(comm.size)]
    stops_half_way(comm, tensor)
    tensor = ring_all_gather(comm, tensor.tensor_split(comm.size)[comm.rank], sizes)


def takes_all_chunks_for_equal(comm, tensor):
    from lockstep.exercises.lab04.all_gather_right import ring_all_gather
    from lockstep.exercises.lab04.reduce_scatter_right import ring_reduce_scatter

    chunk = ring_reduce_scatter(comm, tensor)
    tensor.copy_(ring_all_gather(comm, chunk, [len(chunk)] * comm.size))


def buffers_of_the_default_dtype(comm, tensor):
    r, p = comm.rank, comm.size
    chunks = tensor.tensor_split(p)
    for s in range(2 * (p - 1)):
        incoming = chunks[(r - s - 2) % p]
        arrived = torch.empty(len(incoming))
        comm.exchange([(chunks[(r - s - 1) % p], (r + 1) % p)], [(arrived, (r - 1) % p)])
        incoming.copy_(incoming + arrived if s < p - 1 else arrived)


def as_many_steps_as_ranks(comm, tensor):
    r, p = comm.rank, comm.size
    chunks = tensor.tensor_split(p)
    for s in range(2 * p):
        arrived = torch.empty_like(chunks[(r - s - 2) % p])
        comm.exchange([(chunks[(r - s - 1) % p], (r + 1) % p)], [(arrived, (r - 1) % p)])
        chunks[(r - s - 2) % p].copy_(arrived)


def averages_early(comm, tensor):
    halves(comm, tensor, add=lambda own, came: own.add_(came).div_(2))


def leaves_the_mean(comm, tensor):
    halves(comm, tensor)
    tensor /= comm.size


def needs_a_length_that_divides(comm, tensor):
    halves(comm, tensor, split=lambda t, p: t.split(t.numel() // p) if t.numel() >= p else [t] * p)


def drops_the_rest(comm, tensor):
    halves(comm, tensor, split=lambda t, p: t[: t.numel() // p * p].tensor_split(p))


def views_as_equal_rows(comm, tensor):
    halves(
        comm,
        tensor,
        split=lambda t, p: t.view(p, -1) if t.numel() % p == 0 and t.numel() else t.view(p, t.numel() // p),
    )


def sends_whole_tensors(comm, tensor):
    r, p = comm.rank, comm.size
    travelling = tensor.clone()
    for _ in range(p - 1):
        arrived = torch.empty_like(tensor)
        comm.exchange([(travelling, (r + 1) % p)], [(arrived, (r - 1) % p)])
        tensor += arrived
        travelling = arrived


def through_rank_0(comm, tensor):
    if comm.rank > 0:
        comm.send(tensor, 0)
        comm.recv(tensor, 0)
        return
    arrived = torch.empty_like(tensor)
    for other in range(1, comm.size):
        comm.recv(arrived, other)
        tensor += arrived
    for other in range(1, comm.size):
        comm.send(tensor, other)


def leaves_when_its_chunk_is_empty(comm, tensor):
    if not tensor.tensor_split(comm.size)[comm.rank].numel():
        return
    halves(comm, tensor)


def only_rank_0_gathers(comm, tensor):
    r, p = comm.rank, comm.size
    stops_half_way(comm, tensor)
    chunks = tensor.tensor_split(p)
    if r == 0:
        for s in range(p - 1):
            comm.exchange([(chunks[(r - s) % p], (r + 1) % p)], [(chunks[(r - s - 1) % p], (r - 1) % p)])


def assumes_a_power_of_two(comm, tensor):
    distance = 1
    while distance < comm.size:
        arrived, partner = torch.empty_like(tensor), comm.rank ^ distance
        comm.exchange([(tensor, partner)], [(arrived, partner)])
        tensor += arrived
        distance *= 2


def all_send_first(comm, tensor):
    r, p = comm.rank, comm.size
    chunks = tensor.tensor_split(p)
    for s in range(2 * (p - 1)):
        arrived = torch.empty_like(chunks[(r - s - 2) % p])
        comm.send(chunks[(r - s - 1) % p], (r + 1) % p)
        comm.recv(arrived, (r - 1) % p)
        chunks[(r - s - 2) % p].copy_(arrived)
