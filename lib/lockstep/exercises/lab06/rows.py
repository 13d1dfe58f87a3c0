"""Exercise 06.4: a linear layer whose inputs are shared out, alone and as the second of a pair.

Floor 4, room `exercises`; what it shares with its neighbours is in `passes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from lockstep.comm import Communicator
from lockstep.exercises.exercise import Case, Exercise, Mistake, on_ranks
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab06.columns import column_parallel_linear
from lockstep.exercises.lab06.passes import both_passes, even_shares, numbers, right_passes
from lockstep.exercises.observe import Observation, Simulate
from lockstep.exercises.symptoms import says


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


def pass_through(
    fn: Callable[..., Any],
    comm: Communicator,
    weight: Tensor,
    first: Tensor,
    first_bias: Tensor,
    own_x: Tensor,
    x: Tensor,
    bias: Tensor,
    dy: Tensor,
    pair: bool,
) -> dict[str, Any]:
    """Both passes, through `fn` alone on this rank's features, or behind a column-parallel layer and a ReLU."""
    learning = {"weight": weight, "bias": bias}
    if not pair:
        return both_passes(lambda h: fn(comm, h, weight, bias), comm, own_x.requires_grad_(), dy, learning)

    def forward(x: Tensor) -> Tensor:
        return fn(comm, torch.relu(column_parallel_linear(comm, x, first, first_bias)), weight, bias)

    return both_passes(forward, comm, x.requires_grad_(), dy, learning | {"the first layer's weight": first})


def cases(rng: np.random.Generator) -> Iterator[Case]:
    for ranks, batch, inputs, hidden, outputs, pair in (
        (1, 2, 2, 3, 2, False), (2, 1, 3, 2, 2, False), (3, 2, 3, 7, 4, False), (3, 2, 4, 5, 3, True),
        (4, 3, 5, 8, 2, True),
    ):  # fmt: skip
        each = [
            (numbers(rng, outputs, own), numbers(rng, own, inputs), numbers(rng, own), numbers(rng, batch, own))
            for own in even_shares(hidden, ranks)
        ]
        shared = (numbers(rng, batch, inputs), numbers(rng, outputs), numbers(rng, batch, outputs), pair)
        name = f"a pair with {hidden} neurons between" if pair else f"{hidden} inputs"
        yield on_ranks(ranks, *shared, each=each, name=name)


def bias_times_ranks(case: Case, seen: Observation, expected: Observation) -> bool:
    """y is too large by the bias, once for each rank but one."""
    if seen.error is not None or case.ranks < 2 or getattr(seen.value[0]["y"], "shape", None) is None:
        return False
    got, want, bias = seen.value[0]["y"], expected.value[0]["y"], case.args[1]
    return got.shape == want.shape and torch.allclose(got - want, (case.ranks - 1) * bias, atol=1e-4)


OBSERVE, JUDGE = Simulate(pass_through), right_passes

ROW_PARALLEL = Exercise(
    id="06.4",
    title="Inputs shared out, and the pair",
    function="row_parallel_linear",
    points=2,
    asks=(
        "`x`, (images, own), are this rank's features; `weight`, (outputs, own), has the columns that go with them; `bias`, "
        "(outputs,), is the same on all ranks. Return the outputs of the whole layer, (images, outputs), on every rank. "
        "Backward begins with the same gradient everywhere; after it `x.grad`, `weight.grad` and `bias.grad` are parts of "
        "the whole layer's. Forward sends as much as one all-reduce of the outputs, backward nothing, so that a pair "
        "of column- and row-parallel layers has one all-reduce each way."
    ),
    reference=row_parallel_linear,
    also_right=(row_with_the_others_as_constants, row_as_one_function),
    stub=row_parallel_linear_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    hints=(
        (
            "An output is a sum over all inputs. Each rank can add up its own terms. What is missing then, and which "
            "collective gives it to everybody?"
        ),
        (
            "Now backward. Behind the sum every rank goes on alike, so each one already has the whole gradient of the "
            "output. What is left to send?"
        ),
        (
            "A `torch.autograd.Function` again: forward returns an all-reduced clone of the partial sums, backward gives the "
            "gradient back as it is. The bias is no part of the sum."
        ),
        "The last line is `return SumOverRanks.apply(F.linear(x, weight)) + bias`.",
    ),
    mistakes=by_first_failure(
        OBSERVE,
        JUDGE,
        (
            Mistake(
                "bias added on every rank",
                adds_the_bias_on_every_rank,
                "The bias is in the sum as often as there are ranks: each adds it to its partial sums, and then the partial "
                "sums are added up. It has to come once, after the all-reduce.",
                symptom=bias_times_ranks,
            ),
            Mistake(
                "gives each rank a share of the bias",
                gives_each_rank_a_share_of_the_bias,
                "Forward is right: the shares of the bias add up to the bias. But each rank's gradient of it is divided as "
                "well, so the bias would learn too slowly. Add the whole bias after the sum.",
            ),
            Mistake(
                "bias on rank 0 alone",
                adds_the_bias_on_rank_0_alone,
                "The outputs are right, but only rank 0's copy of the bias gets a gradient. Every rank has the same bias and "
                "should keep the same: add it after the sum, on all of them.",
            ),
            Mistake(
                "reduces backward as well",
                reduces_backward_as_well,
                "Your gradients are too large, by the number of ranks. In lab 05 each rank had a loss of its own, and the "
                "gradients were added up. Here all ranks compute the *same* loss behind the sum, so each already has the "
                "whole gradient.",
            ),
            Mistake(
                "never adds up",
                never_adds_up,
                "The outputs are partial sums: each rank's inputs alone, without the other ranks' terms. One all-reduce adds "
                "them up.",
            ),
            Mistake(
                "mean for sum",
                takes_the_mean,
                "You average the partial sums. They are terms of one sum over all inputs, so add them up.",
            ),
            Mistake(
                "gathers between the pair",
                gathers_inputs_and_weights,
                "The numbers are right, but you gather everybody's features (and weights) and multiply them all on every rank. "
                "Nothing has to be put together between the two layers: each rank multiplies its own part, and only the "
                "results are added up.",
            ),
            Mistake(
                "gathers the partial sums",
                gathers_the_products,
                "The numbers are right, but every rank gets every other rank's partial sums and adds them up itself. An "
                "all-reduce adds on the way and sends fewer bytes.",
            ),
            Mistake(
                "sums outside autograd",
                sums_outside_autograd,
                "Forward is right, but backward stops at the all-reduce: `comm` is outside autograd, and what it gives has no "
                "history. Wrap it in a `torch.autograd.Function`.",
            ),
            Mistake(
                "reduces the inputs",
                reduces_the_input,
                "You add up `x` over the ranks before the product. These are different features on each rank; it is the "
                "products that are added up.",
                symptom=says("all_reduce(sum) of float32"),
            ),
            Mistake(
                "leaves the bias out",
                leaves_the_bias_out,
                "The outputs lack the bias. It is added once, to the sum.",
            ),
        ),
    ),
)
