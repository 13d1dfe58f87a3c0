"""What the exercises of lab 02 share: small tensors to try, a judge for several tensors, and likeness of mistakes.

Floor 4, room `exercises`. Numbers are whole where that is possible, so that a verdict can be followed by hand, and
float64, so that a gradient is right or wrong and never nearly right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from lockstep.exercises.compare import differs
from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.judge import Finding, Judge, judged
from lockstep.exercises.observe import Call, Failure, Observation
from lockstep.exercises.plain import kind, short

AUTOGRAD = (
    "torch.autograd.grad",
    "torch.autograd.backward",
    "torch.Tensor.backward",
    "torch.func.grad",
    "torch.func.vjp",
)


def whole_numbers(rng: np.random.Generator, *shape: int, most: int = 4) -> Tensor:
    """float64 of the given shape, whole numbers from -most to most."""
    return torch.from_numpy(rng.integers(-most, most + 1, shape).astype(np.float64))


def real_numbers(rng: np.random.Generator, *shape: int) -> Tensor:
    """float64 of the given shape with two decimals, spread around 0."""
    return torch.from_numpy(rng.normal(scale=2, size=shape).round(2))


def counted(many: int, what: str) -> str:
    """ "1 image", "3 images"."""
    return f"{many} {what}" + ("" if many == 1 else "s")


def same_parts(*names: str, rtol: float = 1e-7, atol: float = 1e-9) -> Judge:
    """The function returns these tensors, in this order; the finding names the first that is wrong, and is about it."""

    def judge(case: Case, seen: Observation, expected: Observation) -> Finding | None:
        got = (seen.value,) if len(names) == 1 else seen.value
        want = (expected.value,) if len(names) == 1 else expected.value
        if seen.value is None:
            return Finding("The function returns None: is there a `return` on every path?", short(want), "None", "None")
        if not isinstance(got, (tuple, list)) or len(got) != len(names):
            returned = f"The function must return {len(names)} values, {', '.join(names)}; it returns {kind(got)}."
            return Finding(returned, ", ".join(names), short(seen.value), ("parts", seen.value))
        for name, one, right in zip(names, got, want, strict=True):
            single = isinstance(right, Tensor) and right.dim() == 0  # may come as a Python number
            difference = differs(one, right.item() if single else right, rtol, atol)
            if difference is not None:
                return Finding(f"{name}: {difference}.", f"{name} {short(right)}", short(one), (name, one))
        return None

    return judge


def by_first_part(judge: Judge, mistakes: Sequence[Mistake]) -> tuple[Mistake, ...]:
    """The mistakes, each without a symptom now with this one: on the smallest failing case it fails alike.

    Students combine mistakes, and then no known one behaves as theirs does on every case.
    """

    def fails_alike(mistake: Mistake) -> Mistake:
        def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
            other = Call()(mistake.function, case)
            if seen.error is not None or other.error is not None:
                return None not in (seen.error, other.error) and _told(seen.error) == _told(other.error)
            mine, theirs = (judged(judge, case, one, expected) for one in (seen, other))
            return mine is not None and mine.like(theirs)

        return mistake if mistake.symptom else replace(mistake, symptom=symptom)

    return tuple(map(fails_alike, mistakes))


def _told(error: Failure) -> tuple[str, str]:
    """Type and message of an error, without its numbers."""
    return error.type, re.sub(r"[\d\[\], x]+", " ", error.message)


def wrong_shape(part: int, is_like: Callable[[Case, Tensor, Tensor], bool]) -> Callable[..., bool]:
    """A symptom: the tensor at `part` has another shape than it should, one that `is_like(case, got, want)` knows."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        if seen.error is not None or not isinstance(seen.value, (tuple, list)) or len(seen.value) <= part:
            return False
        got, want = seen.value[part], expected.value[part]
        return isinstance(got, Tensor) and got.shape != want.shape and is_like(case, got, want)

    return symptom
