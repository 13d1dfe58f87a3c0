"""04.4 `ring_all_reduce`: the sum over all ranks, in place, for a tensor of any length.

Floor 4, room `exercises`; solutions are in `all_reduce_right.py` and `all_reduce_mistakes.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import all_of
from lockstep.exercises.lab04.all_reduce_mistakes import MISTAKES
from lockstep.exercises.lab04.all_reduce_right import (
    from_the_two_exercises_before,
    in_two_halves,
    padded_and_to_the_left,
    ring_all_reduce,
    ring_all_reduce_stub,
)
from lockstep.exercises.lab04.steps import (
    at_most,
    counted,
    numbers,
    on_network,
    one_neighbour,
    same_in_place,
    side_by_side,
)
from lockstep.exercises.observe import Simulate


def all_reduce_cases(rng: np.random.Generator) -> Iterator[Case]:
    for ranks, n in ((1, 3), (2, 4), (3, 6), (3, 0), (3, 7), (4, 2)):
        yield on_network(ranks, each=[(numbers(rng, n),) for _ in range(ranks)], name=counted(n))
    n = int(rng.integers(25, 32))
    each = [(numbers(rng, n, torch.float64),) for _ in range(8)]
    yield on_network(8, each=each, name=f"{counted(n)} of float64")


def _ring_bytes(case: Case, rank: int) -> int:
    """2(p - 1) of the longest chunks, which allows padding and any numbering of the chunks."""
    tensor, p = case.each[0][0], case.ranks
    return 2 * (p - 1) * -(-tensor.numel() // p) * tensor.itemsize


ALL_REDUCE = Exercise(
    id="04.4",
    title="Ring all-reduce",
    function="ring_all_reduce",
    points=3,
    asks=(
        "Every rank hands in a 1-D tensor of the same length, which may be any: not divisible by the number of ranks, "
        "shorter than that, or 0. Leave the sum over all ranks in it, in place. Each rank sends to one neighbour only, "
        "`2 * (comm.size - 1)` chunks."
    ),
    reference=ring_all_reduce,
    also_right=(in_two_halves, padded_and_to_the_left, from_the_two_exercises_before),
    stub=ring_all_reduce_stub,
    cases=all_reduce_cases,
    observe=Simulate(),
    judge=all_of(
        same_in_place(0, "tensor"),
        at_most("bytes_sent", _ring_bytes),
        one_neighbour,
        at_most("messages_sent", lambda case, r: 2 * (case.ranks - 1)),
        side_by_side,
    ),
    forbidden=("comm.all_reduce", "comm.reduce_scatter", "comm.all_gather", "comm.reduce", "comm.broadcast"),
    hints=(
        (
            "You have both halves: after a reduce-scatter each rank holds one finished chunk, and an all-gather gives "
            "it to everyone. What does the second one need to know of the lengths?"
        ),
        (
            "Call your two functions one after the other. The lengths of the chunks are those that `tensor_split` "
            "makes. At the end the joined tensor has to get into the one that was handed in."
        ),
        (
            "`tensor = joined` only gives a new name to the result; `tensor.copy_(joined)` writes it into the memory "
            "that the caller sees."
        ),
        (
            "`chunk = reduce_scatter(comm, tensor)`, then `sizes = [len(c) for c in tensor.tensor_split(comm.size)]`, "
            "then `tensor.copy_(all_gather(comm, chunk, sizes))`."
        ),
    ),
    mistakes=MISTAKES,
)
