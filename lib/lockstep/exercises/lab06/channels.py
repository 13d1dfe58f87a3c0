"""Exercise 06.5: a convolution whose output channels are shared out, and put together again.

Floor 4, room `exercises`; what it shares with its neighbours is in `passes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from torch import Tensor

from lockstep.comm import Communicator
from lockstep.exercises.exercise import Case, Exercise, on_ranks
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab06.channels_mistakes import MISTAKES
from lockstep.exercises.lab06.channels_right import (
    channel_parallel_conv,
    channel_parallel_conv_stub,
    channels_as_one_function,
    channels_with_the_others_as_constants,
)
from lockstep.exercises.lab06.passes import both_passes, numbers, right_passes
from lockstep.exercises.observe import Simulate


def pass_through(
    fn: Callable[..., Any],
    comm: Communicator,
    weight: Tensor,
    bias: Tensor,
    x: Tensor,
    dy: Tensor,
    padding: int,
    channels: list[int],
) -> dict[str, Any]:
    """Both passes; every rank begins backward with the same `dy`, since all go on alike."""

    def forward(x: Tensor) -> Tensor:
        return fn(comm, x, weight, bias, padding, list(channels))

    return both_passes(forward, comm, x.requires_grad_(), dy, {"weight": weight, "bias": bias})


def cases(rng: np.random.Generator) -> Iterator[Case]:
    for shares, images, inputs, side, kernel, padding in (
        ([2], 1, 2, 3, 3, 1), ([1, 1], 1, 1, 3, 3, 1), ([1, 3], 2, 2, 3, 1, 0), ([2, 2, 1], 2, 3, 4, 3, 1),
        ([2, 1, 1, 2], 2, 2, 5, 3, 0),
    ):  # fmt: skip
        each = [(numbers(rng, own, inputs, kernel, kernel), numbers(rng, own)) for own in shares]
        wide = side + 2 * padding - kernel + 1
        shared = (
            numbers(rng, images, inputs, side, side),
            numbers(rng, images, sum(shares), wide, wide),
            padding,
            shares,
        )
        name = f"{images} image{'s' * (images > 1)}, {sum(shares)} channels in shares of {shares}"
        yield on_ranks(len(shares), *shared, each=each, name=name)


OBSERVE, JUDGE = Simulate(pass_through), right_passes

CHANNEL_PARALLEL = Exercise(
    id="06.5",
    title="Channels shared out",
    function="channel_parallel_conv",
    points=2,
    core=False,
    asks=(
        "`x`, (images, channels, height, width), is the same on every rank; `weight` and `bias` are this rank's output "
        "channels, of which rank r has `channels[r]`. Return *all* output channels, in rank order, on every rank, with "
        "`padding` on all sides. Backward begins with the same gradient everywhere, and `x.grad`, `weight.grad` and "
        "`bias.grad` become those of the whole layer, or their parts. Forward sends as much as one all-gather of the "
        "outputs, backward as one all-reduce of a tensor like `x`."
    ),
    reference=channel_parallel_conv,
    also_right=(channels_as_one_function, channels_with_the_others_as_constants),
    stub=channel_parallel_conv_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    hints=(
        (
            "In front of the convolution stands what you wrote in 06.3. Behind it comes a function that puts the "
            "channels together: what does its backward do, when every rank has the whole gradient?"
        ),
        (
            "`comm.all_gather(tensor, sizes)` joins along dimension 0, and the channels are dimension 1: transpose "
            "before, and back after. `sizes` are the rows of each rank."
        ),
        "Backward of the gather sends nothing: it cuts this rank's channels out of the gradient.",
        "Its line is `return gradient.split(channels, dim=1)[comm.rank]`.",
    ),
    mistakes=by_first_failure(OBSERVE, JUDGE, MISTAKES),
)
