"""Communication that gradients flow through: each of these is another one's backward.

Floor 2, room `parallel`. A tensor is *whole* when every rank has all of it, *split* when rank r has the r-th part along
one dimension, and *partial* when the ranks' tensors must be added up to give it.

| function                      | forward              | backward             |
|-------------------------------|----------------------|----------------------|
| `copy_to_ranks`    whole      | nothing              | all-reduce           |
| `sum_over_ranks`   partial -> whole | all-reduce     | nothing              |
| `gather_from_ranks` split -> whole  | all-gather     | own part             |
| `split_to_ranks`   whole -> split   | own part       | all-gather           |

Behind `sum_over_ranks` and `gather_from_ranks` every rank must go on alike, since each computes the whole gradient
itself. Source: Shoeybi et al. 2019, "Megatron-LM", section 3, where the first two are called f and g.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lockstep.comm import Communicator


def copy_to_ranks(x: Tensor, comm: Communicator) -> Tensor:
    """`x`, which is whole and of which each rank uses a part; the parts' gradients are added up."""
    return _Copy.apply(x, comm)


def sum_over_ranks(x: Tensor, comm: Communicator) -> Tensor:
    """The sum of the ranks' `x`, whole."""
    return _Sum.apply(x, comm)


def gather_from_ranks(x: Tensor, comm: Communicator, dim: int, sizes: Sequence[int]) -> Tensor:
    """The ranks' `x` joined along `dim`, where rank r has sizes[r]."""
    return _Gather.apply(x, comm, dim, tuple(sizes))


def split_to_ranks(x: Tensor, comm: Communicator, dim: int, sizes: Sequence[int]) -> Tensor:
    """This rank's part, sizes[rank] along `dim`, of `x`, which is whole."""
    return _Split.apply(x, comm, dim, tuple(sizes))


def joined(x: Tensor, comm: Communicator, dim: int, sizes: Sequence[int]) -> Tensor:
    """The ranks' `x` joined along `dim`, without gradients: an all-gather along dimension 0 of the transposed."""
    return comm.all_gather(x.detach().movedim(dim, 0).contiguous(), sizes).movedim(0, dim).contiguous()


def own_part(x: Tensor, rank: int, dim: int, sizes: Sequence[int]) -> Tensor:
    """The view of sizes[rank] along `dim` that belongs to `rank`."""
    return x.narrow(dim, sum(sizes[:rank]), sizes[rank])


class _Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, comm: Communicator) -> Tensor:
        ctx.comm = comm
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
        return ctx.comm.all_reduce(dy.clone(memory_format=torch.contiguous_format)), None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, comm: Communicator) -> Tensor:
        return comm.all_reduce(x.detach().clone(memory_format=torch.contiguous_format))

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
        return dy, None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, comm: Communicator, dim: int, sizes: tuple[int, ...]) -> Tensor:
        ctx.place = comm.rank, dim, sizes
        return joined(x, comm, dim, sizes)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None, None]:
        return own_part(dy, *ctx.place), None, None, None


class _Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, comm: Communicator, dim: int, sizes: tuple[int, ...]) -> Tensor:
        ctx.place = comm, dim, sizes
        return own_part(x, comm.rank, dim, sizes).contiguous()

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None, None]:
        return joined(dy, *ctx.place), None, None, None
