"""Pooling: the largest, or the mean, of each window.

Floor 0, room `nn`; read `windows.py` first. Legend: N images, C channels, H x W input, P x Q output.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lockstep.nn.functional.windows import Pair, Windows, pair


def max_pool2d(
    x_NCHW: Tensor, kernel: Pair, stride: Pair | None = None, padding: Pair = 0, dilation: Pair = 1
) -> tuple[Tensor, Tensor]:
    """The largest number of each window, (N, C, P, Q), and where it was: its index among the H W pixels of its channel.

    Of equal numbers the first counts, row by row, as in torch. stride: the kernel's size by default. Raises ValueError
    when no window fits, for a padding of more than half the kernel, and when a window holds no pixel.
    """
    windows = _pooling(kernel, stride, padding, dilation)
    (p, q), (height, width) = windows.output(x_NCHW), x_NCHW.shape[2:]
    padded = windows.padded(x_NCHW, float("-inf"))
    y, place = torch.stack([padded[:, :, rows, columns] for rows, columns in windows.places(p, q)]).max(dim=0)
    index, inside = _pixels(windows, p, q, height, width, x_NCHW.device)
    if not bool(inside.any(dim=0).all()):
        raise ValueError("a window holds nothing but padding; use less padding or less dilation")
    if windows.padding != (0, 0):  # where all pixels are -inf, the padding is no larger and does not count
        place = torch.where(y == float("-inf"), inside.to(torch.int8).argmax(dim=0), place)
    return y, (index[:, 0, 0] - index[0, 0, 0])[place] + index[0]


def _pixels(windows: Windows, p: int, q: int, height: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """(R S, P, Q) twice: the index of the pixel that each place of each window meets, and whether it is in the image.

    From one place to the next the index grows alike in all windows.
    """
    index, inside = [], []
    for rows, columns in windows.places(p, q):
        row = torch.arange(rows.start, rows.stop, rows.step, device=device).view(-1, 1) - windows.padding[0]
        column = torch.arange(columns.start, columns.stop, columns.step, device=device) - windows.padding[1]
        index.append(row * width + column)
        inside.append((row >= 0) & (row < height) & (column >= 0) & (column < width))
    return torch.stack(index), torch.stack(inside)


def max_pool2d_backward(grad_NCPQ: Tensor, where_NCPQ: Tensor, height: int, width: int) -> Tensor:
    """(N, C, H, W): each output hands its gradient to the pixel it came from; windows that share a pixel add up.

    where: as `max_pool2d` returns it. Raises ValueError when it has another shape than the gradient.
    """
    if grad_NCPQ.shape != where_NCPQ.shape:
        raise ValueError(
            f"gradient and places must have one shape; they have {list(grad_NCPQ.shape)} and {list(where_NCPQ.shape)}"
        )
    n, c = grad_NCPQ.shape[:2]
    dx = grad_NCPQ.new_zeros(n, c, height * width)
    return dx.scatter_add_(2, where_NCPQ.flatten(2), grad_NCPQ.flatten(2)).view(n, c, height, width)


def avg_pool2d(x_NCHW: Tensor, kernel: Pair, stride: Pair | None = None, padding: Pair = 0) -> Tensor:
    """The mean of each window, (N, C, P, Q); padding counts as zeros. Raises ValueError as `max_pool2d`."""
    windows = _pooling(kernel, stride, padding, 1)
    windows.output(x_NCHW)
    return windows.im2col(x_NCHW).mean(dim=(2, 3))


def avg_pool2d_backward(
    grad_NCPQ: Tensor, height: int, width: int, kernel: Pair, stride: Pair | None = None, padding: Pair = 0
) -> Tensor:
    """(N, C, H, W): each output hands an equal part of its gradient to every pixel of its window."""
    windows = _pooling(kernel, stride, padding, 1)
    r, s = windows.kernel
    n, c, p, q = grad_NCPQ.shape
    return windows.col2im((grad_NCPQ / (r * s)).view(n, c, 1, 1, p, q).expand(n, c, r, s, p, q), height, width)


def adaptive_avg_pool2d(x_NCHW: Tensor, size: Pair) -> Tensor:
    """Means over areas that cover the image, `size` of them down and across: (N, C, P, Q).

    Area i of p begins at floor(i H / p) and ends before ceil((i + 1) H / p), as in torch.
    """
    p, q = pair("size", size, 1)
    rows, columns = _areas(x_NCHW, x_NCHW.shape[2], p), _areas(x_NCHW, x_NCHW.shape[3], q)
    return rows @ x_NCHW @ columns.T


def adaptive_avg_pool2d_backward(grad_NCPQ: Tensor, height: int, width: int) -> Tensor:
    """(N, C, H, W), from the gradient of the means."""
    p, q = grad_NCPQ.shape[2:]
    return _areas(grad_NCPQ, height, p).T @ grad_NCPQ @ _areas(grad_NCPQ, width, q)


def _areas(like: Tensor, size: int, many: int) -> Tensor:
    """(many, size): row i averages area i."""
    pixel, area = torch.arange(size, device=like.device), torch.arange(many, device=like.device).view(-1, 1)
    inside = ((pixel >= area * size // many) & (pixel * many < (area + 1) * size)).to(like.dtype)
    return inside / inside.sum(1, keepdim=True)


def _pooling(kernel: Pair, stride: Pair | None, padding: Pair, dilation: Pair) -> Windows:
    windows = Windows.of(kernel, kernel if stride is None else stride, padding, dilation)
    if any(2 * p > k for p, k in zip(windows.padding, windows.kernel, strict=True)):
        raise ValueError(f"padding {windows.padding} is more than half of the kernel {windows.kernel}")
    return windows
