"""Exercise 06.5: wrong solutions that students write; their sentences are in `channels_mistakes.py`.

Floor 4, room `exercises`.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from lockstep.exercises.lab06.channels_right import channel_parallel_conv
from lockstep.exercises.lab06.functions import passed


def _copied(comm, x):
    return passed(x, lambda gradient: comm.all_reduce(gradient.clone()))


def _gathered(comm, y, channels, backward):
    """Channels put together; `backward(gradient)` gives this rank's part of the gradient."""

    def forward(y):
        return comm.all_gather(y.transpose(0, 1).contiguous(), channels).transpose(0, 1)

    return passed(y, backward, forward)


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


def takes_the_mean(comm, x, weight, bias, padding, channels):
    y = F.conv2d(passed(x, lambda g: comm.all_reduce(g.clone(), op="mean")), weight, bias, padding=padding)
    return _gathered(comm, y, channels, lambda gradient: gradient.split(channels, 1)[comm.rank])


def divides_the_gradient(comm, x, weight, bias, padding, channels):
    y = F.conv2d(_copied(comm, x), weight, bias, padding=padding)
    return _gathered(comm, y, channels, lambda gradient: gradient.split(channels, 1)[comm.rank] / comm.size)


def gives_the_whole_gradient(comm, x, weight, bias, padding, channels):
    y = F.conv2d(_copied(comm, x), weight, bias, padding=padding)
    return _gathered(comm, y, channels, lambda gradient: gradient)


def begins_at_rank_times_own(comm, x, weight, bias, padding, channels):
    y, own = F.conv2d(_copied(comm, x), weight, bias, padding=padding), channels[comm.rank]
    return _gathered(comm, y, channels, lambda gradient: gradient[:, comm.rank * own :][:, :own])


def works_the_shares_out(comm, x, weight, bias, padding, channels):
    each, more = divmod(sum(channels), comm.size)
    return channel_parallel_conv(comm, x, weight, bias, padding, [each + (r < more) for r in range(comm.size)])


def gives_sizes_of_channels_to_images(comm, x, weight, bias, padding, channels):
    return comm.all_gather(F.conv2d(x, weight, bias, padding=padding).detach(), channels)


def joins_images(comm, x, weight, bias, padding, channels):
    y, n = F.conv2d(_copied(comm, x), weight, bias, padding=padding), len(x)
    return passed(y, lambda g: g.split(n)[comm.rank], lambda y: comm.all_gather(y.contiguous(), [n] * comm.size))


def forgets_to_transpose_back(comm, x, weight, bias, padding, channels):
    return channel_parallel_conv(comm, x, weight, bias, padding, channels).transpose(0, 1)


def reshapes_for_a_transpose(comm, x, weight, bias, padding, channels):
    y = F.conv2d(_copied(comm, x), weight, bias, padding=padding)
    shape = (len(x), sum(channels), *y.shape[2:])
    return passed(
        y,
        lambda gradient: gradient.split(channels, 1)[comm.rank],
        lambda y: comm.all_gather(y.transpose(0, 1).contiguous(), channels).reshape(shape),
    )


def always_pads(comm, x, weight, bias, padding, channels):
    return channel_parallel_conv(comm, x, weight, bias, 1, channels)


def gathers_the_weights(comm, x, weight, bias, padding, channels):
    weights = list(comm.all_gather(weight.detach(), channels).split(channels))
    biases = list(comm.all_gather(bias.detach(), channels).split(channels))
    weights[comm.rank], biases[comm.rank] = weight, bias
    return F.conv2d(x, torch.cat(weights), torch.cat(biases), padding=padding)


def gives_no_gradient(comm, x, weight, bias, padding, channels):
    return channel_parallel_conv(comm, passed(x, lambda gradient: None), weight, bias, padding, channels)


def by_way_of(step):
    """The layer with `step` in front of it."""
    return lambda comm, x, *rest: channel_parallel_conv(comm, step(comm, x), *rest)


def without_weight(comm, x, weight, *rest):
    return channel_parallel_conv(comm, x, weight.detach(), *rest)
