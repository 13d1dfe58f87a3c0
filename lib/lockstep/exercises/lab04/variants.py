"""The variants of lab 04: which way round the ring turns, the same for 04.2 and 04.3.

Floor 4, room `exercises`; read `variants.py` of the room first. Either way round is right in the lab itself; a variant
asks for one of them. `leftward.py` holds the answers and mistakes of the ring that turns to the left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.judge import Finding, Judge, same_value
from lockstep.exercises.lab04 import leftward
from lockstep.exercises.lab04.all_gather_right import into_one_tensor, passing_on_to_the_left, ring_all_gather
from lockstep.exercises.lab04.reduce_scatter_right import (
    ring_reduce_scatter,
    the_other_way_round,
    with_a_travelling_sum,
)
from lockstep.exercises.lab04.steps import one_neighbour
from lockstep.exercises.observe import Observation
from lockstep.exercises.variants import Narrowed, Variant

PARAMETER = "ring direction"
RIGHT = "your ring turns to the right: every rank sends to rank + 1 and receives from rank - 1."
LEFT = "your ring turns to the left: every rank sends to rank - 1 and receives from rank + 1."


def turns(step: int) -> Judge:
    """Every message goes to the rank `step` further on; with two ranks both ways are one."""
    way = "right" if step == 1 else "left"

    def judge(case: Case, seen: Observation, expected: Observation) -> Finding | None:
        sent = [sorted(one.sent_to) for one in seen.traffic]
        for rank, (to, there) in enumerate(
            zip(sent, [(r + step) % case.ranks for r in range(case.ranks)], strict=True)
        ):
            if any(dst != there for dst in to):
                words = f"The numbers are right, but rank {rank} sends to rank {to[0]}: your ring turns to the {way}."
                return Finding(words, f"to rank {there}", f"to rank {to[0]}", ("direction", sent))
        return None

    return judge


def other_way(function: Callable[..., Any], step: int) -> Mistake:
    """A ring that is right but for its direction, where one of steps of `step` is asked for."""
    judge, values = turns(step), same_value()

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        if seen.error is not None or values(case, seen, expected) or one_neighbour(case, seen, expected):
            return False
        as_many = sum(one.bytes_sent for one in seen.traffic) == sum(one.bytes_sent for one in expected.traffic)
        return as_many and judge(case, seen, expected) is not None

    return Mistake(
        "turns the other way",
        function,
        f"Everything is right, but in your variant the ring turns to the {'right' if step == 1 else 'left'}. Turn it round: "
        "who is sent to changes, and with it which chunk a rank begins with and the sign of the step in the chunks' numbers.",
        symptom=symptom,
    )


def to_the_right(comm, tensor):
    """In place, each receive posted before its send."""
    size, rank = comm.size, comm.rank
    parts = list(tensor.tensor_split(size))
    for left_to_go in range(size - 1, 0, -1):
        arriving = parts[(rank + left_to_go - 1) % size]
        inbox = arriving.new_zeros(arriving.shape)
        handle = comm.irecv(inbox, (rank - 1) % size)
        comm.send(parts[(rank + left_to_go) % size], (rank + 1) % size)
        handle.wait()
        arriving.add_(inbox)
    return parts[rank].clone()


def appending(comm, chunk, sizes):
    """Chunks are appended as they come from the left, then put in order."""
    found = [chunk]
    for step in range(1, comm.size):
        inbox = chunk.new_zeros(sizes[(comm.rank - step) % comm.size])
        comm.exchange([(found[-1], (comm.rank + 1) % comm.size)], [(inbox, (comm.rank - 1) % comm.size)])
        found.append(inbox)
    return leftward.joined({(comm.rank - step) % comm.size: one for step, one in enumerate(found)})


REDUCE_SCATTER = (
    Variant(
        PARAMETER, "to the right", RIGHT,
        Narrowed(
            reference=ring_reduce_scatter,
            also_right=(with_a_travelling_sum, to_the_right),
            judge=turns(1),
            mistakes=(other_way(the_other_way_round, 1),),
        ),
    ),
    Variant(
        PARAMETER, "to the left", LEFT,
        Narrowed(
            reference=leftward.ring_reduce_scatter,
            also_right=(the_other_way_round, leftward.with_a_travelling_sum),
            judge=turns(-1),
            mistakes=(other_way(ring_reduce_scatter, -1), *leftward.OF_REDUCE_SCATTER),
            without=leftward.OF_THE_RIGHT_REDUCE_SCATTER,
            hints=leftward.REDUCE_SCATTER_HINTS,
        ),
    ),
)  # fmt: skip

ALL_GATHER = (
    Variant(
        PARAMETER, "to the right", RIGHT,
        Narrowed(
            reference=ring_all_gather,
            also_right=(into_one_tensor, appending),
            judge=turns(1),
            mistakes=(other_way(passing_on_to_the_left, 1),),
        ),
    ),
    Variant(
        PARAMETER, "to the left", LEFT,
        Narrowed(
            reference=leftward.ring_all_gather,
            also_right=(passing_on_to_the_left, leftward.into_one_tensor),
            judge=turns(-1),
            mistakes=(other_way(ring_all_gather, -1), *leftward.OF_ALL_GATHER),
            without=leftward.OF_THE_RIGHT_ALL_GATHER,
            hints=leftward.ALL_GATHER_HINTS,
        ),
    ),
)  # fmt: skip

VARIANTS = {"04.2": REDUCE_SCATTER, "04.3": ALL_GATHER}
