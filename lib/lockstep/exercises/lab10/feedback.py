"""10.4 `error_feedback`: what was not sent is kept and sent later.

Floor 4, room `exercises`. The lab's own exchange is given to the function, draws its random numbers anew at each call,
and notes what it was given. Judged over several steps: what was sent and what is left add up to the gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.exercises.compare import differs
from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import Finding, all_of
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab10.feedback_mistakes import MISTAKES
from lockstep.exercises.observe import Call, Observation
from lockstep.exercises.plain import kind, short


def error_feedback(average, g, residual):
    corrected = g + residual
    mean, sent = average(corrected)
    return mean, corrected - sent


def in_the_residuals_memory(average, g, residual):
    residual += g
    mean, sent = average(residual)
    residual.sub_(sent)
    return mean, residual


def with_a_clone(average, g, residual):
    asked = torch.add(residual, g)
    result = average(asked.clone())
    return result[0], asked.sub(result[1])


def error_feedback_stub(average, g, residual):
    raise NotImplementedError("the mean of what all ranks sent, and what is left of this rank's gradient")


class Exchange:
    """Sends about half of the numbers, at places drawn anew at each call and rounded to quarters; others send as well."""

    def __init__(self, seed: int) -> None:
        self.random = torch.Generator().manual_seed(seed)
        self.given: list[Tensor] = []
        self.sent: list[Tensor] = []

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.given.append(x.detach().clone())
        chosen = torch.rand(x.shape, generator=self.random) < 0.5
        sent = torch.where(chosen, (4 * x.detach()).round() / 4, 0)
        of_others = torch.randn(x.shape, generator=self.random, dtype=x.dtype)
        self.sent.append(sent.clone())
        return (sent + of_others) / 2, sent


def some_steps(fn: Callable[..., Any], gradients: Sequence[Tensor], seed: int) -> dict[str, Any]:
    """By step: what the exchange was given and how often, and what was returned."""
    exchange, residual, found = Exchange(seed), torch.zeros_like(gradients[0]), []
    calls, kept = [], []
    for g in gradients:
        before = len(exchange.given)
        own = g.clone()
        value = fn(exchange, own, residual)
        kept.append(torch.equal(own, g))
        calls.append(len(exchange.given) - before)
        if not isinstance(value, (tuple, list)) or len(value) != 2 or not isinstance(value[1], Tensor):
            return {"strange": value, "calls": calls}
        mean, residual = value
        found.append((mean.clone() if isinstance(mean, Tensor) else mean, residual.clone()))
    means, residuals = zip(*found, strict=True)
    sent = torch.stack(exchange.sent).sum(0) if exchange.sent else torch.zeros_like(residual)
    return {
        "calls": calls, "given": exchange.given, "means": means, "residuals": residuals, "sent": sent, "kept": kept,
    }  # fmt: skip


def two_tensors(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    if "strange" not in seen.value:
        return None
    got = seen.value["strange"]
    said = f"The function returns {kind(got)}; asked is a pair: the mean, and the residual."
    return Finding(said, "(mean, residual)", short(got), ("strange", got))


def exchanges_once(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    for step, many in enumerate(seen.value["calls"], 1):
        if many != 1:
            times = "never" if many == 0 else f"{many} times"
            said = f"Step {step} calls `average` {times}; a step is one exchange."
            return Finding(said, "once", times, ("calls", seen.value["calls"]))
    return None


def loses_nothing(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """Step by step; in the end what was sent and what is left are the sum of the gradients."""
    parts = [
        ("given", "`average` is not given this step's gradient and all that earlier steps have left"),
        ("means", "the mean is not what has arrived"),
        ("residuals", "the residual is not what is left of what `average` was given"),
    ]
    for step in range(len(case.args[0])):
        for key, said in parts:
            mine, right = seen.value[key][step], expected.value[key][step]
            difference = differs(mine, right, 1e-9, 1e-12)
            if difference is not None:
                so_far = [seen.value[name][: step + 1] for name, _ in parts]
                said = f"Step {step + 1}: {said}: {difference}.{_missing(case, seen)}"
                return Finding(said, short(right), short(mine), (key, step, so_far))
    return None


def leaves_the_gradient(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    for step, kept in enumerate(seen.value["kept"], 1):
        if not kept:
            said = f"What is returned is right, but `g` has changed in step {step}."
            return Finding(said, "`g` as it was", "other numbers", ("kept", seen.value["kept"]))
    return None


def _missing(case: Case, seen: Observation) -> str:
    """How far what was sent and what is left are from the sum of the gradients, after all steps."""
    total, left = sum(case.args[0]), seen.value["residuals"][-1]
    if left.shape != total.shape:
        return ""
    gap = (seen.value["sent"] + left - total).abs().max().item()
    many = len(case.args[0])
    if gap < 1e-9 or many == 1:
        return ""
    return f" After {many} steps, what was sent and what is left are off the sum of the gradients by up to {gap:.3g}."


def cases(rng: np.random.Generator) -> Iterator[Case]:
    for shape, steps in (((5,), 1), ((6,), 3), ((3, 4), 5)):
        gradients = [torch.tensor(rng.normal(size=shape)) for _ in range(steps)]
        words = "x".join(map(str, shape)) + " numbers, " + ("1 step" if steps == 1 else f"{steps} steps")
        yield Case(words, (gradients, int(rng.integers(1, 1000))))


OBSERVE = Call(some_steps)


JUDGE = all_of(two_tensors, exchanges_once, loses_nothing, leaves_the_gradient)


ERROR_FEEDBACK = Exercise(
    id="10.4",
    title="What was not sent",
    function="error_feedback",
    points=2,
    asks=(
        "`average(x)` compresses `x`, exchanges it, and returns `(mean, sent)`: the mean of what all ranks sent, and what this "
        "rank sent of `x`. Give it this step's gradient `g` together with what earlier steps have left, `residual`. Return the "
        "mean, and what is left now. Call `average` once, and leave `g` as it is."
    ),
    reference=error_feedback,
    also_right=(in_the_residuals_memory, with_a_clone),
    stub=error_feedback_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    hints=(
        "What do the gradients of all steps add up to? What was sent in all, and what is left at the end: together they should "
        "be the same.",
        "Add first, compress then. What is left is what `average` was given, minus what this rank sent of it, whatever the "
        "others sent.",
    ),
    mistakes=by_first_failure(OBSERVE, JUDGE, MISTAKES),
)
