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
from lockstep.exercises.exercise import Case, Mistake, Symptom
from lockstep.exercises.judge import Finding, Judge, judged
from lockstep.exercises.observe import Call, Failure, Observation
from lockstep.exercises.plain import kind, short
from lockstep.exercises.remembered import remembered

CALL = Call()

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


def same_parts(*names: str, given: Sequence[str], rtol: float = 1e-9, atol: float = 1e-9) -> Judge:
    """The function returns these tensors, in this order; the finding names the first that is wrong, and is about it.

    given: the names of the arguments, which have to be left as they were: in training others still need them.
    """

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
        for name, left, had in zip(given, seen.arguments, expected.arguments, strict=False):
            if differs(left, had, 0, 0) is not None:
                told = (
                    f"What it returns is right, but the function changes `{name}` itself, and others still need that: "
                    f"work on a copy, `{name}.clone()`, or without `-=` and `[...] =` on what you were given."
                )
                return Finding(told, f"{name} {short(had)}", short(left), ("changes", name))
        return None

    return judge


def by_first_part(judge: Judge, mistakes: Sequence[Mistake]) -> tuple[Mistake, ...]:
    """The mistakes, each without a symptom now with this one: on the smallest failing case it fails alike.

    Students combine mistakes, and then no known one behaves as theirs does on every case.
    """

    return tuple(one if one.symptom else replace(one, symptom=fails_like(judge, one.function)) for one in mistakes)


def fails_like(judge: Judge, *slips: Callable[..., object]) -> Symptom:
    """A symptom: the smallest failing case finds the same wrong as with one of these functions."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        return any(_alike(case, seen, remembered(CALL, slip, case), expected) for slip in slips)

    def _alike(case: Case, seen: Observation, other: Observation, expected: Observation) -> bool:
        if seen.error is not None or other.error is not None:
            return None not in (seen.error, other.error) and _told(seen.error) == _told(other.error)
        mine, theirs = (judged(judge, case, one, expected) for one in (seen, other))
        return mine is not None and mine.like(theirs)

    return symptom


def loses_the_dtype(function: Callable[..., object], what: str) -> Mistake:
    """The mistake of computing in float32, or of returning it; `what` are the float64 tensors that came."""
    return Mistake(
        "loses the dtype",
        function,
        f"The {what} are float64 and your result is not, or was not on the way, and then only seven digits are left: a "
        "new tensor is float32 unless you say otherwise. `x.new_zeros(...)` and `torch.zeros_like(x)` take over the "
        "dtype of `x`.",
        symptom=lost_precision,
    )


def lost_precision(case: Case, seen: Observation, expected: Observation) -> bool:
    """float32 comes back, or meets float64 on the way, or has left seven digits of each number."""
    if seen.error is not None:
        return "dtype" in seen.error.message or "Double" in seen.error.message
    if isinstance(seen.value, (tuple, list)) != isinstance(expected.value, (tuple, list)):
        return False
    got, want = ((one,) if isinstance(one, Tensor) else one for one in (seen.value, expected.value))
    pairs = [(g, w) for g, w in zip(got, want, strict=False) if isinstance(g, Tensor) and g.shape == w.shape]
    if any(g.dtype == torch.float32 for g, _ in pairs):
        return True
    return len(pairs) == len(want) and all(torch.allclose(g, w, rtol=1e-5, atol=1e-5) for g, w in pairs)


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
