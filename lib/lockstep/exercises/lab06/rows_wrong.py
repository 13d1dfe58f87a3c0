"""Exercise 06.4: wrong solutions that students write; their sentences are in `rows_mistakes.py`.

Floor 4, room `exercises`.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from lockstep.exercises.lab06.functions import passed
from lockstep.exercises.lab06.rows_right import row_parallel_linear


def _summed(comm, y, op="sum", backward=False):
    """The sum over ranks, inside autograd; `backward`: gradients are added up too."""

    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            return comm.all_reduce(y.clone(), op=op)

        @staticmethod
        def backward(ctx, gradient):
            return comm.all_reduce(gradient.clone()) if backward else gradient

    return Sum.apply(y)


def adds_the_bias_on_every_rank(comm, x, weight, bias):
    return _summed(comm, F.linear(x, weight, bias))


def gives_each_rank_a_share_of_the_bias(comm, x, weight, bias):
    return _summed(comm, F.linear(x, weight, bias / comm.size))


def adds_the_bias_on_rank_0_alone(comm, x, weight, bias):
    return _summed(comm, F.linear(x, weight, bias if comm.rank == 0 else bias.detach() * 0))


def reduces_backward_as_well(comm, x, weight, bias):
    return _summed(comm, F.linear(x, weight), backward=True) + bias


def never_adds_up(comm, x, weight, bias):
    return F.linear(x, weight, bias)


def takes_the_mean(comm, x, weight, bias):
    return _summed(comm, F.linear(x, weight), op="mean") + bias


def gathers_inputs_and_weights(comm, x, weight, bias):
    sizes = [int(n) for n in comm.all_gather(torch.tensor([x.shape[1]]))]
    xs = list(comm.all_gather(x.detach().T.contiguous(), sizes).T.split(sizes, dim=1))
    weights = list(comm.all_gather(weight.detach().T.contiguous(), sizes).T.split(sizes, dim=1))
    xs[comm.rank], weights[comm.rank] = x, weight
    return F.linear(torch.cat(xs, dim=1), torch.cat(weights, dim=1), bias)


def gathers_the_products(comm, x, weight, bias):
    own = F.linear(x, weight)
    parts = list(comm.all_gather(own.detach().unsqueeze(0).contiguous()))
    parts[comm.rank] = own
    return sum(parts) + bias


def sums_outside_autograd(comm, x, weight, bias):
    return comm.all_reduce(F.linear(x, weight).detach()) + bias


def reduces_the_input(comm, x, weight, bias):
    return F.linear(_summed(comm, x), weight, bias)


def leaves_the_bias_out(comm, x, weight, bias):
    return _summed(comm, F.linear(x, weight))


def reduces_backward_only(comm, x, weight, bias):
    return passed(F.linear(x, weight), lambda g: comm.all_reduce(g.clone())) + bias


def averages_backward(comm, x, weight, bias):
    def mean(gradient):
        return comm.all_reduce(gradient.clone(), op="mean")

    return passed(F.linear(x, weight), mean, lambda y: comm.all_reduce(y.clone())) + bias


def divides_backward(comm, x, weight, bias):
    return passed(F.linear(x, weight), lambda g: g / comm.size, lambda y: comm.all_reduce(y.clone())) + bias


def gives_the_sum_to_rank_0_alone(comm, x, weight, bias):
    own = F.linear(x, weight)
    total = comm.all_reduce(own.detach().clone())
    return own + (total - own.detach() if comm.rank == 0 else 0) + bias


def counts_its_own_terms_twice(comm, x, weight, bias):
    own = F.linear(x, weight)
    return own + comm.all_reduce(own.detach().clone()) + bias


def reduces_the_bias_gradient(comm, x, weight, bias):
    return row_parallel_linear(comm, x, weight, passed(bias, lambda g: comm.all_reduce(g.clone())))


def reduces_the_weight_gradient(comm, x, weight, bias):
    return row_parallel_linear(comm, x, passed(weight, lambda g: comm.all_reduce(g.clone())), bias)


def takes_a_part_of_its_part(comm, x, weight, bias):
    own = weight.shape[1]
    return row_parallel_linear(comm, x[:, comm.rank * own : (comm.rank + 1) * own], weight, bias)


def forgets_to_transpose(comm, x, weight, bias):
    return _summed(comm, x @ weight) + bias


def by_way_of(step):
    """The layer with `step` where its Function stands."""
    return lambda comm, x, weight, bias: step(comm, F.linear(x, weight)) + bias


def without_weight(comm, x, weight, bias):
    return row_parallel_linear(comm, x, weight.detach(), bias)
