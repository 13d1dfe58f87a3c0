"""02.2 `conv2d_forward`: right ways, and the skeleton.

Floor 4, room `exercises`; the exercise is in `convolution.py`.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from lockstep.exercises.lab02.output_size import output_size


def conv2d_forward(x, weight, bias, stride, padding, dilation, groups):
    n, (o, i, r, s) = len(x), weight.shape
    p, q = (output_size(x.shape[a], weight.shape[a], stride, padding, dilation) for a in (2, 3))
    padded = F.pad(x, (padding, padding, padding, padding))
    columns = []
    for a in range(0, r * dilation, dilation):
        for b in range(0, s * dilation, dilation):
            columns.append(padded[:, :, a : a + stride * p : stride, b : b + stride * q : stride])
    columns = torch.stack(columns, dim=2).reshape(n, groups, i * r * s, p * q)
    kernels = weight.reshape(groups, o // groups, i * r * s)
    return (kernels @ columns).reshape(n, o, p, q) + bias.reshape(o, 1, 1)


def by_a_sum_over_the_kernel(x, weight, bias, stride, padding, dilation, groups):
    """No columns at all: for each place of the kernel one product of channels, added up."""
    (n, c, h, w), (r, s) = x.shape, weight.shape[2:]
    p = (h + 2 * padding - dilation * (r - 1) - 1) // stride + 1
    q = (w + 2 * padding - dilation * (s - 1) - 1) // stride + 1
    padded = x.new_zeros(n, c, h + 2 * padding, w + 2 * padding)
    padded[:, :, padding : padding + h, padding : padding + w] = x
    parts = []
    for images, kernels in zip(padded.chunk(groups, 1), weight.chunk(groups, 0), strict=True):
        y = 0
        for a in range(r):
            for b in range(s):
                rows, columns = torch.arange(p) * stride + a * dilation, torch.arange(q) * stride + b * dilation
                y = y + torch.einsum("oi,nipq->nopq", kernels[:, :, a, b], images[:, :, rows][..., columns])
        parts.append(y)
    return torch.cat(parts, 1) + bias[None, :, None, None]


def by_views_of_the_windows(x, weight, bias, stride, padding, dilation, groups):
    o, i, r, s = weight.shape
    x = F.pad(x, [padding] * 4)
    for axis, k in ((2, r), (3, s)):
        x = x.unfold(axis, dilation * (k - 1) + 1, stride)[..., ::dilation]
    n, _, p, q = x.shape[:4]
    windows = x.reshape(n, groups, i, p, q, r, s)
    y = torch.einsum("ngipqrs,goirs->ngopq", windows, weight.view(groups, o // groups, i, r, s))
    return y.flatten(1, 2) + bias.view(-1, 1, 1)


def by_loops(x, weight, bias, stride, padding, dilation, groups):
    n, (o, i, r, s) = len(x), weight.shape
    padded = F.pad(x, (padding,) * 4)
    p, q = ((size - dilation * (k - 1) - 1) // stride + 1 for size, k in zip(padded.shape[2:], (r, s), strict=True))
    y = bias.view(1, o, 1, 1).repeat(n, 1, p, q)
    for out in range(o):
        first = out // (o // groups) * i
        for row in range(p):
            for column in range(q):
                top, left = row * stride, column * stride
                window = padded[:, first : first + i, top:, left:][:, :, ::dilation, ::dilation][:, :, :r, :s]
                y[:, out, row, column] += (window * weight[out]).sum((1, 2, 3))
    return y


def conv2d_forward_stub(x, weight, bias, stride, padding, dilation, groups):
    raise NotImplementedError("pad, gather the columns, multiply, add the bias")
