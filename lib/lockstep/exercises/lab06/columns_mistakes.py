"""Exercise 06.3: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; the exercise is in `columns.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.lab06.columns_right import column_parallel_linear
from lockstep.exercises.lab06.functions import function_mistakes, input_is_cut_off, passed
from lockstep.exercises.observe import Observation
from lockstep.exercises.symptoms import matches, says


def input_gradient_not_reduced(comm, x, weight, bias):
    return F.linear(x, weight, bias)


def gathers_the_outputs(comm, x, weight, bias):
    y = column_parallel_linear(comm, x, weight, bias)
    sizes = [int(n) for n in comm.all_gather(torch.tensor([y.shape[1]]))]
    parts = list(comm.all_gather(y.detach().T.contiguous(), sizes).T.split(sizes, dim=1))
    parts[comm.rank] = y
    return torch.cat(parts, dim=1)


def adds_the_outputs_up(comm, x, weight, bias):
    y = column_parallel_linear(comm, x, weight, bias)
    return y + (comm.all_reduce(y.detach().clone()) - y.detach())


def forgets_to_transpose(comm, x, weight, bias):
    return x @ weight + bias


def leaves_the_bias_out(comm, x, weight, bias):
    return column_parallel_linear(comm, x, weight, torch.zeros_like(bias))


def takes_a_part_of_the_input(comm, x, weight, bias):
    return column_parallel_linear(comm, x.tensor_split(comm.size, dim=1)[comm.rank], weight, bias)


def returns_a_tensor_without_history(comm, x, weight, bias):
    return F.linear(x, weight, bias).detach()


def takes_the_mean(comm, x, weight, bias):
    return F.linear(passed(x, lambda g: comm.all_reduce(g.clone(), op="mean")), weight, bias)


def multiplies_by_the_ranks(comm, x, weight, bias):
    return F.linear(passed(x, lambda g: g * comm.size), weight, bias)


def adds_up_twice(comm, x, weight, bias):
    return F.linear(passed(x, lambda g: comm.all_reduce(comm.all_reduce(g.clone()))), weight, bias)


def gives_no_gradient(comm, x, weight, bias):
    return F.linear(passed(x, lambda g: None), weight, bias)


def reduces_in_forward(comm, x, weight, bias):
    return F.linear(passed(x, lambda g: comm.all_reduce(g.clone()), lambda x: comm.all_reduce(x.clone())), weight, bias)


def reduces_the_output_gradient(comm, x, weight, bias):
    return passed(F.linear(x, weight, bias), lambda g: comm.all_reduce(g.clone()))


def reduces_the_weights_too(comm, x, weight, bias):
    return F.linear(*(passed(one, lambda g: comm.all_reduce(g.clone())) for one in (x, weight, bias)))


def hooks_images_too(comm, x, weight, bias):
    x.register_hook(lambda g: comm.all_reduce(g.clone()))
    return F.linear(x, weight, bias)


def by_way_of(step):
    """The layer with `step` where its Function stands."""
    return lambda comm, x, weight, bias: F.linear(step(comm, x), weight, bias)


def without_weight(comm, x, weight, bias):
    return column_parallel_linear(comm, x, weight.detach(), bias)


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


def lacks_biases(case: Case, seen: Observation, expected: Observation) -> bool:
    """y is too small by the bias, on some ranks or on all."""
    if seen.error is not None or any(not isinstance(one["y"], Tensor) for one in seen.value):
        return False
    gaps = [want["y"] - got["y"] for got, want in zip(seen.value, expected.value, strict=True) if _alike(got, want)]
    short = [
        torch.allclose(gap, bias.expand_as(gap), atol=1e-4) for gap, (_, bias, _) in zip(gaps, case.each, strict=False)
    ]
    right = [torch.allclose(gap, torch.zeros_like(gap), atol=1e-4) for gap in gaps]
    return len(gaps) == case.ranks and any(short) and all(s or r for s, r in zip(short, right, strict=True))


def _alike(got: dict[str, Any], want: dict[str, Any]) -> bool:
    return got["y"].shape == want["y"].shape


MISTAKES = (
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
        symptom=lacks_biases,
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
    Mistake(
        "backward gives nothing",
        gives_no_gradient,
        "`x` gets no gradient: either `backward` of your Function has no `return`, or the layer works with an `x` that was "
        "detached.",
        symptom=input_is_cut_off,
    ),
    Mistake(
        "multiplies by the number of ranks",
        multiplies_by_the_ranks,
        "You multiply your own part of the gradient of `x` by the number of ranks. The other ranks' parts came through "
        "other neurons and are other numbers: add those up.",
    ),
    Mistake(
        "adds up twice",
        adds_up_twice,
        "The parts of the gradient of `x` are added up twice, so it is too large by the number of ranks. One all-reduce is "
        "enough.",
    ),
    Mistake(
        "hooks images too",
        hooks_images_too,
        "Images need no gradient, and a tensor that needs none takes no hook. Register it only if `x.requires_grad`, or use "
        "a `torch.autograd.Function`, which is left out by itself then.",
        symptom=says("register a hook"),
    ),
    *function_mistakes(by_way_of, without_weight, "CopyToRanks"),
)
