"""Exercise 00.1: a first rank function. What students get wrong is in `hello_mistakes.py`.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from lockstep.comm import Communicator
from lockstep.exercises.exercise import Case, Exercise, on_ranks
from lockstep.exercises.judge import Finding, all_of, same_value
from lockstep.exercises.lab00.hello_mistakes import MISTAKES
from lockstep.exercises.observe import Observation, Simulate


def hello(comm):
    square = comm.rank**2
    total = torch.tensor(square)
    comm.all_reduce(total)
    return square, total.item()


def hello_with_returned_tensor(comm):
    own = torch.tensor([float(comm.rank * comm.rank)])
    return [own, comm.all_reduce(own.clone())]


def hello_with_one_slot_each(comm):
    slots = torch.zeros(comm.size, dtype=torch.int64)
    slots[comm.rank] = pow(comm.rank, 2)
    comm.all_reduce(slots)
    return int(slots[comm.rank]), int(sum(slots))


def hello_with_handle(comm):
    total = torch.arange(comm.size)[comm.rank] ** 2
    square = int(total)
    comm.all_reduce(total, async_op=True).wait()
    return square, total


def hello_stub(comm):
    square = ...  # noqa: F841 - the skeleton, as students get it
    total = ...  # noqa: F841
    raise NotImplementedError("return this rank's square and the sum of all ranks' squares")


def numbers(fn: Callable[..., Any], comm: Communicator) -> Any:
    """What `fn` returns, with every tensor of one element taken for its number, as the task allows."""
    value = fn(comm)
    if isinstance(value, (list, tuple)):
        one = (torch.Tensor, np.ndarray)
        return [part.item() if isinstance(part, one) and np.prod(part.shape) == 1 else part for part in value]
    return value


def right_numbers(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """As `same_value`, in the words of the task."""
    found = same_value()(case, seen, expected)
    if found is None:
        return None
    said = found.sentence.replace(" at [0]", " for its square").replace(" at [1]", " for the sum")
    return replace(found, sentence=said)


def asks_the_others(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """More than one rank: the sum comes out of an all-reduce."""
    for rank, called in enumerate(seen.collectives):
        if len(seen.collectives) > 1 and "all_reduce" not in called:
            instead = f"calls {', '.join(called)} instead of all_reduce" if called else "never calls comm.all_reduce"
            return Finding(
                f"The numbers are right, but rank {rank} {instead}.",
                "the sum, by comm.all_reduce",
                ", ".join(called) or "no collective",
                ("no all_reduce", [list(names) for names in seen.collectives]),
            )
    return None


def hello_cases(rng: np.random.Generator) -> list[Case]:
    return [on_ranks(ranks) for ranks in (1, 2, 3, 4, 5, int(rng.integers(6, 9)))]


HELLO = Exercise(
    id="00.1",
    title="Hello from every rank",
    function="hello",
    points=2,
    asks=(
        "Every rank returns two numbers: its own rank number squared, and the sum of the squares of all ranks, "
        "obtained with `comm.all_reduce`."
    ),
    reference=hello,
    also_right=(hello_with_returned_tensor, hello_with_one_slot_each, hello_with_handle),
    stub=hello_stub,
    cases=hello_cases,
    observe=Simulate(numbers),
    judge=all_of(right_numbers, asks_the_others),
    hints=(
        (
            "One of the two numbers you know without asking anybody: `comm.rank` gives it. For the other, every "
            "rank has to hand in something. What exactly should each hand in?"
        ),
        (
            "`comm.all_reduce` adds up tensors, not Python numbers. Put your square into a tensor. The call overwrites "
            "that tensor, so keep the square under another name as well."
        ),
        (
            "Four lines: the square as a Python number; a tensor made of it; the all-reduce of the tensor; return the "
            "number and what the tensor holds now. No `if`, no loop, no 4."
        ),
        (
            "The middle two lines are `total = torch.tensor(square)` and `comm.all_reduce(total)`; "
            "`total.item()` is then the sum."
        ),
    ),
    mistakes=MISTAKES,
)
