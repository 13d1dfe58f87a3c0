"""Exercise 06.4: a linear layer whose inputs are shared out, alone and as the second of a pair.

Floor 4, room `exercises`; what it shares with its neighbours is in `passes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.comm import Communicator
from lockstep.exercises.exercise import Case, Exercise, on_ranks
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab06.columns_right import column_parallel_linear
from lockstep.exercises.lab06.passes import both_passes, even_shares, numbers, right_passes
from lockstep.exercises.lab06.rows_mistakes import MISTAKES
from lockstep.exercises.lab06.rows_right import (
    row_as_one_function,
    row_parallel_linear,
    row_parallel_linear_stub,
    row_with_the_others_as_constants,
)
from lockstep.exercises.observe import Simulate


def pass_through(
    fn: Callable[..., Any],
    comm: Communicator,
    weight: Tensor,
    first: Tensor,
    first_bias: Tensor,
    own_x: Tensor,
    x: Tensor,
    bias: Tensor,
    dy: Tensor,
    pair: bool,
) -> dict[str, Any]:
    """Both passes, through `fn` alone on this rank's features, or behind a column-parallel layer and a ReLU."""
    learning = {"weight": weight, "bias": bias}
    if not pair:
        return both_passes(lambda h: fn(comm, h, weight, bias), comm, own_x.requires_grad_(), dy, learning)

    def forward(x: Tensor) -> Tensor:
        return fn(comm, torch.relu(column_parallel_linear(comm, x, first, first_bias)), weight, bias)

    return both_passes(forward, comm, x.requires_grad_(), dy, learning | {"the first layer's weight": first})


def cases(rng: np.random.Generator) -> Iterator[Case]:
    for ranks, batch, inputs, hidden, outputs, pair in (
        (1, 2, 2, 3, 2, False), (2, 1, 3, 2, 2, False), (3, 2, 3, 7, 4, False), (3, 2, 4, 5, 3, True),
        (4, 3, 5, 8, 2, True),
    ):  # fmt: skip
        each = [
            (numbers(rng, outputs, own), numbers(rng, own, inputs), numbers(rng, own), numbers(rng, batch, own))
            for own in even_shares(hidden, ranks)
        ]
        shared = (numbers(rng, batch, inputs), numbers(rng, outputs), numbers(rng, batch, outputs), pair)
        name = f"a pair with {hidden} neurons between" if pair else f"{hidden} inputs"
        yield on_ranks(ranks, *shared, each=each, name=name)


OBSERVE, JUDGE = Simulate(pass_through), right_passes

ROW_PARALLEL = Exercise(
    id="06.4",
    title="Inputs shared out, and the pair",
    function="row_parallel_linear",
    points=2,
    asks=(
        "`x`, (images, own), are this rank's features; `weight`, (outputs, own), has the columns that go with them; `bias`, "
        "(outputs,), is the same on all ranks. Return the outputs of the whole layer, (images, outputs), on every rank. "
        "Backward begins with the same gradient everywhere; after it `x.grad`, `weight.grad` and `bias.grad` are parts of "
        "the whole layer's. Forward sends as much as one all-reduce of the outputs, backward nothing, so that a pair "
        "of column- and row-parallel layers has one all-reduce each way."
    ),
    reference=row_parallel_linear,
    also_right=(row_with_the_others_as_constants, row_as_one_function),
    stub=row_parallel_linear_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    hints=(
        (
            "An output is a sum over all inputs. Each rank can add up its own terms. What is missing then, and which "
            "collective gives it to everybody?"
        ),
        (
            "Now backward. Behind the sum every rank goes on alike, so each one already has the whole gradient of the "
            "output. What is left to send?"
        ),
        (
            "A `torch.autograd.Function` again: forward returns an all-reduced clone of the partial sums, backward gives the "
            "gradient back as it is. The bias is no part of the sum."
        ),
        "The last line is `return SumOverRanks.apply(F.linear(x, weight)) + bias`.",
    ),
    mistakes=by_first_failure(OBSERVE, JUDGE, MISTAKES),
)
