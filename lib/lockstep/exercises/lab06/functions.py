"""What students get wrong with `torch.autograd.Function` and with parameters, whichever split they write.

Floor 4, room `exercises`, used by 06.3, 06.4 and 06.5.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lockstep.comm import Communicator
from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.observe import Observation
from lockstep.exercises.symptoms import matches, says

Step = Callable[[Communicator, Tensor], Tensor]


def passed(
    x: Tensor,
    backward: Callable[[Tensor], Tensor | None] = lambda gradient: gradient,
    forward: Callable[[Tensor], Tensor] = torch.clone,
) -> Tensor:
    """`x` through a Function with these two passes."""

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return forward(x)

        @staticmethod
        def backward(ctx, gradient):
            return backward(gradient)

    return Function.apply(x)


def one_gradient_too_few(comm: Communicator, x: Tensor) -> Tensor:
    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, comm):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    return Function.apply(x, comm)


def calls_the_class(comm: Communicator, x: Tensor) -> Tensor:
    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    with warnings.catch_warnings():  # torch's own, which a notebook shows
        warnings.simplefilter("ignore", DeprecationWarning)
        return Function()(x)


def leaves_ctx_out(comm: Communicator, x: Tensor) -> Tensor:
    class Function(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x.clone()

        @staticmethod
        def backward(gradient):
            return gradient

    return Function.apply(x)


def gives(name: str, case: Case, seen: Observation) -> list[bool]:
    """By rank, whether `name` has a gradient; all False where there was none to ask for."""
    if seen.error is not None or any(not isinstance(one["y"], Tensor) for one in seen.value):
        return [False] * case.ranks
    return [one[f"the gradient of {name}"] is not None for one in seen.value]


def parameters_are_cut_off(case: Case, seen: Observation, expected: Observation) -> bool:
    """x has its gradient on every rank, and weight or bias has none on any."""
    if not all(gives("x", case, seen)):
        return False
    return any(not any(gives(name, case, seen)) for name in ("weight", "bias"))


def input_is_cut_off(case: Case, seen: Observation, expected: Observation) -> bool:
    """x has no gradient on any rank though it should, and the bias has."""
    wanted = expected.value[0]["the gradient of x"] is not None
    return wanted and all(gives("bias", case, seen)) and not any(gives("x", case, seen))


def function_mistakes(
    around: Callable[[Step], Callable[..., Any]], without_weight: Callable[..., Any], within: str
) -> tuple[Mistake, ...]:
    """The mistakes for one exercise.

    around(step): a right solution with `step(comm, x)` in the place of its Function, whose name is `within`.
    without_weight: a right solution, but for a detached weight.
    """
    return (
        Mistake(
            "one gradient too few",
            around(one_gradient_too_few),
            "`backward` of a Function returns a value for each argument of its `forward` behind `ctx`, and None for one "
            "that has no gradient, such as `comm`.",
            symptom=says("incorrect number of gradients"),
        ),
        Mistake(
            "calls the class instead of apply",
            around(calls_the_class),
            f"A Function is not called: `{within}.apply(...)` runs its forward and remembers its backward.",
            symptom=matches("(?i)autograd function.*(deprecated|instantiat)"),
        ),
        Mistake(
            "leaves ctx out",
            around(leaves_ctx_out),
            "`forward` and `backward` of a Function get `ctx` as their first argument, before the tensors.",
            symptom=matches(r"(forward|backward)\(\) (takes|missing)"),
        ),
        Mistake(
            "cuts the parameters off",
            without_weight,
            "The weight or the bias gets no gradient, so it is not part of what you compute with: `.detach()`, `.data` and a "
            "new `nn.Linear` each make another tensor of the same numbers.",
            symptom=parameters_are_cut_off,
        ),
    )
