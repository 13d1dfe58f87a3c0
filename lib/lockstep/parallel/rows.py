"""Convolution and pooling with the rows of the image shared out among ranks: neighbours exchange their borders.

Floor 2, room `parallel`. Legend: x (N, C, H, W) of which a rank has some rows; the *halo* of its outputs are the rows
that they need and other ranks have. Each rank has all parameters, and their gradients are added up over ranks.
Source: Dryden et al. 2019, "Improving Strong-Scaling of CNN Training by Exploiting Finer-Grained Parallelism",
section 3.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lockstep.comm import Communicator
from lockstep.parallel.conjugate import copy_to_ranks
from lockstep.parallel.shares import ranges, same_for_all, shares

Range = tuple[int, int]  # (first, end) of rows


class RowParallel2d(nn.Module):
    """`layer`, an nn.Conv2d or nn.MaxPool2d, on images of `height` rows: this rank's rows of x to its rows of y.

    Rows are shared out as `torch.tensor_split` does, those of x and those of y, so layers follow one another with the
    `out_height` of one as the `height` of the next. Rank 0's parameters are taken over. Collective: to build, to run
    forward and backward. ValueError for fewer rows than ranks, in or out, or another padding than zeros.
    """

    def __init__(self, layer: nn.Conv2d | nn.MaxPool2d, comm: Communicator, height: int) -> None:
        super().__init__()
        _check(layer)
        self.layer, self.comm, self.height = layer, comm, height
        extent, self._stride, self._padding = _rows_of(layer)
        self.out_height = (height + 2 * self._padding - extent) // self._stride + 1
        if self.out_height < 1:
            raise ValueError(f"{height} rows with a padding of {self._padding} are fewer than the window's {extent}.")
        self._has = ranges(shares(height, comm.size, "rows"))
        gives = ranges(shares(self.out_height, comm.size, "output rows"))
        self._wants = [
            (first * self._stride - self._padding, (end - 1) * self._stride - self._padding + extent)
            for first, end in gives
        ]
        for parameter in layer.parameters():
            same_for_all(parameter.data, parameter, comm)

    def forward(self, x: Tensor) -> Tensor:
        first, end = self._has[self.comm.rank]
        if x.dim() != 4 or x.shape[2] != end - first:
            raise ValueError(
                f"x is {list(x.shape)}: rank {self.comm.rank} has rows {first} to {end - 1} of {self.height}, "
                f"so x must be (N, C, {end - first}, W)."
            )
        rows = _Halo.apply(x, self.comm, self._has, [self._inside(want) for want in self._wants])
        want, inside = self._wants[self.comm.rank], self._inside(self._wants[self.comm.rank])
        above, below = inside[0] - want[0], want[1] - inside[1]
        if isinstance(self.layer, nn.Conv2d):
            return self._convolve(F.pad(rows, (0, 0, above, below)))
        return self._pool(F.pad(rows, (0, 0, above, below), value=-torch.inf))

    def _inside(self, want: Range) -> Range:
        first = min(max(want[0], 0), self.height)
        return first, max(min(want[1], self.height), first)

    def _convolve(self, rows: Tensor) -> Tensor:
        conv = self.layer
        weight = copy_to_ranks(conv.weight, self.comm)
        bias = None if conv.bias is None else copy_to_ranks(conv.bias, self.comm)
        sides = (0, _pair(conv.padding)[1])
        return F.conv2d(rows, weight, bias, conv.stride, sides, conv.dilation, conv.groups)

    def _pool(self, rows: Tensor) -> Tensor:
        pool = self.layer
        sides = _pair(pool.padding)[1]
        rows = F.pad(rows, (sides, sides), value=-torch.inf)
        return F.max_pool2d(rows, pool.kernel_size, pool.stride, 0, pool.dilation)


class _Halo(torch.autograd.Function):
    """Own rows to wanted rows; backward returns each row's gradient to its owner, which adds them up."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, comm: Communicator, has: list[Range], wants: list[Range]) -> Tensor:
        ctx.comm, ctx.has, ctx.wants = comm, has, wants
        rows = x.new_empty(*x.shape[:2], wants[comm.rank][1] - wants[comm.rank][0], x.shape[3])
        for part, place in _moved(comm, x, has, wants):
            _at(rows, wants[comm.rank], place).copy_(part)
        return rows

    @staticmethod
    def backward(ctx: Any, drows: Tensor) -> tuple[Tensor, None, None, None]:
        comm, has, wants = ctx.comm, ctx.has, ctx.wants
        dx = drows.new_zeros(*drows.shape[:2], has[comm.rank][1] - has[comm.rank][0], drows.shape[3])
        for part, place in _moved(comm, drows, wants, has):
            _at(dx, has[comm.rank], place).add_(part)
        return dx, None, None, None


def _moved(comm: Communicator, x: Tensor, has: list[Range], wants: list[Range]) -> list[tuple[Tensor, Range]]:
    """(rows, which) that this rank wants, from each rank that has some, itself included, in rank order."""
    mine = comm.rank
    sends, recvs, parts = [], [], []
    for rank in range(comm.size):
        out, into = _common(has[mine], wants[rank]), _common(has[rank], wants[mine])
        if rank == mine:
            parts += [(_at(x, has[mine], into), into)] if into else []
            continue
        if out:
            sends.append((_at(x, has[mine], out).contiguous(), rank))
        if into:
            buffer = x.new_empty(*x.shape[:2], into[1] - into[0], x.shape[3])
            recvs.append((buffer, rank))
            parts.append((buffer, into))
    comm.exchange(sends, recvs)
    return parts


def _common(a: Range, b: Range) -> Range | None:
    first, end = max(a[0], b[0]), min(a[1], b[1])
    return (first, end) if first < end else None


def _at(x: Tensor, rows: Range, part: Range) -> Tensor:
    """The view of `part` in `x`, which holds `rows`."""
    return x[:, :, part[0] - rows[0] : part[1] - rows[0]]


def _rows_of(layer: nn.Conv2d | nn.MaxPool2d) -> tuple[int, int, int]:
    """(extent of the window, stride, padding) in rows."""
    kernel, stride, padding, dilation = (
        _pair(each)[0] for each in (layer.kernel_size, layer.stride, layer.padding, layer.dilation)
    )
    return dilation * (kernel - 1) + 1, stride, padding


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


def _check(layer: nn.Module) -> None:
    if not isinstance(layer, nn.Conv2d | nn.MaxPool2d):
        raise TypeError(f"RowParallel2d takes an nn.Conv2d or an nn.MaxPool2d, not {layer!r:.60}")
    if isinstance(layer, nn.Conv2d) and (layer.padding_mode != "zeros" or isinstance(layer.padding, str)):
        raise ValueError(
            f"padding is {layer.padding!r} of mode {layer.padding_mode!r}: give it in numbers, of mode 'zeros'."
        )
    if isinstance(layer, nn.MaxPool2d) and (layer.ceil_mode or layer.return_indices):
        raise ValueError("a max pooling with ceil_mode or return_indices cannot have its rows shared out.")
