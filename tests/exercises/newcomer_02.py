"""What somebody who solved lab 02 for the first time wrote on the way, and the words that the verdict must hold.

Each once passed although it is wrong, or got no cause. `FOUND` lists (exercise, function, words).
"""

import numpy as np
import torch
from torch.nn.functional import pad

from lockstep.exercises import find

size_of = find("02.1").reference


def geometry(x, weight, stride, padding, dilation):
    """Sizes of the output, and the images in their frame."""
    p, q = (size_of(x.shape[a], weight.shape[a], stride, padding, dilation) for a in (2, 3))
    return p, q, pad(x, (padding,) * 4)


def slices(framed, weight, p, q, stride, dilation):
    r, s = weight.shape[2:]
    return [
        framed[..., a * dilation :: stride, b * dilation :: stride][..., :p, :q] for a in range(r) for b in range(s)
    ]


# 02.1


def int_cuts_towards_zero(size, kernel, stride, padding, dilation):
    return max(0, int((size + 2 * padding - (kernel - 1) * dilation - 1) / stride) + 1)


def rounds_to_the_nearest(size, kernel, stride, padding, dilation):
    return max(0, round((size + 2 * padding - (kernel - 1) * dilation - 1) / stride) + 1)


def whole_but_a_float(size, kernel, stride, padding, dilation):
    return max(0.0, (size + 2 * padding - (kernel - 1) * dilation - 1) / stride // 1 + 1)


def whole_but_numpys_float(size, kernel, stride, padding, dilation):
    return max(np.float64(0), np.floor((size + 2 * padding - (kernel - 1) * dilation - 1) / stride) + 1)


def covered_without_dilation_where_nothing_fits(size, kernel, stride, padding, dilation):
    room = size + 2 * padding - (kernel - 1) * dilation - 1
    return 0 if size + 2 * padding < kernel else room // stride + 1


# 02.2


def sums_in_a_float32(x, weight, bias, stride, padding, dilation, groups):
    n, (o, i, r, s) = len(x), weight.shape
    p, q, framed = geometry(x, weight, stride, padding, dilation)
    columns = torch.stack(slices(framed, weight, p, q, stride, dilation), 2)
    y, g = torch.zeros(n, o, p, q), o // groups
    for k in range(groups):
        part = columns[:, k * i : (k + 1) * i].reshape(n, i * r * s, p * q)
        y[:, k * g : (k + 1) * g] = (weight[k * g : (k + 1) * g].reshape(g, -1) @ part).reshape(n, g, p, q)
    return y + bias.reshape(1, -1, 1, 1)


def _forward(slice_of=None, columns_of=None, kernels_of=None):
    def conv2d_forward(x, weight, bias, stride, padding, dilation, groups):
        n, (o, i, r, s) = len(x), weight.shape
        p, q, framed = geometry(x, weight, stride, padding, dilation)
        rows = slices(framed, weight, p, q, stride, dilation)
        if slice_of is not None:
            rows = [slice_of(framed, a, b, p, q, stride, dilation) for a in range(r) for b in range(s)]
        columns = torch.stack(rows, dim=2)
        columns = columns.reshape(n, groups, i * r * s, p * q) if columns_of is None else columns_of(columns, groups)
        kernels = weight.reshape(groups, o // groups, -1) if kernels_of is None else kernels_of(weight, groups)
        return (kernels @ columns).reshape(n, o, p, q) + bias[:, None, None]

    return conv2d_forward


slice_end_forgets_where_it_begins = _forward(
    lambda x, a, b, p, q, stride, d: x[..., a * d : a + p * stride : stride, b * d : b + q * stride : stride]
)
dilation_in_rows_only = _forward(lambda x, a, b, p, q, stride, d: x[..., a * d :: stride, b::stride][..., :p, :q])
dilation_in_columns_only = _forward(lambda x, a, b, p, q, stride, d: x[..., a::stride, b * d :: stride][..., :p, :q])
stride_in_columns_only = _forward(lambda x, a, b, p, q, stride, d: x[..., a * d :, b * d :: stride][..., :p, :q])
images_and_channels_mixed = _forward(
    columns_of=lambda columns, groups: columns.permute(1, 2, 0, 3, 4).reshape(
        groups, columns.shape[1] * columns.shape[2] // groups, -1
    )
)
kernels_dealt_out = _forward(
    kernels_of=lambda weight, groups: weight.reshape(len(weight) // groups, groups, -1).transpose(0, 1)
)


def adds_into_what_it_was_given(x, weight, bias, stride, padding, dilation, groups):
    y = find("02.2").reference(x, weight, bias, stride, padding, dilation, groups)
    x += 1
    return y


# 02.3


def _backward(dweight_of=lambda dw: dw.sum(0), zeros=torch.zeros_like, places_outside=False, columns_outside=False):
    def conv2d_backward(grad, x, weight, stride, padding, dilation, groups):
        n, c, h, w = x.shape
        o, i, r, s = weight.shape
        p, q, framed = geometry(x, weight, stride, padding, dilation)
        read = slices(framed, weight, p, q, stride, dilation)
        columns = torch.stack(read, dim=1 if columns_outside else 2).reshape(n, groups, i * r * s, p * q)
        dy = grad.reshape(n, groups, o // groups, p * q)
        dweight = dweight_of(dy @ columns.transpose(-1, -2))
        dcolumns = weight.reshape(groups, o // groups, -1).transpose(-1, -2) @ dy
        if places_outside:
            dcolumns = dcolumns.reshape(n, r, s, c, p, q).permute(0, 3, 1, 2, 4, 5)
        dcolumns, dx = dcolumns.reshape(n, c, r, s, p, q), zeros(framed)
        for a in range(r):
            for b in range(s):
                rows = slice(a * dilation, a * dilation + p * stride, stride)
                dx[..., rows, b * dilation : b * dilation + q * stride : stride] += dcolumns[:, :, a, b]
        return dx[..., padding : padding + h, padding : padding + w], dweight.reshape(weight.shape), grad.sum((0, 2, 3))

    return conv2d_backward


dweight_not_summed_over_images = _backward(dweight_of=lambda dw: dw)
zeros_of_the_default_dtype = _backward(zeros=lambda framed: torch.zeros(framed.shape))
places_outside_in_dx = _backward(places_outside=True)
places_outside_in_dweight = _backward(columns_outside=True)


def a_dweight_for_each_image(grad, x, weight, *how):
    dx, _, dbias = find("02.3").reference(grad, x, weight, *how)
    one_by_one = zip(grad.split(1), x.split(1), strict=True)
    return dx, torch.stack([find("02.3").reference(*one, weight, *how)[1] for one in one_by_one]), dbias


# 02.4, 02.6


def zeros_in_pooling(grad, x, kernel, stride):
    dx = torch.zeros(x.shape)
    return dx + find("02.4").reference(grad, x, kernel, stride).float()


def gradient_of_the_default_dtype(logits, labels):
    loss, gradient = find("02.6").reference(logits, labels)
    rows = torch.zeros(logits.shape)
    rows[:] = gradient
    return loss, rows


def shifts_the_logits_in_place(logits, labels):
    logits -= logits.max(dim=1, keepdim=True).values
    return find("02.6").reference(logits, labels)


FOUND = [
    ("02.1", int_cuts_towards_zero, ["towards zero"]),
    ("02.1", rounds_to_the_nearest, ["hang over the edge"]),
    ("02.1", whole_but_a_float, ["stays whole"]),
    ("02.1", whole_but_numpys_float, ["stays whole"]),
    ("02.1", covered_without_dilation_where_nothing_fits, ["return 0"]),
    ("02.2", sums_in_a_float32, ["float32 unless"]),
    ("02.2", slice_end_forgets_where_it_begins, ["the end moves with the beginning"]),
    ("02.2", dilation_in_rows_only, ["Dilation counts for rows and columns"]),
    ("02.2", dilation_in_columns_only, ["Dilation counts for rows and columns"]),
    ("02.2", stride_in_columns_only, ["stride counts for rows and columns"]),
    ("02.2", images_and_channels_mixed, ["`transpose` does"]),
    ("02.2", kernels_dealt_out, ["groups-th kernel"]),
    ("02.2", adds_into_what_it_was_given, ["is right, but the function changes `x` itself"]),
    ("02.3", dweight_not_summed_over_images, ["sum over the first axis"]),
    ("02.3", a_dweight_for_each_image, ["sum over the first axis"]),
    ("02.3", zeros_of_the_default_dtype, ["float32 unless"]),
    ("02.3", places_outside_in_dx, ["place in the kernel outside"]),
    ("02.3", places_outside_in_dweight, ["place in the kernel outside"]),
    ("02.4", zeros_in_pooling, ["float32 unless"]),
    ("02.6", gradient_of_the_default_dtype, ["float32 unless"]),
    ("02.6", shifts_the_logits_in_place, ["is right, but the function changes `logits` itself"]),
]  # fmt: skip
