"""What goes wrong in exercise 10.3, and the sentence that each fault gets.

Floor 4, room `exercises`; the exercise is in `top_k.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from lockstep.exercises.exercise import Case, Mistake, Symptom
from lockstep.exercises.lab10.results import is_number
from lockstep.exercises.observe import Observation


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


def sends_more(case: Case, seen: Observation, expected: Observation) -> bool:
    """The mean is right, and a dense gradient went round."""
    if seen.error is not None or any(not isinstance(one["mean"], torch.Tensor) for one in seen.value):
        return False
    same = all(
        one["mean"].shape == right["mean"].shape and torch.allclose(one["mean"], right["mean"], atol=1e-5)
        for one, right in zip(seen.value, expected.value, strict=True)
    )
    return same and sum(one["sent"] for one in seen.value) > sum(1.5 * right["sent"] for right in expected.value)


def counts(of: Callable[[float, int], float]) -> Symptom:
    """Every rank sends s bytes and says that it sent of(s, p)."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        if seen.error is not None or not all(is_number(one["count"]) for one in seen.value):
            return False
        said = [(float(one["count"]), one["sent"]) for one in seen.value]
        return all(mine != sent and abs(mine - of(sent, case.ranks)) < 0.5 for mine, sent in said)

    return symptom


MISTAKES = (
    Mistake(
        "counts values but not indices",
        counts_values_alone,
        "You count the values and not their indices. Nobody can place a value without its index, so both travel: with int32 "
        "a pair takes 8 bytes.",
        symptom=counts(lambda sent, p: sent / 2),
    ),
    Mistake(
        "counts its own payload alone",
        counts_its_own_payload,
        "You count one payload. On a ring a rank passes on the others' as well: it sends `comm.size - 1` payloads, so the "
        "price grows with the ranks.",
        symptom=counts(lambda sent, p: sent / (p - 1)),
    ),
    Mistake(
        "counts a payload too many",
        counts_one_too_many,
        "You count `comm.size` payloads. The last of the ring passes nothing on: each rank sends `comm.size - 1`.",
        symptom=counts(lambda sent, p: sent * p / (p - 1)),
    ),
    Mistake(
        "counts an all-reduce",
        counts_like_an_all_reduce,
        "You count 2(N-1)/N payloads, as for a ring all-reduce. That adds numbers up on the way; payloads at different places "
        "do not add up, so N-1 of them pass through every rank.",
        symptom=counts(lambda sent, p: 2 * sent / p),
    ),
    Mistake(
        "counts the bytes of all ranks",
        counts_all_ranks,
        "You count what all ranks send together. Asked is what this rank sends.",
        symptom=counts(lambda sent, p: sent * p),
    ),
    Mistake(
        "counts numbers for bytes",
        counts_numbers,
        "You count numbers. Each of them takes 4 bytes.",
        symptom=counts(lambda sent, p: sent / 4),
    ),
    Mistake(
        "wide indices counted as narrow",
        wide_indices_counted_as_narrow,
        "You send the indices as int64, which is 8 bytes each, and count 4. `places.int()` makes them int32.",
        symptom=counts(lambda sent, p: sent * 2 / 3),
    ),
    Mistake(
        "largest instead of largest in magnitude",
        largest_with_sign,
        "You keep the largest numbers with their sign. A large negative number is as important: compare magnitudes.",
    ),
    Mistake(
        "keeps the smallest",
        smallest,
        "You keep the numbers of smallest magnitude. Sort the other way round.",
    ),
    Mistake(
        "loses the signs",
        loses_signs,
        "You send magnitudes: the signs are lost. Choose the places by `g.abs()`, then take the values from `g`.",
    ),
    Mistake(
        "overwrites what another rank sent",
        overwrites,
        "Where two ranks send the same place, one of the values is lost. `mean[places] = values` and `mean[places] += values` "
        "write each place once; `index_add_` adds up all that belongs there.",
    ),
    Mistake(
        "sum for mean",
        sums,
        "You add up what the ranks sent; asked is the mean.",
    ),
    Mistake(
        "divides by who sent",
        divides_by_who_sent,
        "You divide each place by the number of ranks that sent it. The others sent zero there, and count: divide by "
        "`comm.size`.",
    ),
    Mistake(
        "indices not sent",
        own_places_for_all,
        "You put everyone's values at your own places. Other ranks chose others, so their indices have to come along; and values "
        "of different places cannot be added up on the way.",
    ),
    Mistake(
        "own gradient alone",
        own_gradient_alone,
        "Nothing is sent: you return this rank's own sparse gradient.",
    ),
    Mistake(
        "dense on the wire",
        sparse_but_dense_on_the_wire,
        "Most of what you send is zeros: the sparse gradient is sent as a dense one, so nothing is saved. Send values and "
        "indices alone.",
        symptom=sends_more,
    ),
    Mistake(
        "chooses after the average",
        of_the_mean,
        "You average the whole gradients and choose then. That sends everything: each rank chooses from its own gradient, "
        "before anything is sent.",
    ),
    Mistake(
        "no count",
        mean_alone,
        "Return two things: the mean, and the bytes that this rank sent.",
    ),
)
