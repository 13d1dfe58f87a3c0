"""Exercise 06.4: right solutions, written independently, and the stub.

Floor 4, room `exercises`; the exercise is in `rows.py`.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F


def row_parallel_linear(comm, x, weight, bias):
    class SumOverRanks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            return comm.all_reduce(y.clone())

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    return SumOverRanks.apply(F.linear(x, weight)) + bias


def row_with_the_others_as_constants(comm, x, weight, bias):
    own = x @ weight.T
    others = comm.all_reduce(own.detach().clone()) - own.detach()
    return own + others + bias


def row_as_one_function(comm, x, weight, bias):
    class Linear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight, bias):
            ctx.save_for_backward(x, weight)
            partial = x.mm(weight.t())
            parts = partial.flatten().tensor_split(comm.size)
            own = comm.reduce_scatter(partial)
            return comm.all_gather(own, [len(part) for part in parts]).view_as(partial) + bias

        @staticmethod
        def backward(ctx, dy):
            x, weight = ctx.saved_tensors
            return dy.mm(weight), dy.t().mm(x), dy.sum(0)

    return Linear.apply(x, weight, bias)


def row_parallel_linear_stub(comm, x, weight, bias):
    raise NotImplementedError("return all features of the output, the same on every rank")
