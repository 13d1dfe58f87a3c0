"""Exercise 06.3: right solutions, written independently, and the stub.

Floor 4, room `exercises`; the exercise is in `columns.py`.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F


def column_parallel_linear(comm, x, weight, bias):
    class CopyToRanks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):
            return comm.all_reduce(gradient.clone())

    return F.linear(CopyToRanks.apply(x), weight, bias)


def column_by_a_hook(comm, x, weight, bias):
    if x.requires_grad:
        x = x * 1
        x.register_hook(lambda gradient: comm.all_reduce(gradient.contiguous().clone()))
    return x @ weight.T + bias


def column_as_one_function(comm, x, weight, bias):
    class Linear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight, bias):
            ctx.save_for_backward(x, weight)
            return torch.addmm(bias, x, weight.t())

        @staticmethod
        def backward(ctx, dy):
            x, weight = ctx.saved_tensors
            dx = None
            if ctx.needs_input_grad[0]:
                dx = dy.mm(weight)
                rows = dx.tensor_split(comm.size)
                own = comm.reduce_scatter(dx, sizes=[part.numel() for part in rows])
                dx = comm.all_gather(own, [part.numel() for part in rows]).view_as(dx)
            return dx, dy.t().mm(x), dy.sum(dim=0)

    return Linear.apply(x, weight, bias)


def column_parallel_linear_stub(comm, x, weight, bias):
    class CopyToRanks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x): ...

        @staticmethod
        def backward(ctx, gradient): ...

    raise NotImplementedError("return this rank's features of the output")
