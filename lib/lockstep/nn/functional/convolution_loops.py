"""Convolution as its definition: six loops around one multiply-add. Slow, and easy to believe.

Floor 0, room `nn`. Legend as in `convolution.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import torch
from torch import Tensor

from lockstep.nn.functional.convolution import checked
from lockstep.nn.functional.windows import Pair, Windows


def conv2d_loops(
    x_NCHW: Tensor,
    weight_OIRS: Tensor,
    bias_O: Tensor | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
) -> Tensor:
    """As `conv2d`, number by number."""
    windows = checked(x_NCHW, weight_OIRS, bias_O, stride, padding, dilation, groups)
    x, weight = windows.padded(x_NCHW).tolist(), weight_OIRS.tolist()
    shape = (len(x_NCHW), len(weight_OIRS), *windows.output(x_NCHW))
    y = torch.zeros(shape, dtype=torch.float64).tolist()
    for (n, o, p, q), (c, i, h, w), (r, s) in _products(windows, shape, weight_OIRS.shape, groups):
        y[n][o][p][q] += x[n][c][h][w] * weight[o][i][r][s]
    y = torch.tensor(y, dtype=x_NCHW.dtype, device=x_NCHW.device).reshape(shape)
    return y if bias_O is None else y + bias_O.view(-1, 1, 1)


def conv2d_loops_backward(
    grad_NOPQ: Tensor,
    x_NCHW: Tensor,
    weight_OIRS: Tensor,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
) -> tuple[Tensor, Tensor, Tensor]:
    """As `conv2d_backward`: each product of the forward pass hands its gradient to both factors."""
    windows = checked(x_NCHW, weight_OIRS, None, stride, padding, dilation, groups)
    padded = windows.padded(x_NCHW)
    x, weight, grad = padded.tolist(), weight_OIRS.tolist(), grad_NOPQ.tolist()
    dx, dw = (torch.zeros(one.shape, dtype=torch.float64).tolist() for one in (padded, weight_OIRS))
    for (n, o, p, q), (c, i, h, w), (r, s) in _products(windows, grad_NOPQ.shape, weight_OIRS.shape, groups):
        dx[n][c][h][w] += grad[n][o][p][q] * weight[o][i][r][s]
        dw[o][i][r][s] += grad[n][o][p][q] * x[n][c][h][w]
    (ph, pw), (height, width) = windows.padding, x_NCHW.shape[2:]
    dx = x_NCHW.new_tensor(dx).reshape(padded.shape)[:, :, ph : ph + height, pw : pw + width]
    return dx, weight_OIRS.new_tensor(dw).reshape(weight_OIRS.shape), grad_NOPQ.sum((0, 2, 3))


def _products(windows: Windows, output: tuple[int, ...], weight: tuple[int, ...], groups: int) -> Iterator[tuple]:
    """Each product: its place in the output, in the padded input (i: channel within the group), in the kernel."""
    (sh, sw), (dh, dw) = windows.stride, windows.dilation
    outputs, inputs, rows, columns = weight
    for n, o, p, q in product(*map(range, output)):
        first = o // (outputs // groups) * inputs  # the first input channel of this output channel's group
        for i, r, s in product(range(inputs), range(rows), range(columns)):
            yield (n, o, p, q), (first + i, i, p * sh + r * dh, q * sw + s * dw), (r, s)
