"""04.3 `ring_all_gather`: everyone ends with all chunks.

Floor 4, room `exercises`; solutions are in `all_gather_right.py` and `all_gather_mistakes.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import all_of, same_value
from lockstep.exercises.lab04.all_gather_mistakes import MISTAKES
from lockstep.exercises.lab04.all_gather_right import (
    into_one_tensor,
    passing_on_to_the_left,
    ring_all_gather,
    ring_all_gather_stub,
)
from lockstep.exercises.lab04.steps import at_most, numbers, on_network, one_neighbour, side_by_side
from lockstep.exercises.observe import Simulate


def all_gather_cases(rng: np.random.Generator) -> Iterator[Case]:
    for sizes in ([3], [2, 2], [2, 2, 2], [0, 0, 0], [3, 2, 2], [1, 1, 1, 0]):
        yield _case(sizes, [numbers(rng, n) for n in sizes], "sizes")
    sizes = [int(n) for n in rng.permutation(6)]
    yield _case(sizes, [numbers(rng, n, torch.float64) for n in sizes], "float64, sizes")


def _case(sizes: list[int], chunks: list[torch.Tensor], name: str) -> Case:
    return on_network(len(sizes), sizes, each=[(chunk,) for chunk in chunks], name=f"{name} {sizes}")


def _foreign_bytes(case: Case, rank: int) -> int:
    """Bytes of all chunks but the rank's own: what it cannot do without receiving."""
    return sum(own[0].nbytes for own in case.each) - case.each[rank][0].nbytes


ALL_GATHER = Exercise(
    id="04.3",
    title="Ring all-gather",
    function="ring_all_gather",
    points=2,
    asks=(
        "Rank r hands in a 1-D `chunk` of `sizes[r]` numbers. Every rank returns all chunks joined in the order of the "
        "ranks. Each rank sends to one neighbour only, one chunk at each of `comm.size - 1` steps."
    ),
    reference=ring_all_gather,
    also_right=(into_one_tensor, passing_on_to_the_left),
    stub=ring_all_gather_stub,
    cases=all_gather_cases,
    observe=Simulate(),
    judge=all_of(
        same_value(),
        at_most("bytes_received", _foreign_bytes),
        one_neighbour,
        at_most("messages_sent", lambda case, r: case.ranks - 1),
        side_by_side,
    ),
    forbidden=("comm.all_gather", "comm.gather", "comm.broadcast", "comm.all_reduce"),
    core=False,
    hints=(
        (
            "This is the reduce-scatter without adding: what came in at one step goes out at the next. Which chunk can "
            "a rank send at the first step?"
        ),
        (
            "At the first step rank r sends chunk r and gets the left neighbour's, chunk r - 1. At the second step it "
            "sends that one. Receive each chunk into its own place."
        ),
        "At step s (from 0) chunk r - s goes to the right, and chunk r - s - 1 comes from the left, both modulo p.",
    ),
    mistakes=MISTAKES,
)
