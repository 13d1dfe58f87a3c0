"""Exercise 06.3: a linear layer whose outputs are shared out among ranks.

Floor 4, room `exercises`; what it shares with its neighbours is in `passes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from lockstep.comm import Communicator
from lockstep.exercises.exercise import Case, Exercise, on_ranks
from lockstep.exercises.judge import Finding
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab06.columns_mistakes import MISTAKES
from lockstep.exercises.lab06.columns_right import (
    column_as_one_function,
    column_by_a_hook,
    column_parallel_linear,
    column_parallel_linear_stub,
)
from lockstep.exercises.lab06.passes import both_passes, even_shares, numbers, right_passes
from lockstep.exercises.observe import Observation, Simulate


def pass_through(
    fn: Callable[..., Any], comm: Communicator, weight: Tensor, bias: Tensor, dy: Tensor, x: Tensor, learns: bool
) -> dict[str, Any]:
    """Both passes; `x` is somebody's output unless it is images, which need no gradient."""
    x.requires_grad_(learns)
    return both_passes(lambda x: fn(comm, x, weight, bias), comm, x, dy, {"weight": weight, "bias": bias})


def cases(rng: np.random.Generator) -> Iterator[Case]:
    for ranks, batch, inputs, outputs, learns in (
        (1, 2, 3, 2, True), (2, 1, 2, 2, True), (2, 2, 3, 5, True), (3, 2, 4, 7, False), (4, 3, 5, 8, True),
    ):  # fmt: skip
        each = [
            (numbers(rng, own, inputs), numbers(rng, own), numbers(rng, batch, own))
            for own in even_shares(outputs, ranks)
        ]
        name = f"{outputs} neurons" + ("" if learns else ", x are images without a gradient")
        yield on_ranks(ranks, numbers(rng, batch, inputs), learns, each=each, name=name)


def right_columns(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """As `right_passes`; a gradient of images, which nobody needs, may be added up all the same."""
    if not case.args[1]:
        seen = replace(seen, value=[{**one, "backward": 0} for one in seen.value])
    return right_passes(case, seen, expected)


OBSERVE, JUDGE = Simulate(pass_through), right_columns


COLUMN_PARALLEL = Exercise(
    id="06.3",
    title="Neurons shared out",
    function="column_parallel_linear",
    points=2,
    asks=(
        "`x`, (images, inputs), is the same on every rank. `weight`, (own, inputs), and `bias`, (own,), are this rank's "
        "neurons. Return their outputs, (images, own). After backward `x.grad` is on every rank the gradient that the "
        "whole layer gives, and `weight.grad` and `bias.grad` are those of this rank's neurons. Forward sends nothing, "
        "backward at most as many bytes as one all-reduce of a tensor like `x`, which may also be images without a gradient."
    ),
    reference=column_parallel_linear,
    also_right=(column_by_a_hook, column_as_one_function),
    stub=column_parallel_linear_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    hints=(
        (
            "Forward is easy: each neuron needs the whole `x` and its own row of weights, and both are here. Now backward: "
            "through how many ranks' neurons does a number of `x` act on the loss?"
        ),
        (
            "Each rank's backward gives the part of the gradient of `x` that came through its own neurons. The whole is "
            "the sum over the ranks."
        ),
        (
            "You need a function that does nothing forward and adds up over ranks backward, between `x` and the linear "
            "layer. In its backward a clone of the gradient goes into `comm.all_reduce`."
        ),
        "The last line is `return F.linear(CopyToRanks.apply(x), weight, bias)`.",
    ),
    mistakes=by_first_failure(OBSERVE, JUDGE, MISTAKES),
)
