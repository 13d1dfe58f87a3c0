"""02.2 `conv2d_forward`: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; the exercise is in `convolution.py`.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.lab02.convolution_right import conv2d_forward
from lockstep.exercises.lab02.output_size import output_size
from lockstep.exercises.lab02.parts import fails_like, loses_the_dtype, same_parts
from lockstep.exercises.lab02.slices import PADDING, forward_through, misses_pixels, slice_mistakes
from lockstep.exercises.observe import Observation


def flips_the_kernel(x, weight, bias, stride, padding, dilation, groups):
    return conv2d_forward(x, weight.flip(2, 3), bias, stride, padding, dilation, groups)


def swaps_rows_and_columns(x, weight, bias, stride, padding, dilation, groups):
    o, i, r, s = weight.shape
    return conv2d_forward(x, weight.transpose(2, 3).reshape(o, i, r, s), bias, stride, padding, dilation, groups)


def forgets_the_bias(x, weight, bias, stride, padding, dilation, groups):
    return conv2d_forward(x, weight, torch.zeros_like(bias), stride, padding, dilation, groups)


def forgets_the_padding(x, weight, bias, stride, padding, dilation, groups):
    return conv2d_forward(x, weight, bias, stride, 0, dilation, groups)


def pads_with_the_edge(x, weight, bias, stride, padding, dilation, groups):
    padded = F.pad(x, [padding] * 4, mode="replicate")
    return conv2d_forward(padded, weight, bias, stride, 0, dilation, groups)


def pads_only_the_end(x, weight, bias, stride, padding, dilation, groups):
    padded = F.pad(x, (0, 2 * padding, 0, 2 * padding))
    return conv2d_forward(padded, weight, bias, stride, 0, dilation, groups)


def pads_the_columns_only(x, weight, bias, stride, padding, dilation, groups):
    p, q = (output_size(x.shape[a], weight.shape[a], stride, padding, dilation) for a in (2, 3))
    padded = F.pad(x, (padding, padding))
    n, (o, i, r, s) = len(x), weight.shape
    columns = [
        padded[:, :, a : a + p * stride : stride, b : b + q * stride : stride]
        for a in range(0, r * dilation, dilation)
        for b in range(0, s * dilation, dilation)
    ]
    columns = torch.stack(columns, dim=2).reshape(n, groups, i * r * s, p * q)
    return (weight.reshape(groups, o // groups, i * r * s) @ columns).reshape(n, o, p, q) + bias.reshape(o, 1, 1)


def ignores_the_stride(x, weight, bias, stride, padding, dilation, groups):
    return conv2d_forward(x, weight, bias, 1, padding, dilation, groups)


def ignores_the_dilation(x, weight, bias, stride, padding, dilation, groups):
    p, q = (output_size(x.shape[a], weight.shape[a], stride, padding, dilation) for a in (2, 3))
    return conv2d_forward(x, weight, bias, stride, padding, 1, groups)[:, :, :p, :q]


def ignores_the_groups(x, weight, bias, stride, padding, dilation, groups):
    return conv2d_forward(x[:, : weight.shape[1]], weight, bias, stride, padding, dilation, 1)


def multiplies_over_all_channels(x, weight, bias, stride, padding, dilation, groups):
    return conv2d_forward(x, weight, bias, stride, padding, dilation, 1)


def deals_channels_out(x, weight, bias, stride, padding, dilation, groups):
    """Group g takes every groups-th channel, as if they were dealt out like cards."""
    dealt = torch.cat([x[:, g::groups] for g in range(groups)], 1)
    return conv2d_forward(dealt, weight, bias, stride, padding, dilation, groups)


def deals_kernels_out(x, weight, bias, stride, padding, dilation, groups):
    """Group g takes every groups-th kernel, and its outputs stand side by side."""
    dealt = torch.cat([weight[g::groups] for g in range(groups)])
    return conv2d_forward(x, dealt, bias, stride, padding, dilation, groups)


def deals_kernels_out_and_back(x, weight, bias, stride, padding, dilation, groups):
    """The same with each output at the place of its kernel."""
    order = torch.cat([torch.arange(g, len(weight), groups) for g in range(groups)])
    y = conv2d_forward(x, weight[order], bias[order], stride, padding, dilation, groups)
    return y[:, order.argsort()]


def orders_columns_by_place(x, weight, bias, stride, padding, dilation, groups):
    """Rows of the column matrix are (place, channel), the kernel's numbers (channel, place)."""
    o, i, r, s = weight.shape
    mixed = weight.reshape(o, r * s, i).transpose(1, 2).reshape(o, i, r, s)
    return conv2d_forward(x, mixed, bias, stride, padding, dilation, groups)


def mixes_images_and_channels(x, weight, bias, stride, padding, dilation, groups):
    """The product over all images at once is (O, N P Q); reshaped to (N, O, P, Q) without exchanging the axes."""
    y = conv2d_forward(x, weight, bias, stride, padding, dilation, groups)
    return y.transpose(0, 1).reshape(y.shape)


def mixes_images_and_channels_before_the_bias(x, weight, bias, stride, padding, dilation, groups):
    y = conv2d_forward(x, weight, torch.zeros_like(bias), stride, padding, dilation, groups)
    return y.transpose(0, 1).reshape(y.shape) + bias[:, None, None]


def adds_the_bias_along_the_rows(x, weight, bias, stride, padding, dilation, groups):
    return conv2d_forward(x, weight, torch.zeros_like(bias), stride, padding, dilation, groups) + bias


def computes_in_float32(x, weight, bias, stride, padding, dilation, groups):
    return conv2d_forward(x, weight, bias, stride, padding, dilation, groups).float()


def fails_with_groups(case: Case, seen: Observation, expected: Observation) -> bool:
    """A shape that does not fit, on the first case that has groups."""
    return seen.error is not None and seen.error.type == "RuntimeError" and case.args[-1] > 1


JUDGE = same_parts("y", given=("x", "weight", "bias"))


MISTAKES = (
    Mistake(
        "flips the kernel",
        flips_the_kernel,
        "You turn the kernel round before you multiply. That is the convolution of mathematics; in deep "
        "learning the weight at (0, 0) meets the top left pixel of the window, in torch too.",
    ),
    Mistake(
        "swaps rows and columns",
        swaps_rows_and_columns,
        "Rows and columns of the kernel are swapped: weight (a, b) has to meet the pixel a down, b across.",
    ),
    Mistake(
        "forgets the bias",
        forgets_the_bias,
        "Every output is off by a number of its channel: the bias is missing.",
    ),
    Mistake(
        "adds the bias along the rows",
        adds_the_bias_along_the_rows,
        "The bias has one number for each output *channel*. Added as it is, it is laid along the last axis, "
        "the columns of the image, where it does not fit or fits by chance: give it two more axes.",
        symptom=lambda case, seen, expected: (
            seen.error is not None and "non-singleton dimension" in seen.error.message and case.args[-1] == 1
        ),
    ),
    Mistake(
        "mixes images and channels",
        mixes_images_and_channels,
        "The numbers are right, but stand in the wrong images: a product over all images at once has the axes "
        "(O, N, P, Q), and `reshape` does not exchange axes. `transpose` does.",
        symptom=fails_like(JUDGE, mixes_images_and_channels, mixes_images_and_channels_before_the_bias),
    ),
    Mistake(
        "columns in another order than the kernel",
        orders_columns_by_place,
        "Your column has the place in the kernel outside and the channel inside; the kernel has it the other "
        "way round, (I, R, S). Both must be in one order, or each weight meets somebody else's pixel.",
    ),
    Mistake(
        "forgets the padding",
        forgets_the_padding,
        "Without padding you are right. Padding is a frame of zeros around the image, before anything else.",
    ),
    Mistake(
        "pads at the end only",
        pads_only_the_end,
        "The frame of zeros has to be on all four sides; yours lies to the right and below.",
    ),
    Mistake(
        "pads with the edge",
        pads_with_the_edge,
        "The frame must hold zeros, not the pixels of the edge again.",
    ),
    Mistake(
        "pads the columns only",
        pads_the_columns_only,
        "A slice of yours is too short here, where there is padding for the first time. `pad` counts from the "
        "last axis: two numbers pad the columns alone, four the columns and the rows.",
        symptom=misses_pixels(PADDING),
    ),
    *slice_mistakes(JUDGE, forward_through),
    Mistake(
        "ignores the stride",
        ignores_the_stride,
        "Your windows start at every pixel. With a stride of 2 they start at every second one.",
    ),
    Mistake(
        "ignores the dilation",
        ignores_the_dilation,
        "Your windows are dense. With dilation 2 the pixels of a window lie two apart; its first one stays.",
    ),
    Mistake(
        "ignores the groups",
        ignores_the_groups,
        "Every kernel reads the first channels. With groups, each group of kernels has channels of its own: "
        "the first kernels the first channels, the next ones the next.",
    ),
    Mistake(
        "multiplies over all channels",
        multiplies_over_all_channels,
        "With groups a kernel has weights for the channels of its own group only, and your product takes all "
        "channels of the image. Cut both into groups; with `@` that is one more axis.",
        symptom=fails_with_groups,
    ),
    Mistake(
        "deals the channels out",
        deals_channels_out,
        "Your group g takes every groups-th channel. The channels of a group stand side by side: with 4 "
        "channels in 2 groups the first has channels 0 and 1.",
    ),
    Mistake(
        "deals the kernels out",
        deals_kernels_out,
        "Your group g takes every groups-th kernel. The kernels of a group stand side by side: with 6 kernels "
        "in 2 groups the first three read the first half of the channels.",
        symptom=fails_like(JUDGE, deals_kernels_out, deals_kernels_out_and_back),
    ),
    loses_the_dtype(computes_in_float32, "images"),
)
