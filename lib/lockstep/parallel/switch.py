"""From images shared out to features shared out, and back, with gradients that go the other way.

Floor 2, room `parallel`. Read `conjugate` first, whose words these are. A layer that works on its own part of a *whole*
tensor gives a partial gradient of it, which the parts' owners need added up: an all-gather turns into a reduce-scatter,
half of the all-reduce that `copy_to_ranks` sends. An all-to-all turns into another one.

| function        | forward                                              | backward       |
|-----------------|------------------------------------------------------|----------------|
| `gather_shared` split -> whole, used in parts         | all-gather           | reduce-scatter |
| `swap_split`    columns shared out -> rows shared out | all-to-all           | all-to-all     |

Source: Krizhevsky 2014, "One weird trick for parallelizing convolutional neural networks", section 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lockstep.comm import Communicator
from lockstep.parallel.conjugate import joined


def gather_shared(x: Tensor, comm: Communicator, dim: int, sizes: Sequence[int]) -> Tensor:
    """The ranks' `x` joined along `dim`, where rank r has sizes[r], for a layer that differs by rank."""
    return _GatherShared.apply(x, comm, dim, tuple(sizes))


def swap_split(x: Tensor, comm: Communicator, rows: Sequence[int], columns: Sequence[int]) -> Tensor:
    """x, (all rows, columns[rank]), to (rows[rank], all columns)."""
    return _SwapSplit.apply(x, comm, tuple(rows), tuple(columns))


def summed_part(x: Tensor, comm: Communicator, dim: int, sizes: Sequence[int]) -> Tensor:
    """This rank's part, sizes[rank] along `dim`, of the sum of the ranks' `x`: a reduce-scatter, without gradients."""
    moved = x.detach().movedim(dim, 0).contiguous()
    own = comm.reduce_scatter(moved, sizes=elements_of_rows(moved, sizes))
    return own.view(sizes[comm.rank], *moved.shape[1:]).movedim(0, dim)


def elements_of_rows(x: Tensor, sizes: Sequence[int]) -> list[int]:
    """How many elements `sizes` rows of `x` have each."""
    return [size * x.shape[1:].numel() for size in sizes]


class _GatherShared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, comm: Communicator, dim: int, sizes: tuple[int, ...]) -> Tensor:
        ctx.place = comm, dim, sizes
        return joined(x, comm, dim, sizes)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None, None]:
        return summed_part(dy, *ctx.place), None, None, None


class _SwapSplit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, comm: Communicator, rows: tuple[int, ...], columns: tuple[int, ...]) -> Tensor:
        ctx.place = comm, rows, columns
        of_others, of_mine = _blocks(comm, rows, columns)
        blocks = comm.all_to_all(x.detach().reshape(-1), of_others, of_mine).split(of_mine)
        own = rows[comm.rank]
        return torch.cat([block.view(own, width) for block, width in zip(blocks, columns, strict=True)], dim=1)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None, None]:
        comm, rows, columns = ctx.place
        of_others, of_mine = _blocks(comm, rows, columns)
        flat = torch.cat([block.reshape(-1) for block in dy.split(columns, dim=1)])
        dx = comm.all_to_all(flat, of_mine, of_others)
        return dx.view(sum(rows), columns[comm.rank]), None, None, None


def _blocks(comm: Communicator, rows: Sequence[int], columns: Sequence[int]) -> tuple[list[int], list[int]]:
    """Elements of each rank's rows in this rank's columns, and of this rank's rows in each rank's columns."""
    own_rows, own_columns = rows[comm.rank], columns[comm.rank]
    return [n * own_columns for n in rows], [own_rows * n for n in columns]
