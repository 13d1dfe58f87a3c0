"""04.2 `ring_reduce_scatter`: every rank ends with the sum of its own chunk.

Floor 4, room `exercises`; solutions are in `reduce_scatter_right.py` and `reduce_scatter_mistakes.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import all_of, same_value
from lockstep.exercises.lab04.reduce_scatter_mistakes import MISTAKES
from lockstep.exercises.lab04.reduce_scatter_right import (
    ring_reduce_scatter,
    ring_reduce_scatter_stub,
    the_other_way_round,
    with_a_travelling_sum,
)
from lockstep.exercises.lab04.steps import (
    at_most,
    chunk_size,
    counted,
    numbers,
    on_network,
    one_neighbour,
    side_by_side,
)
from lockstep.exercises.observe import Simulate


def reduce_scatter_cases(rng: np.random.Generator) -> Iterator[Case]:
    for ranks, n in ((1, 3), (2, 4), (3, 6), (3, 0), (3, 7), (4, 3)):
        yield on_network(ranks, each=[(numbers(rng, n),) for _ in range(ranks)], name=counted(n))
    n = int(rng.integers(13, 18))
    each = [(numbers(rng, n, torch.float64),) for _ in range(6)]
    yield on_network(6, each=each, name=f"{counted(n)} of float64")


REDUCE_SCATTER = Exercise(
    id="04.2",
    title="Ring reduce-scatter",
    function="ring_reduce_scatter",
    points=3,
    asks=(
        "Every rank hands in a 1-D tensor of the same length. Rank r returns chunk r of the sum over all ranks, chunks "
        "as `tensor.tensor_split(comm.size)` makes them. Each rank sends to one neighbour only, all of them the same way "
        "round, one chunk at each of `comm.size - 1` steps."
    ),
    reference=ring_reduce_scatter,
    also_right=(with_a_travelling_sum, the_other_way_round),
    stub=ring_reduce_scatter_stub,
    cases=reduce_scatter_cases,
    observe=Simulate(),
    judge=all_of(
        same_value(),
        at_most(
            "bytes_sent", lambda case, r: (case.each[0][0].numel() - chunk_size(case, r)) * case.each[0][0].itemsize
        ),
        one_neighbour,
        at_most("messages_sent", lambda case, r: case.ranks - 1),
        side_by_side,
    ),
    forbidden=("comm.all_reduce", "comm.reduce_scatter", "comm.all_to_all", "comm.reduce"),
    hints=(
        (
            "Follow one chunk. Rank r has to end with chunk r, so at the last step chunk r comes in. Where is it one "
            "step earlier, and at which rank does its journey begin?"
        ),
        (
            "With four ranks rank 0 passes on chunks 3, 2, 1, in this order: at every step the one that it has just "
            "added to. What does rank 1 pass on? Write the chunk's number with `comm.rank` and the step."
        ),
        (
            "At step s (from 0) rank r sends chunk r - s - 1, counted modulo p, to the right. What comes from the left "
            "belongs to the chunk one below that. Receive it into a tensor of its own and add."
        ),
        (
            "`outgoing, incoming = chunks[(r - s - 1) % p], chunks[(r - s - 2) % p]`, then "
            "`arrived = torch.empty_like(incoming)`, one exchange, and `incoming += arrived`."
        ),
    ),
    mistakes=MISTAKES,
)
