"""Exercise 06.3: a linear layer whose outputs are shared out among ranks.

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
from lockstep.exercises.lab06.passes import both_passes, even_shares, numbers, right_passes
from lockstep.exercises.observe import Observation, Simulate
from lockstep.exercises.symptoms import matches, says


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


def input_gradient_not_reduced(comm, x, weight, bias):
    return F.linear(x, weight, bias)


def takes_the_mean(comm, x, weight, bias):
    class Copy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):
            return comm.all_reduce(gradient.clone(), op="mean")

    return F.linear(Copy.apply(x), weight, bias)


def reduces_in_forward(comm, x, weight, bias):
    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return comm.all_reduce(x.clone())

        @staticmethod
        def backward(ctx, gradient):
            return comm.all_reduce(gradient.clone())

    return F.linear(Sum.apply(x), weight, bias)


def gathers_the_outputs(comm, x, weight, bias):
    y = column_parallel_linear(comm, x, weight, bias)
    sizes = [int(n) for n in comm.all_gather(torch.tensor([y.shape[1]]))]
    parts = list(comm.all_gather(y.detach().T.contiguous(), sizes).T.split(sizes, dim=1))
    parts[comm.rank] = y
    return torch.cat(parts, dim=1)


def adds_the_outputs_up(comm, x, weight, bias):
    y = column_parallel_linear(comm, x, weight, bias)
    return y + (comm.all_reduce(y.detach().clone()) - y.detach())


def reduces_the_output_gradient(comm, x, weight, bias):
    class Behind(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            return y.view_as(y)

        @staticmethod
        def backward(ctx, gradient):
            return comm.all_reduce(gradient.clone())

    return Behind.apply(F.linear(x, weight, bias))


def reduces_the_weights_too(comm, x, weight, bias):
    class Copy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, tensor):
            return tensor.view_as(tensor)

        @staticmethod
        def backward(ctx, gradient):
            return comm.all_reduce(gradient.clone())

    return F.linear(Copy.apply(x), Copy.apply(weight), Copy.apply(bias))


def forgets_to_transpose(comm, x, weight, bias):
    return x @ weight + bias


def leaves_the_bias_out(comm, x, weight, bias):
    return column_parallel_linear(comm, x, weight, torch.zeros_like(bias))


def takes_a_part_of_the_input(comm, x, weight, bias):
    return column_parallel_linear(comm, x.tensor_split(comm.size, dim=1)[comm.rank], weight, bias)


def returns_a_tensor_without_history(comm, x, weight, bias):
    return F.linear(x, weight, bias).detach()


def pass_through(
    fn: Callable[..., Any], comm: Communicator, weight: Tensor, bias: Tensor, dy: Tensor, x: Tensor, learns: bool
) -> dict[str, Any]:
    """Both passes; `x` is somebody's output unless it is images, which need no gradient."""
    x.requires_grad_(learns)
    return both_passes(lambda x: fn(comm, x, weight, bias), comm, x, dy, {"weight": weight, "bias": bias})


def cases(rng: np.random.Generator) -> Iterator[Case]:
    for ranks, batch, inputs, outputs, learns in (
        (1, 2, 3, 2, True), (2, 1, 2, 2, True), (2, 2, 3, 5, True), (3, 2, 4, 7, False), (4, 3, 5, 8, True),
    ):  # fmt: skip
        each = [
            (numbers(rng, own, inputs), numbers(rng, own), numbers(rng, batch, own))
            for own in even_shares(outputs, ranks)
        ]
        name = f"{outputs} neurons" + ("" if learns else ", x are images without a gradient")
        yield on_ranks(ranks, numbers(rng, batch, inputs), learns, each=each, name=name)


def wrong_shape_of_y(columns: Callable[[Case], list[int]]) -> Any:
    """Each rank's y has as many columns as `columns(case)` says, where it should have others."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        if seen.error is not None or any(getattr(one["y"], "ndim", 0) != 2 for one in seen.value):
            return False
        return [one["y"].shape[1] for one in seen.value] == columns(case) != [e[0].shape[0] for e in case.each]

    return symptom


def all_neurons(case: Case) -> list[int]:
    return [sum(weight.shape[0] for weight, *_ in case.each)] * case.ranks


def sums_outputs(case: Case, seen: Observation, expected: Observation) -> bool:
    """Ranks with unequal numbers of neurons cannot add them up."""
    return seen.error is not None and "all_reduce" in seen.error.message and "float32" in seen.error.message


OBSERVE, JUDGE = Simulate(pass_through), right_passes

COLUMN_PARALLEL = Exercise(
    id="06.3",
    title="Neurons shared out",
    function="column_parallel_linear",
    points=2,
    asks=(
        "`x`, (images, inputs), is the same on every rank. `weight`, (own, inputs), and `bias`, (own,), are this rank's "
        "neurons. Return their outputs, (images, own). After backward `x.grad` is on every rank the gradient that the "
        "whole layer gives, and `weight.grad` and `bias.grad` are those of this rank's neurons. Forward sends nothing, "
        "backward as many bytes as one all-reduce of a tensor like `x`, and nothing when `x` needs no gradient."
    ),
    reference=column_parallel_linear,
    also_right=(column_by_a_hook, column_as_one_function),
    stub=column_parallel_linear_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    hints=(
        (
            "Forward is easy: each neuron needs the whole `x` and its own row of weights, and both are here. Now backward: "
            "through how many ranks' neurons does a number of `x` act on the loss?"
        ),
        (
            "Each rank's backward gives the part of the gradient of `x` that came through its own neurons. The whole is "
            "the sum over the ranks."
        ),
        (
            "You need a function that does nothing forward and adds up over ranks backward, between `x` and the linear "
            "layer. In its backward a clone of the gradient goes into `comm.all_reduce`."
        ),
        "The last line is `return F.linear(CopyToRanks.apply(x), weight, bias)`.",
    ),
    mistakes=by_first_failure(
        OBSERVE,
        JUDGE,
        (
            Mistake(
                "input gradient not reduced",
                input_gradient_not_reduced,
                "The outputs are right, but the gradient of `x` on each rank is only the part that came through this rank's "
                "neurons. The layers before would learn something else on every rank: add the parts up in backward.",
            ),
            Mistake(
                "mean for sum",
                takes_the_mean,
                "You average the parts of the gradient of `x`. They are parts of one sum, over all neurons, and not several "
                "measurements of one thing: add them up.",
            ),
            Mistake(
                "reduces in forward",
                reduces_in_forward,
                "You add up `x` over the ranks in forward. It is the same on all of them, so you get it as many times as "
                "there are ranks. Forward does nothing; the sum belongs into backward.",
            ),
            Mistake(
                "reduces behind the layer",
                reduces_the_output_gradient,
                "You add up the gradients of the *outputs*. Those belong to different neurons on each rank. What the ranks "
                "have in common is `x`: the sum belongs in front of the layer, not behind it.",
                symptom=sums_outputs,
            ),
            Mistake(
                "reduces the weights' gradients too",
                reduces_the_weights_too,
                "You also add up the gradients of the weights. That is data parallel; here each rank has neurons of its own, "
                "and their gradients are nobody else's business.",
                symptom=None,
            ),
            Mistake(
                "gathers the outputs",
                gathers_the_outputs,
                "You put all ranks' neurons together. Asked are only this rank's: whatever acts on each number alone, a ReLU "
                "for instance, can go on with them, and the next layer may be able to as well.",
                symptom=wrong_shape_of_y(all_neurons),
            ),
            Mistake(
                "adds the outputs up",
                adds_the_outputs_up,
                "You add up the outputs over the ranks. They are of different neurons; each rank's are complete as they are.",
            ),
            Mistake(
                "leaves the bias out",
                leaves_the_bias_out,
                "The outputs lack the bias. Each rank has the biases of its own neurons, and adds those.",
            ),
            Mistake(
                "forgets to transpose",
                forgets_to_transpose,
                "`weight` has a row for each neuron, as in `nn.Linear`: the product is `x @ weight.T`, which is what "
                "`F.linear` does.",
                symptom=matches("shapes cannot be multiplied|size of tensor"),
            ),
            Mistake(
                "takes a part of the input",
                takes_a_part_of_the_input,
                "You use only a part of `x`. A column-parallel layer shares out the *outputs*; every neuron needs every input.",
                symptom=says("shapes cannot be multiplied", "(1x1"),
            ),
            Mistake(
                "returns a tensor without history",
                returns_a_tensor_without_history,
                "Backward has nothing to go back through: the tensor that you return has no history. Numbers that went "
                "through `.detach()`, or through `comm` alone, are outside autograd.",
                symptom=says("does not require grad"),
            ),
        ),
    ),
)
