"""Wrong solutions of exercise 10.3.

Floor 4, room `exercises`; what each of them is told is in `top_k_mistakes.py`.
"""

from __future__ import annotations

import torch


def gathered(
    comm, g, k, *, places=lambda g, k: g.abs().topk(k).indices, value=lambda g, places: g[places],
    put=lambda mean, places, values: mean.index_add_(0, places, values), divide=lambda mean, places, p: mean / p,
    count=lambda p, k: (p - 1) * k * 8,
):  # fmt: skip
    """The right function, in which one thing can be another."""
    mine = places(g, k)
    values, everyones = comm.all_gather(value(g, mine)), comm.all_gather(mine.int())
    mean = torch.zeros_like(g)
    put(mean, everyones, values)
    return divide(mean, everyones, comm.size), count(comm.size, k)


def counts_values_alone(comm, g, k):
    return gathered(comm, g, k, count=lambda p, k: (p - 1) * k * 4)


def counts_its_own_payload(comm, g, k):
    return gathered(comm, g, k, count=lambda p, k: k * 8)


def counts_one_too_many(comm, g, k):
    return gathered(comm, g, k, count=lambda p, k: p * k * 8)


def counts_like_an_all_reduce(comm, g, k):
    return gathered(comm, g, k, count=lambda p, k: 2 * (p - 1) * k * 8 // p)


def counts_all_ranks(comm, g, k):
    return gathered(comm, g, k, count=lambda p, k: p * (p - 1) * k * 8)


def counts_numbers(comm, g, k):
    return gathered(comm, g, k, count=lambda p, k: (p - 1) * k * 2)


def wide_indices_counted_as_narrow(comm, g, k):
    mine = g.abs().topk(k).indices
    values, places = comm.all_gather(g[mine]), comm.all_gather(mine)
    return torch.zeros_like(g).index_add_(0, places, values / comm.size), (comm.size - 1) * k * 8


def largest_with_sign(comm, g, k):
    return gathered(comm, g, k, places=lambda g, k: g.topk(k).indices)


def smallest(comm, g, k):
    return gathered(comm, g, k, places=lambda g, k: g.abs().argsort()[:k])


def loses_signs(comm, g, k):
    return gathered(comm, g, k, value=lambda g, places: g.abs()[places])


def overwrites(comm, g, k):
    return gathered(comm, g, k, put=lambda mean, places, values: mean.index_copy_(0, places.long(), values))


def sums(comm, g, k):
    return gathered(comm, g, k, divide=lambda mean, places, p: mean)


def divides_by_who_sent(comm, g, k):
    def divide(mean, places, p):
        return mean / torch.zeros_like(mean).index_add_(0, places, torch.ones(len(places))).clamp(min=1)

    return gathered(comm, g, k, divide=divide)


def own_places_for_all(comm, g, k):
    places = g.abs().topk(k).indices
    values = comm.all_gather(g[places])
    mean = torch.zeros_like(g).index_add_(0, places.repeat(comm.size), values / comm.size)
    return mean, (comm.size - 1) * k * 4


def own_gradient_alone(comm, g, k):
    places = g.abs().topk(k).indices
    return torch.zeros_like(g).index_add_(0, places, g[places]), 0


def sparse_but_dense_on_the_wire(comm, g, k):
    places = g.abs().topk(k).indices
    sparse = torch.zeros_like(g).index_add_(0, places, g[places])
    before = comm.traffic.bytes_sent
    return comm.all_reduce(sparse, op="mean"), comm.traffic.bytes_sent - before


def of_the_mean(comm, g, k):
    before = comm.traffic.bytes_sent
    mean = comm.all_reduce(g.clone(), op="mean")
    places = mean.abs().topk(k).indices
    return torch.zeros_like(g).index_add_(0, places, mean[places]), comm.traffic.bytes_sent - before


def mean_alone(comm, g, k):
    return gathered(comm, g, k)[0]


def indices_of_two_bytes(comm, g, k):
    places = g.abs().topk(k).indices
    values, places = comm.all_gather(g[places]), comm.all_gather(places.short()).long()
    return torch.zeros_like(g).index_add_(0, places, values / comm.size), (comm.size - 1) * k * 6


def values_of_two_bytes(comm, g, k):
    return gathered(comm, g, k, value=lambda g, places: g[places].half().float(), count=lambda p, k: (p - 1) * k * 6)


def into_the_gradient(comm, g, k):
    mean, sent = gathered(comm, g, k)
    return g.copy_(mean), sent


def places_of_rank_0(comm, g, k):
    places = g.abs().topk(k).indices
    comm.broadcast(places, 0)
    return torch.zeros_like(g).index_copy_(0, places, comm.all_reduce(g[places], op="mean")), (comm.size - 1) * k * 8


def all_that_are_as_large(comm, g, k):
    """More than k where numbers are equal, and as many on each rank as there are anywhere."""
    places = (g.abs() >= g.abs().topk(k).values[-1]).nonzero().flatten()
    values, places = comm.all_gather(g[places]), comm.all_gather(places.int())
    return torch.zeros_like(g).index_add_(0, places, values / comm.size), (comm.size - 1) * len(places) * 8
