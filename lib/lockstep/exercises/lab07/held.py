"""07.4 `in_flight`: the most activations that each rank holds at a time.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

import numpy as np
import torch

from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import same_value
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab07.held_mistakes import MISTAKES
from lockstep.exercises.observe import Call
from lockstep.parallel import pipeline
from lockstep.parallel.pipeline import Action


def in_flight(actions):
    peaks = []
    for row in actions:
        held = most = 0
        for action in row:
            if action.kind == "F":
                held += 1
            elif action.kind in "BW":
                held -= 1
            most = max(most, held)
        peaks.append(most)
    return peaks


def by_running_sums(actions):
    change = {"F": 1, "B": -1, "I": 0, "W": -1}
    return [max(accumulate(change[action.kind] for action in row)) for row in actions]


def by_sets(actions):
    def most_of(row):
        held, sizes = set(), []
        for action in row:
            key = action.chunk, action.micro_batch
            if action.kind == "F":
                held.add(key)
            if action.kind in ("B", "W"):
                held.remove(key)
            sizes.append(len(held))
        return max(sizes)

    return tuple(map(most_of, actions))


def in_flight_stub(actions):
    raise NotImplementedError("for each rank, the most that it holds at a time")


def any_schedule(rng: np.random.Generator) -> Iterator[Case]:
    """With whole and with split backward, with both on one rank, with one chunk a rank and with several.

    The first tells mistakes apart: with one micro-batch at a time many of them count alike.
    """
    m = int(rng.integers(5, 8))
    yield _case(pipeline.one_f_one_b(3, 4))
    yield _case(pipeline.naive(2, 2))
    yield _slow("whole backward", "F0 B0 F1 F2 B1 F3 B2 B3")
    yield _slow("split backward", "F0 F1 I0 W0 F2 F3 F4 I1 F5 F6 W1 I2 W2 I3 W3 I4 W4 I5 W5 I6 W6")
    yield _slow("whole and split backward", "F0 B0 F1 F2 I1 W1 F3 B2 I3 W3")
    for schedule in (
        pipeline.gpipe(2, 3),
        pipeline.one_f_one_b(4, m),
        pipeline.zero_bubble(3, 4),
        pipeline.zero_bubble(4, m),
        pipeline.interleaved(3, 6, 2),
        pipeline.zbv(3, m),
    ):
        yield _case(schedule)


def _slow(name: str, order: str) -> Case:
    """Rank 0 in this order, which is not the best, rank 1 with each forward and backward in turn."""
    first = [Action(a[0], 0, int(a[1])) for a in order.split()]
    micro_batches = 1 + max(action.micro_batch for action in first)
    last = [Action(kind, 1, i) for i in range(micro_batches) for kind in "FB"]
    return Case(f"one that begins slowly, {name}, 2 ranks, {micro_batches} micro-batches", ([first, last],))


def _case(schedule: pipeline.Schedule) -> Case:
    name = f"{schedule.name}, {schedule.ranks} ranks, {schedule.micro_batches} micro-batches"
    return Case(name, ([list(row) for row in schedule.actions],))


def in_a_list(fn: Callable[..., Any], actions: Any) -> Any:
    """What `fn` gives; an array of numbers is as good as a list of them."""
    found = fn(actions)
    return found.tolist() if isinstance(found, (np.ndarray, torch.Tensor)) else found


JUDGE = same_value()

IN_FLIGHT = Exercise(
    id="07.4",
    title="What is in flight",
    function="in_flight",
    asks=(
        "Return, for each rank, the most micro-batches that it holds at a time, counted for each chunk. F of a "
        "micro-batch on a chunk makes one more; it stays until its gradients are all done: until B, or until W where "
        "backward is split into I and W."
    ),
    reference=in_flight,
    also_right=(by_running_sums, by_sets),
    stub=in_flight_stub,
    cases=any_schedule,
    observe=Call(in_a_list),
    judge=JUDGE,
    forbidden=(
        "lockstep.parallel.pipeline.prove",
        "lockstep.parallel.pipeline.Schedule.prove",
        "lockstep.parallel.pipeline.simulate",
        "lockstep.parallel.pipeline.Schedule.simulate",
    ),
    hints=(
        "You need no times: the order of a rank's own list says what it holds. Go through it with a counter.",
        "Which kinds of action make the counter larger, which smaller, and which leave it as it is? Keep the largest "
        "value that it has had.",
        "F adds one. B takes one away. Of a split backward only W does: the weight gradient needs what the layer was fed.",
    ),
    mistakes=by_first_failure(Call(in_a_list), JUDGE, MISTAKES),
)
