"""What goes wrong in exercise 10.3, and the sentence that each fault gets.

Floor 4, room `exercises`; the exercise is in `top_k.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from lockstep.exercises.exercise import Case, Mistake, Symptom
from lockstep.exercises.lab10 import top_k_wrong as wrong
from lockstep.exercises.lab10.results import is_number
from lockstep.exercises.observe import Observation


def sends_more(case: Case, seen: Observation, expected: Observation) -> bool:
    """The mean is right, and a dense gradient went round."""
    if seen.error is not None or any(not isinstance(one["mean"], torch.Tensor) for one in seen.value):
        return False
    same = all(
        one["mean"].shape == right["mean"].shape and torch.allclose(one["mean"], right["mean"], atol=1e-5)
        for one, right in zip(seen.value, expected.value, strict=True)
    )
    return same and sum(one["sent"] for one in seen.value) > sum(1.5 * right["sent"] for right in expected.value)


def lengths_differ(case: Case, seen: Observation, expected: Observation) -> bool:
    """Ranks gather tensors of several lengths where one of them has equal numbers."""
    return "equally" in case.name and seen.error is not None and "all ranks must call" in seen.error.message


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
        wrong.counts_values_alone,
        "You count the values and not their indices. Nobody can place a value without its index, so both travel: with int32 "
        "a pair takes 8 bytes.",
        symptom=counts(lambda sent, p: sent / 2),
    ),
    Mistake(
        "counts its own payload alone",
        wrong.counts_its_own_payload,
        "You count one payload. On a ring a rank passes on the others' as well: it sends `comm.size - 1` payloads, so the "
        "price grows with the ranks.",
        symptom=counts(lambda sent, p: sent / (p - 1)),
    ),
    Mistake(
        "counts a payload too many",
        wrong.counts_one_too_many,
        "You count `comm.size` payloads. The last of the ring passes nothing on: each rank sends `comm.size - 1`.",
        symptom=counts(lambda sent, p: sent * p / (p - 1)),
    ),
    Mistake(
        "counts an all-reduce",
        wrong.counts_like_an_all_reduce,
        "You count 2(N-1)/N payloads, as for a ring all-reduce. That adds numbers up on the way; payloads at different places "
        "do not add up, so N-1 of them pass through every rank.",
        symptom=counts(lambda sent, p: 2 * sent / p),
    ),
    Mistake(
        "counts the bytes of all ranks",
        wrong.counts_all_ranks,
        "You count what all ranks send together. Asked is what this rank sends.",
        symptom=counts(lambda sent, p: sent * p),
    ),
    Mistake(
        "counts numbers for bytes",
        wrong.counts_numbers,
        "You count numbers. Each of them takes 4 bytes.",
        symptom=counts(lambda sent, p: sent / 4),
    ),
    Mistake(
        "wide indices counted as narrow",
        wrong.wide_indices_counted_as_narrow,
        "You send the indices as int64, which is 8 bytes each, and count 4. `places.int()` makes them int32.",
        symptom=counts(lambda sent, p: sent * 2 / 3),
    ),
    Mistake(
        "largest instead of largest in magnitude",
        wrong.largest_with_sign,
        "You keep the largest numbers with their sign. A large negative number is as important: compare magnitudes.",
    ),
    Mistake(
        "keeps the smallest",
        wrong.smallest,
        "You keep the numbers of smallest magnitude. Sort the other way round.",
    ),
    Mistake(
        "loses the signs",
        wrong.loses_signs,
        "You send magnitudes: the signs are lost. Choose the places by `g.abs()`, then take the values from `g`.",
    ),
    Mistake(
        "overwrites what another rank sent",
        wrong.overwrites,
        "Where two ranks send the same place, one of the values is lost. `mean[places] = values` and `mean[places] += values` "
        "write each place once; `index_add_` adds up all that belongs there.",
    ),
    Mistake(
        "sum for mean",
        wrong.sums,
        "You add up what the ranks sent; asked is the mean.",
    ),
    Mistake(
        "divides by who sent",
        wrong.divides_by_who_sent,
        "You divide each place by the number of ranks that sent it. The others sent zero there, and count: divide by "
        "`comm.size`.",
    ),
    Mistake(
        "indices not sent",
        wrong.own_places_for_all,
        "You put everyone's values at your own places. Other ranks chose others, so their indices have to come along; and values "
        "of different places cannot be added up on the way.",
    ),
    Mistake(
        "own gradient alone",
        wrong.own_gradient_alone,
        "Nothing is sent: you return this rank's own sparse gradient.",
    ),
    Mistake(
        "dense on the wire",
        wrong.sparse_but_dense_on_the_wire,
        "Most of what you send is zeros: the sparse gradient is sent as a dense one, so nothing is saved. Send values and "
        "indices alone.",
        symptom=sends_more,
    ),
    Mistake(
        "chooses after the average",
        wrong.of_the_mean,
        "You average the whole gradients and choose then. That sends everything: each rank chooses from its own gradient, "
        "before anything is sent.",
    ),
    Mistake(
        "indices of two bytes",
        wrong.indices_of_two_bytes,
        "An int16 ends at 32,767, and this gradient is longer: places beyond that wrap around. int32 is enough for all gradients.",
    ),
    Mistake(
        "values of two bytes",
        wrong.values_of_two_bytes,
        "Your values have lost digits on their way: half precision. They are sent as float32.",
    ),
    Mistake(
        "writes into the gradient",
        wrong.into_the_gradient,
        "You write into `g`. Whoever adds up what was not sent still needs it: work in a new tensor.",
    ),
    Mistake(
        "the places of rank 0",
        wrong.places_of_rank_0,
        "Rank 0's places serve for all ranks. What is largest on another rank is not sent: each rank sends its own places.",
    ),
    Mistake(
        "all that are as large",
        wrong.all_that_are_as_large,
        "You send all numbers that are at least as large as the k-th. Where several are equal those are more than `k`: `topk` "
        "gives `k` places, whatever is equal.",
        symptom=lengths_differ,
    ),
    Mistake(
        "no count",
        wrong.mean_alone,
        "Return two things: the mean, and the bytes that this rank sent.",
    ),
)
