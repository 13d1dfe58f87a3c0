"""04.1 `exchange`: send to the right, receive from the left, without waiting for each other for ever.

Floor 4, room `exercises`; solutions are in `exchange_right.py` and `exchange_mistakes.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import Finding, all_of, same_traffic, same_value
from lockstep.exercises.lab04.exchange_mistakes import MISTAKES
from lockstep.exercises.lab04.exchange_right import (
    exchange,
    exchange_even_ranks_first,
    exchange_in_one_call,
    exchange_posting_the_receive_first,
    exchange_stub,
)
from lockstep.exercises.lab04.steps import numbers, on_network, side_by_side
from lockstep.exercises.observe import Observation, Simulate


def then_overwrite(fn: Any, comm: Any, outgoing: torch.Tensor, incoming: torch.Tensor) -> dict[str, torch.Tensor]:
    """Call `fn`, note both tensors, and overwrite `outgoing` as the next step of a ring would: it must be free."""
    fn(comm, outgoing, incoming)
    after = {"incoming": incoming.clone(), "outgoing": outgoing.clone()}
    outgoing.fill_(1000)
    return after


def right_tensors(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """As `same_value`, with the names of the task."""
    found = same_value()(case, seen, expected)
    if found is None:
        return None
    said = found.sentence.replace(" at ['incoming']", " in `incoming`").replace(" at ['outgoing']", " in `outgoing`")
    return replace(found, sentence=said)


def exchange_cases(rng: np.random.Generator) -> Iterator[Case]:
    for ranks, n in ((2, 3), (3, 3), (4, 1000), (5, 0)):
        each = [(numbers(rng, n), torch.zeros(n)) for _ in range(ranks)]
        yield on_network(ranks, each=each, name=f"{n:,} numbers each")
    lengths = [int(n) for n in rng.permutation(6)]
    each = [(numbers(rng, lengths[r]), torch.zeros(lengths[r - 1])) for r in range(6)]
    yield on_network(6, each=each, name=f"{lengths} numbers")


EXCHANGE = Exercise(
    id="04.1",
    title="Exchange with the neighbours",
    function="exchange",
    points=2,
    asks=(
        "Send `outgoing` to the rank on the right (one more, the last one's is rank 0) and fill `incoming` with what "
        "the rank on the left sends, in a time that does not grow with the number of ranks. When you return, both "
        "tensors are free to be changed."
    ),
    reference=exchange,
    also_right=(exchange_in_one_call, exchange_posting_the_receive_first, exchange_even_ranks_first),
    stub=exchange_stub,
    cases=exchange_cases,
    observe=Simulate(then_overwrite),
    judge=all_of(right_tensors, same_traffic(), side_by_side),
    hints=(
        (
            "`comm.send` returns when the other side has received, and `comm.recv` when something has come. If every "
            "rank begins with the same one of the two, who makes the first move?"
        ),
        (
            "`comm.isend(tensor, dst)` starts to send and returns at once with a handle; `handle.wait()` returns when "
            "the tensor has left. What can you do between the two?"
        ),
        "Three lines: start to send to the right, receive from the left, wait for the send to end.",
        "The first two are `sending = comm.isend(outgoing, right)` and `comm.recv(incoming, left)`.",
    ),
    mistakes=MISTAKES,
)
