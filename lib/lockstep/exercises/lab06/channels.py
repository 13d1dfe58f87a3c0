"""Exercise 06.5: a convolution whose output channels are shared out, and put together again.

Floor 4, room `exercises`; what it shares with its neighbours is in `passes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from lockstep.comm import Communicator
from lockstep.exercises.exercise import Case, Exercise, Mistake, on_ranks
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab06.passes import both_passes, even_shares, numbers, right_passes
from lockstep.exercises.observe import Observation, Simulate


def channel_parallel_conv(comm, x, weight, bias, padding, channels):
    class CopyToRanks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):
            return comm.all_reduce(gradient.clone())

    class GatherChannels(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            return comm.all_gather(y.transpose(0, 1).contiguous(), channels).transpose(0, 1)

        @staticmethod
        def backward(ctx, gradient):
            return gradient.split(channels, dim=1)[comm.rank]

    return GatherChannels.apply(F.conv2d(CopyToRanks.apply(x), weight, bias, padding=padding))


def channels_as_one_function(comm, x, weight, bias, padding, channels):
    first = sum(channels[: comm.rank])

    class Conv(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight, bias):
            ctx.save_for_backward(x, weight)
            own = F.conv2d(x, weight, bias, padding=padding)
            n, _, height, width = own.shape
            flat = own.permute(1, 0, 2, 3).reshape(-1)
            sizes = [k * n * height * width for k in channels]
            every = comm.all_gather(flat, sizes).view(sum(channels), n, height, width)
            return every.permute(1, 0, 2, 3).contiguous()

        @staticmethod
        def backward(ctx, dy):
            x, weight = ctx.saved_tensors
            own = dy[:, first : first + channels[comm.rank]].contiguous()
            dx = torch.nn.grad.conv2d_input(x.shape, weight, own, padding=padding)
            dw = torch.nn.grad.conv2d_weight(x, weight.shape, own, padding=padding)
            return comm.all_reduce(dx.contiguous()), dw, own.sum((0, 2, 3))

    return Conv.apply(x, weight, bias)


def channels_with_the_others_as_constants(comm, x, weight, bias, padding, channels):
    copy = x * 1
    if copy.requires_grad:
        copy.register_hook(lambda gradient: comm.all_reduce(gradient.clone()))
    own = F.conv2d(F.pad(copy, (padding,) * 4), weight, bias)
    parts = list(comm.all_gather(own.detach().movedim(1, 0).contiguous(), channels).movedim(0, 1).split(channels, 1))
    parts[comm.rank] = own
    return torch.cat(parts, dim=1)


def channel_parallel_conv_stub(comm, x, weight, bias, padding, channels):
    raise NotImplementedError("return all channels of the output, the same on every rank")


def _copied(comm, x, reduces=True):
    class Copy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):
            return comm.all_reduce(gradient.clone()) if reduces else gradient

    return Copy.apply(x)


def _gathered(comm, y, channels, backward):
    """Channels put together; `backward(gradient)` gives this rank's part of the gradient."""

    class Gather(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            return comm.all_gather(y.transpose(0, 1).contiguous(), channels).transpose(0, 1)

        @staticmethod
        def backward(ctx, gradient):
            return backward(gradient)

    return Gather.apply(y)


def input_gradient_not_reduced(comm, x, weight, bias, padding, channels):
    y = F.conv2d(x, weight, bias, padding=padding)
    return _gathered(comm, y, channels, lambda gradient: gradient.split(channels, 1)[comm.rank])


def gathers_outside_autograd(comm, x, weight, bias, padding, channels):
    y = F.conv2d(_copied(comm, x), weight, bias, padding=padding).detach()
    return comm.all_gather(y.transpose(0, 1).contiguous(), channels).transpose(0, 1).contiguous()


def joins_along_the_images(comm, x, weight, bias, padding, channels):
    class Gather(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            flat = y.reshape(-1)
            share = flat.numel() // channels[comm.rank]
            every = comm.all_gather(flat, [k * share for k in channels])
            return every.view(y.shape[0], sum(channels), *y.shape[2:])

        @staticmethod
        def backward(ctx, gradient):
            return gradient.split(channels, 1)[comm.rank]

    return Gather.apply(F.conv2d(_copied(comm, x), weight, bias, padding=padding))


def adds_the_gradients_up(comm, x, weight, bias, padding, channels):
    y = F.conv2d(_copied(comm, x), weight, bias, padding=padding)

    def backward(gradient):
        return comm.all_reduce(gradient.clone()).split(channels, 1)[comm.rank]

    return _gathered(comm, y, channels, backward)


def takes_the_first_channels(comm, x, weight, bias, padding, channels):
    y = F.conv2d(_copied(comm, x), weight, bias, padding=padding)
    return _gathered(comm, y, channels, lambda gradient: gradient[:, : channels[comm.rank]])


def counts_on_equal_shares(comm, x, weight, bias, padding, channels):
    y = F.conv2d(_copied(comm, x), weight, bias, padding=padding)
    own = y.shape[1]

    class Gather(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            return comm.all_gather(y.transpose(0, 1).contiguous()).transpose(0, 1)

        @staticmethod
        def backward(ctx, gradient):
            return gradient[:, comm.rank * own : (comm.rank + 1) * own]

    return Gather.apply(y)


def reduces_a_padded_output(comm, x, weight, bias, padding, channels):
    y = F.conv2d(_copied(comm, x), weight, bias, padding=padding)
    first = sum(channels[: comm.rank])

    class Put(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            every = y.new_zeros(y.shape[0], sum(channels), *y.shape[2:])
            every[:, first : first + channels[comm.rank]] = y
            return comm.all_reduce(every)

        @staticmethod
        def backward(ctx, gradient):
            return gradient[:, first : first + channels[comm.rank]]

    return Put.apply(y)


def returns_its_own_channels(comm, x, weight, bias, padding, channels):
    return F.conv2d(_copied(comm, x), weight, bias, padding=padding)


def forgets_the_padding(comm, x, weight, bias, padding, channels):
    y = F.conv2d(_copied(comm, x), weight, bias)
    return _gathered(comm, y, channels, lambda gradient: gradient.split(channels, 1)[comm.rank])


def leaves_the_bias_out(comm, x, weight, bias, padding, channels):
    return channel_parallel_conv(comm, x, weight, torch.zeros_like(bias), padding, channels)


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
    for ranks, images, inputs, outputs, side, kernel, padding in (
        (1, 1, 2, 2, 3, 3, 1), (2, 1, 1, 2, 3, 3, 1), (2, 2, 2, 4, 3, 1, 0), (3, 2, 3, 5, 4, 3, 1), (4, 2, 2, 6, 5, 3, 0),
    ):  # fmt: skip
        shares = even_shares(outputs, ranks)
        each = [(numbers(rng, own, inputs, kernel, kernel), numbers(rng, own)) for own in shares]
        wide = side + 2 * padding - kernel + 1
        shared = numbers(rng, images, inputs, side, side), numbers(rng, images, outputs, wide, wide), padding, shares
        name = f"{images} image{'s' * (images > 1)}, {outputs} channels in shares of {shares}"
        yield on_ranks(ranks, *shared, each=each, name=name)


def own_channels_only(case: Case, seen: Observation, expected: Observation) -> bool:
    """Each rank returns as many channels as it computes, though all are asked."""
    if seen.error is not None or case.ranks < 2:
        return False
    shapes = [getattr(one["y"], "shape", (0, 0)) for one in seen.value]
    return [shape[1] for shape in shapes] == case.args[3]


def stumbles_over_unequal_shares(case: Case, seen: Observation, expected: Observation) -> bool:
    """The first failure is a gather of unequal parts."""
    return seen.error is not None and "all_gather" in seen.error.message and len(set(case.args[3])) > 1


def too_small(case: Case, seen: Observation, expected: Observation) -> bool:
    """Output images are smaller than they should be, by the padding."""
    if seen.error is not None or not case.args[2]:
        return False
    return all(getattr(one["y"], "shape", (0,))[-1] == case.args[1].shape[-1] - 2 * case.args[2] for one in seen.value)


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
    mistakes=by_first_failure(
        OBSERVE,
        JUDGE,
        (
            Mistake(
                "input gradient not reduced",
                input_gradient_not_reduced,
                "The gradient of `x` is only what came through this rank's channels. Every input acts on all channels: add "
                "the parts up in backward, as in 06.3.",
            ),
            Mistake(
                "gathers outside autograd",
                gathers_outside_autograd,
                "What `comm.all_gather` gives has no history, so backward stops there. Wrap it in a "
                "`torch.autograd.Function` whose backward takes this rank's part.",
            ),
            Mistake(
                "joins along the images",
                joins_along_the_images,
                "The numbers are there, in the wrong places: what was gathered lies rank after rank, and you read it image "
                "after image. Make the channels dimension 0 before the gather, and put them back after it.",
            ),
            Mistake(
                "adds the gradients up",
                adds_the_gradients_up,
                "Gradients are too large, by the number of ranks. Behind the gather all ranks compute the same loss, so each "
                "has the whole gradient already: cut your channels out of it, and add nothing up.",
            ),
            Mistake(
                "takes the first channels",
                takes_the_first_channels,
                "Every rank takes its gradient from the first channels. Rank r's begin behind those of all ranks before it.",
            ),
            Mistake(
                "counts on equal shares",
                counts_on_equal_shares,
                "The shares may be unequal, as with 5 channels on 3 ranks. Tell the gather: `channels` are the rows of each "
                "rank, and say where its part of the gradient begins.",
                symptom=stumbles_over_unequal_shares,
            ),
            Mistake(
                "reduces a padded output",
                reduces_a_padded_output,
                "The numbers are right, but you all-reduce an output that is mostly zeros. Each channel has one owner, so "
                "nothing has to be added up: a gather sends half the bytes.",
            ),
            Mistake(
                "returns its own channels only",
                returns_its_own_channels,
                "You return this rank's channels. Here all of them are asked, on every rank.",
                symptom=own_channels_only,
            ),
            Mistake(
                "forgets the padding",
                forgets_the_padding,
                "The output images are smaller than they should be: the padding is missing.",
                symptom=too_small,
            ),
            Mistake(
                "leaves the bias out",
                leaves_the_bias_out,
                "The outputs lack the bias. Each rank has the biases of its own channels, and adds those before the gather.",
            ),
        ),
    ),
)
