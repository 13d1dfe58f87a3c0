"""What students get wrong in the backward pass of a convolution.

Floor 4, room `exercises`; a part of 02.3. Each is the right answer with one thing changed.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.judge import Judge
from lockstep.exercises.lab02.parts import fails_like, loses_the_dtype, wrong_shape
from lockstep.exercises.lab02.slices import backward_through, slice_mistakes
from lockstep.exercises.observe import Observation

Backward = Callable[..., tuple[Tensor, Tensor, Tensor]]


def mistakes(right: Backward, judge: Judge) -> tuple[Mistake, ...]:
    """The mistakes, made from the right solution."""

    def keeps_the_frame(grad, x, weight, stride, padding, dilation, groups):
        dx, dweight, dbias = right(grad, F.pad(x, [padding] * 4), weight, stride, 0, dilation, groups)
        return dx, dweight, dbias

    def cuts_off_everything(grad, x, weight, stride, padding, dilation, groups):
        dx, dweight, dbias = right(grad, F.pad(x, [padding] * 4), weight, stride, 0, dilation, groups)
        return dx[:, :, padding:-padding, padding:-padding], dweight, dbias

    def cuts_the_wrong_corner(grad, x, weight, stride, padding, dilation, groups):
        dx, dweight, dbias = right(grad, F.pad(x, [padding] * 4), weight, stride, 0, dilation, groups)
        return dx[:, :, : x.shape[2], : x.shape[3]], dweight, dbias

    def overwrites_where_windows_overlap(grad, x, weight, stride, padding, dilation, groups):
        _, dweight, dbias = right(grad, x, weight, stride, padding, dilation, groups)
        (n, c, h, w), (p, q), o = x.shape, grad.shape[2:], len(weight)
        dx = x.new_zeros(n, c, h + 2 * padding, w + 2 * padding)
        for a in range(weight.shape[2]):
            for b in range(weight.shape[3]):
                kernels = weight[:, :, a, b].reshape(groups, o // groups, -1).transpose(1, 2)
                part = (kernels @ grad.reshape(n, groups, o // groups, p * q)).reshape(n, c, p, q)
                rows = slice(a * dilation, a * dilation + stride * p, stride)
                dx[:, :, rows, b * dilation : b * dilation + stride * q : stride] = part
        return dx[:, :, padding : padding + h, padding : padding + w], dweight, dbias

    def turns_the_kernel(grad, x, weight, stride, padding, dilation, groups):
        dx, _, _ = right(grad, x, weight.flip(2, 3), stride, padding, dilation, groups)
        return dx, *right(grad, x, weight, stride, padding, dilation, groups)[1:]

    def weight_for_gradient(grad, x, weight, stride, padding, dilation, groups):
        dx, dweight, dbias = right(grad, x, weight, stride, padding, dilation, groups)
        return dx, dweight.flip(2, 3), dbias

    def averages_over_the_images(grad, x, weight, stride, padding, dilation, groups):
        dx, dweight, dbias = right(grad, x, weight, stride, padding, dilation, groups)
        return dx, dweight / len(x), dbias / len(x)

    def averages_the_bias(grad, x, weight, stride, padding, dilation, groups):
        dx, dweight, _ = right(grad, x, weight, stride, padding, dilation, groups)
        return dx, dweight, grad.mean((0, 2, 3))

    def averages_over_everything(grad, x, weight, stride, padding, dilation, groups):
        dx, dweight, dbias = right(grad, x, weight, stride, padding, dilation, groups)
        pixels = grad.numel() // grad.shape[1]
        return dx, dweight / pixels, dbias / pixels

    def bias_for_each_pixel(grad, x, weight, stride, padding, dilation, groups):
        dx, dweight, _ = right(grad, x, weight, stride, padding, dilation, groups)
        return dx, dweight, grad.sum(0)

    def only_the_last_image(grad, x, weight, stride, padding, dilation, groups):
        dx, _, dbias = right(grad, x, weight, stride, padding, dilation, groups)
        return dx, right(grad[-1:], x[-1:], weight, stride, padding, dilation, groups)[1], dbias

    def ignores_padding_in_the_weights(grad, x, weight, stride, padding, dilation, groups):
        dx, _, dbias = right(grad, x, weight, stride, padding, dilation, groups)
        shifted = F.pad(x, (0, 2 * padding, 0, 2 * padding))
        return dx, right(grad, shifted, weight, stride, 0, dilation, groups)[1], dbias

    def ignores_the_stride(grad, x, weight, stride, padding, dilation, groups):
        return right(grad, x, weight, 1, padding, dilation, groups)

    def ignores_the_dilation(grad, x, weight, stride, padding, dilation, groups):
        return right(grad, x, weight, stride, padding, 1, groups)

    def deals_channels_out(grad, x, weight, stride, padding, dilation, groups):
        order = torch.cat([torch.arange(g, x.shape[1], groups) for g in range(groups)])
        dx, dweight, dbias = right(grad, x[:, order], weight, stride, padding, dilation, groups)
        return dx[:, order.argsort()], dweight, dbias

    def multiplies_over_all_channels(grad, x, weight, stride, padding, dilation, groups):
        return right(grad, x, weight, stride, padding, dilation, 1)

    def deals_kernels_out(grad, x, weight, stride, padding, dilation, groups):
        order = torch.cat([torch.arange(g, len(weight), groups) for g in range(groups)])
        dx, dweight, dbias = right(grad[:, order], x, weight[order], stride, padding, dilation, groups)
        return dx, dweight[order.argsort()], dbias

    def deals_the_weight_out(grad, x, weight, stride, padding, dilation, groups):
        order = torch.cat([torch.arange(g, len(weight), groups) for g in range(groups)])
        dx, dweight, dbias = right(grad, x, weight[order], stride, padding, dilation, groups)
        return dx, dweight[order.argsort()], dbias

    def one_weight_for_each_image(grad, x, weight, stride, padding, dilation, groups):
        dx, dweight, dbias = right(grad, x, weight, stride, padding, dilation, groups)
        pairs = zip(grad.split(1), x.split(1), strict=True)
        each = [right(*one, weight, stride, padding, dilation, groups)[1] for one in pairs]
        return dx, torch.stack(each).reshape(weight.shape), dbias

    def dx_with_places_outside(grad, x, weight, stride, padding, dilation, groups):
        o, i, r, s = weight.shape
        mixed = weight.reshape(groups, o // groups, i * r * s).transpose(0, 1).reshape(o // groups, r * s, groups * i)
        mixed = mixed.permute(0, 2, 1).reshape(o // groups, groups, i, r, s).transpose(0, 1).reshape(o, i, r, s)
        _, dweight, dbias = right(grad, x, weight, stride, padding, dilation, groups)
        return right(grad, x, mixed, stride, padding, dilation, groups)[0], dweight, dbias

    def dweight_with_places_outside(grad, x, weight, stride, padding, dilation, groups):
        o, i, r, s = weight.shape
        dx, dweight, dbias = right(grad, x, weight, stride, padding, dilation, groups)
        return dx, dweight.flatten(2).transpose(1, 2).reshape(o, i, r, s), dbias

    def computes_in_float32(grad, x, weight, stride, padding, dilation, groups):
        return tuple(one.float() for one in right(grad, x, weight, stride, padding, dilation, groups))

    def in_another_order(grad, x, weight, stride, padding, dilation, groups):
        dx, dweight, dbias = right(grad, x, weight, stride, padding, dilation, groups)
        return dweight, dx, dbias

    return (
        Mistake(
            "in another order",
            in_another_order,
            "The gradient for the weights stands first. The order is that of the arguments of the forward pass: "
            "images, weight, bias.",
            symptom=wrong_shape(0, lambda case, got, want: got.shape == case.args[2].shape),
        ),
        Mistake(
            "keeps the frame",
            keeps_the_frame,
            "Your dx is as large as the padded image. The frame of zeros was no input: cut it off, on all four sides.",
            symptom=wrong_shape(0, _with_a_frame),
        ),
        Mistake(
            "cuts off everything",
            cuts_off_everything,
            "Nothing is left of your dx. `[padding:-padding]` is empty where padding is 0, since -0 is 0 and not the "
            "end: say `padding : padding + h`.",
            symptom=wrong_shape(0, lambda case, got, want: got.numel() == 0),
        ),
        Mistake(
            "cuts the wrong corner",
            cuts_the_wrong_corner,
            "Your dx is shifted. In the padded image the first pixel stands at (padding, padding): cut the frame off "
            "on all four sides, not only to the right and below.",
        ),
        Mistake(
            "overwrites where windows overlap",
            overwrites_where_windows_overlap,
            "A pixel lies in several windows, and the gradient of each has to be *added* to what is there already. "
            "Yours keeps the last one only: `+=`, not `=`.",
        ),
        Mistake(
            "turns the kernel",
            turns_the_kernel,
            "Your dx meets a kernel that is turned round. Whoever writes dx as a convolution of `grad` has to turn it; "
            "whoever sends each product back to its own pixel has not. You do one and need the other.",
        ),
        Mistake(
            "gradient of the weights turned round",
            weight_for_gradient,
            "Your dweight is turned round: what belongs to the first place of the kernel stands at its last.",
        ),
        Mistake(
            "averages over the images",
            averages_over_the_images,
            "Your weights get the mean over the images. Each image adds its part, so it is a sum; if the loss is a "
            "mean, `grad` has been divided already.",
        ),
        Mistake(
            "averages over everything",
            averages_over_everything,
            "Your weights get a mean over images and pixels. A weight takes part in the output at every pixel, and "
            "each of them adds its part: a sum.",
        ),
        Mistake(
            "averages the bias",
            averages_the_bias,
            "The bias is added at every pixel of every image, and each of them adds to its gradient: a sum, no mean.",
        ),
        Mistake(
            "a bias for each pixel",
            bias_for_each_pixel,
            "Your dbias has still an axis for the pixels. There is one bias for a whole channel: sum over images, rows "
            "and columns.",
            symptom=wrong_shape(2, lambda case, got, want: got.dim() > 1),
        ),
        Mistake(
            "only the last image",
            only_the_last_image,
            "Your dweight is that of the last image alone. Each image adds its part: `+=`, or a sum over the first "
            "axis.",
        ),
        Mistake(
            "forgets the padding in the weights",
            ignores_padding_in_the_weights,
            "dweight is a product of `grad` with what the forward pass *read*: the padded image, in which everything "
            "stands `padding` further down and to the right.",
        ),
        Mistake(
            "ignores the stride",
            ignores_the_stride,
            "With a stride of 1 you are right. Window (p, q) begins at row p * stride and column q * stride; the "
            "slices of the forward pass say so.",
        ),
        Mistake(
            "ignores the dilation",
            ignores_the_dilation,
            "With dilation 1 you are right. Place (a, b) of the kernel meets the pixel a * dilation further down.",
        ),
        Mistake(
            "deals the channels out",
            deals_channels_out,
            "Your group g has every groups-th channel. The channels of a group stand side by side, as in the forward "
            "pass.",
        ),
        Mistake(
            "multiplies over all channels",
            multiplies_over_all_channels,
            "With groups, a kernel has weights for the channels of its own group only. Cut `grad` by its output "
            "channels, the images by theirs, and keep the groups apart: with `@` that is one more axis.",
            symptom=lambda case, seen, expected: (
                seen.error is not None and seen.error.type == "RuntimeError" and case.args[-1] > 1
            ),
        ),
        Mistake(
            "deals the kernels out",
            deals_kernels_out,
            "Your group g takes every groups-th kernel. The kernels of a group stand side by side, in `weight` and "
            "in `grad`.",
            symptom=fails_like(judge, deals_kernels_out, deals_the_weight_out),
        ),
        Mistake(
            "a weight for each image",
            one_weight_for_each_image,
            "Your dweight has one gradient for each image. All images met the same weights, and each adds its part: "
            "sum over the first axis.",
            symptom=_one_for_each_image,
        ),
        Mistake(
            "channels and places of the kernel mixed up",
            dx_with_places_outside,
            "The rows of your matrix have the place in the kernel outside and the channel inside, or you read them so. "
            "The kernel has it the other way round, (I, R, S): the first axis to split off is that of the channels.",
            symptom=fails_like(judge, dx_with_places_outside, dweight_with_places_outside),
        ),
        *slice_mistakes(judge, backward_through),
        loses_the_dtype(computes_in_float32, "images and `grad`"),
    )


def _one_for_each_image(case: Case, seen: Observation, expected: Observation) -> bool:
    """dweight has N times as many numbers as it should, or they did not fit into its shape."""
    images, weight = len(case.args[1]), case.args[2]
    if seen.error is not None:
        return images > 1 and f"is invalid for input of size {images * weight.numel()}" in seen.error.message
    more = wrong_shape(
        1, lambda case, got, want: got.shape[1:] == want.shape or images > 1 and got.numel() == images * want.numel()
    )
    return more(case, seen, expected)


def _with_a_frame(case: Case, got: Tensor, want: Tensor) -> bool:
    padding = case.args[4]
    return padding > 0 and tuple(got.shape[2:]) == tuple(side + 2 * padding for side in want.shape[2:])
