"""Convolution as a matrix product: im2col, then one GEMM for some images at a time.

Floor 0, room `nn`; read `windows.py` first, and `convolution_loops.py` for what is computed. Legend: N images, G
groups, I input channels of a group, C = G I, O output channels of all groups, R x S kernel, P x Q output.
Source: Chellapilla, Puri, Simard 2006, "High performance convolutional neural networks for document processing".
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from lockstep.nn.functional.windows import Pair, Windows

COLUMNS = 1024  # that the matrix of one GEMM should have: wide enough for a fast product
NUMBERS = 2**19  # that it may hold in any case: enough to be worth the calls, few enough to stay in the cache


def conv2d(
    x_NCHW: Tensor,
    weight_OIRS: Tensor,
    bias_O: Tensor | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
) -> Tensor:
    """The convolution (in fact correlation, as everywhere in deep learning) of images with kernels: (N, O, P, Q).

    Raises ValueError when shapes, groups or dtypes do not fit together and when the output would be empty.
    """
    windows = checked(x_NCHW, weight_OIRS, bias_O, stride, padding, dilation, groups)
    p, q = windows.output(x_NCHW)
    n, o = len(x_NCHW), len(weight_OIRS)
    y = x_NCHW.new_empty(n, o, p, q)
    weight = weight_OIRS.reshape(groups, o // groups, -1)
    for some in _some_images(n, p * q, weight_OIRS[0].numel() * groups):
        columns = _matrix(windows.im2col(x_NCHW[some]), groups)
        y[some] = torch.bmm(weight, columns).view(o, -1, p, q).transpose(0, 1)
    return y if bias_O is None else y.add_(bias_O.view(-1, 1, 1))


def conv2d_backward(
    grad_NOPQ: Tensor,
    x_NCHW: Tensor,
    weight_OIRS: Tensor,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients for input, weight and bias, from that of the output. Raises ValueError as `conv2d` does.

    With Y = W X for the columns X: dW = dY X^T, dX = W^T dY, and dX goes back to the pixels by col2im.
    """
    windows = checked(x_NCHW, weight_OIRS, None, stride, padding, dilation, groups)
    p, q = windows.output(x_NCHW)
    n, (o, i, r, s) = len(x_NCHW), weight_OIRS.shape
    if grad_NOPQ.shape != (n, o, p, q):
        raise ValueError(f"the output has the shape {[n, o, p, q]}, its gradient {list(grad_NOPQ.shape)}")
    weight = weight_OIRS.reshape(groups, o // groups, -1)
    dx, dw = torch.empty_like(x_NCHW), torch.zeros_like(weight)
    for some in _some_images(n, p * q, weight_OIRS[0].numel() * groups):
        dy = grad_NOPQ[some].transpose(0, 1).reshape(groups, o // groups, -1)
        dw.baddbmm_(dy, _matrix(windows.im2col(x_NCHW[some]), groups).transpose(1, 2))
        columns = torch.bmm(weight.transpose(1, 2), dy).view(groups * i, r, s, -1, p, q)
        dx[some] = windows.col2im(columns.permute(3, 0, 1, 2, 4, 5), *x_NCHW.shape[2:])
    return dx, dw.view_as(weight_OIRS), grad_NOPQ.sum((0, 2, 3))


def _some_images(n: int, pixels: int, rows: int) -> Iterator[slice]:
    """Slices of the batch; the columns of an image make a matrix of `rows` x `pixels`."""
    step = max(1, COLUMNS // pixels, NUMBERS // (pixels * rows))
    return (slice(start, start + step) for start in range(0, n, step))


def _matrix(columns_NCRSPQ: Tensor, groups: int) -> Tensor:
    """(G, I R S, N P Q): a column for each window, all images side by side."""
    n, c, r, s, p, q = columns_NCRSPQ.shape
    return columns_NCRSPQ.permute(1, 2, 3, 0, 4, 5).reshape(groups, c // groups * r * s, n * p * q)


def checked(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> Windows:
    """The windows of a convolution whose arguments fit together. Raises ValueError, with the values, if not."""
    if x.dim() != 4 or weight.dim() != 4:
        raise ValueError(
            f"images come as (N, C, H, W) and kernels as (O, I, R, S); these have the shapes {list(x.shape)} and "
            f"{list(weight.shape)}"
        )
    c, (o, i) = x.shape[1], weight.shape[:2]
    if type(groups) is not int or groups < 1 or c % groups or o % groups:
        raise ValueError(f"groups must divide the {c} input and the {o} output channels; it is {groups!r}")
    if i != c // groups:
        raise ValueError(
            f"with {c} channels in {groups} group(s) a kernel takes {c // groups} channels, but the weight of shape "
            f"{list(weight.shape)} takes {i}"
        )
    if bias is not None and bias.shape != (o,):
        raise ValueError(f"there are {o} output channels, but the bias has the shape {list(bias.shape)}")
    if len({one.dtype for one in (x, weight, bias) if one is not None}) > 1:
        raise ValueError(f"input and weight must be of one dtype; they are {x.dtype} and {weight.dtype}")
    return Windows.of(tuple(weight.shape[2:]), stride, padding, dilation)
