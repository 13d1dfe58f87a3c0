"""Exercise 06.4: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; the exercise is in `rows.py`, the wrong solutions are in `rows_wrong.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lockstep.exercises.compare import differs
from lockstep.exercises.exercise import Case, Mistake, Symptom
from lockstep.exercises.lab06.functions import function_mistakes
from lockstep.exercises.lab06.rows_wrong import (
    adds_the_bias_on_every_rank,
    adds_the_bias_on_rank_0_alone,
    averages_backward,
    by_way_of,
    counts_its_own_terms_twice,
    divides_backward,
    forgets_to_transpose,
    gathers_inputs_and_weights,
    gathers_the_products,
    gives_each_rank_a_share_of_the_bias,
    gives_the_sum_to_rank_0_alone,
    leaves_the_bias_out,
    never_adds_up,
    reduces_backward_as_well,
    reduces_backward_only,
    reduces_the_bias_gradient,
    reduces_the_input,
    reduces_the_weight_gradient,
    sums_outside_autograd,
    takes_a_part_of_its_part,
    takes_the_mean,
    without_weight,
)
from lockstep.exercises.observe import Observation
from lockstep.exercises.symptoms import says


def bias_times_ranks(case: Case, seen: Observation, expected: Observation) -> bool:
    """y is too large by the bias, once for each rank but one."""
    if seen.error is not None or case.ranks < 2 or getattr(seen.value[0]["y"], "shape", None) is None:
        return False
    got, want, bias = seen.value[0]["y"], expected.value[0]["y"], case.args[1]
    return got.shape == want.shape and torch.allclose(got - want, (case.ranks - 1) * bias, atol=1e-4)


def one_bias_learns(case: Case, seen: Observation, expected: Observation) -> bool:
    """The bias has its gradient on one rank, and none, or zeros, on the others."""
    if seen.error is not None or case.ranks < 2 or any(not isinstance(one["y"], Tensor) for one in seen.value):
        return False
    gradients = [one["the gradient of bias"] for one in seen.value]
    return sum(g is not None and bool(g.any()) for g in gradients) == 1


def one_rank_has_the_sum(case: Case, seen: Observation, expected: Observation) -> bool:
    """y is right on one rank alone."""
    if seen.error is not None or case.ranks < 2:
        return False
    pairs = [(got["y"], want["y"]) for got, want in zip(seen.value, expected.value, strict=True)]
    return sum(isinstance(y, Tensor) and differs(y, want, 1e-4, 1e-5) is None for y, want in pairs) == 1


def sends_backward_alone(case: Case, seen: Observation, expected: Observation) -> bool:
    """Nothing is sent forward, and something backward."""
    if seen.error is not None:
        return False
    return not any(one["forward"] for one in seen.value) and any(one["backward"] for one in seen.value)


def cannot_multiply(alone: bool) -> Symptom:
    """A product of shapes that do not fit, on the only rank or only where there are several."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        unfit = seen.error is not None and "cannot be multiplied" in seen.error.message
        return unfit and (case.ranks == 1) is alone

    return symptom


MISTAKES = (
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
        "The outputs are right, but only one rank's copy of the bias gets a gradient. Every rank has the same bias and "
        "should keep the same: add it after the sum, on all of them.",
        symptom=one_bias_learns,
    ),
    Mistake(
        "reduces backward as well",
        reduces_backward_as_well,
        "Your gradients are too large, by the number of ranks. In lab 05 each rank had a loss of its own, and the "
        "gradients were added up. Here all ranks compute the *same* loss behind the sum, so each already has the "
        "whole gradient.",
    ),
    Mistake(
        "reduces backward only",
        reduces_backward_only,
        "You have it the other way round: that is the function of 06.3, which does nothing forward and adds up backward. "
        "Here the *outputs* are added up, forward.",
        symptom=sends_backward_alone,
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
        "history. Wrap it in a `torch.autograd.Function`, whose `backward` returns a gradient.",
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
    Mistake(
        "averages backward",
        averages_backward,
        "The numbers are right, but backward averages gradients that are the same on every rank already. Give the one that "
        "you have.",
    ),
    Mistake(
        "divides backward",
        divides_backward,
        "You divide the gradient by the number of ranks. In lab 05 each rank had images of its own, and a mean was asked; here "
        "each rank has features of its own, and the gradient behind the sum is already that of every term.",
    ),
    Mistake(
        "gives the sum to one rank",
        gives_the_sum_to_rank_0_alone,
        "One rank has the whole sum, and the others have not. All go on with it: an all-reduce gives it to everybody.",
        symptom=one_rank_has_the_sum,
    ),
    Mistake(
        "counts its own terms twice",
        counts_its_own_terms_twice,
        "Each rank adds its own terms to a sum that holds them already.",
    ),
    Mistake(
        "adds up the bias' gradient",
        reduces_the_bias_gradient,
        "The gradient of the bias is too large, by the number of ranks. Behind the sum every rank has the whole gradient, "
        "and the bias with it: nothing has to be added up.",
    ),
    Mistake(
        "adds up the weights' gradients",
        reduces_the_weight_gradient,
        "You add up the gradients of the weights. That is data parallel; here each rank has weights of its own.",
    ),
    Mistake(
        "takes a part of its part",
        takes_a_part_of_its_part,
        "You cut this rank's part out of `x` once more. `x` already holds this rank's features alone, as many as `weight` "
        "has columns.",
        symptom=cannot_multiply(alone=False),
    ),
    Mistake(
        "forgets to transpose",
        forgets_to_transpose,
        "`weight` has a row for each output, as in `nn.Linear`: the product is `x @ weight.T`, which is what `F.linear` "
        "does.",
        symptom=cannot_multiply(alone=True),
    ),
    *function_mistakes(by_way_of, without_weight, "SumOverRanks"),
)
