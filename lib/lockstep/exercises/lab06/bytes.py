"""Exercise 06.6: the bytes that a rank sends in one training step, for each way to split a layer.

Floor 4, room `exercises`. Legend: p ranks; numbers have 4 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from lockstep.exercises.compare import differs
from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import Finding
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab06.bytes_mistakes import MISTAKES
from lockstep.exercises.lab06.bytes_right import (
    SPLITS,
    by_a_table,
    by_steps_of_a_ring,
    bytes_per_step,
    bytes_per_step_stub,
)
from lockstep.exercises.observe import Call, Observation
from lockstep.exercises.plain import short


def as_number(fn: Callable[..., Any], *args: Any) -> Any:
    """What `fn` returns, as a float if it is a number of any kind: a fraction, a tensor, one of NumPy."""
    value = fn(*args)
    if value is None or value is ... or isinstance(value, (bool, int, str)):
        return value
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        return value


def right_bytes(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """The same bytes; whoever rounds may lose one number."""
    if isinstance(seen.value, bool) or not isinstance(seen.value, (int, float)):
        words = (
            "It returns None: is there a `return` for this split?" if seen.value is None else "It should be a number."
        )
        return Finding(words, short(expected.value), short(seen.value), "no number")
    if differs(float(seen.value), float(expected.value), rtol=1e-6, atol=4) is None:
        return None
    words = f"It should be {expected.value:,.0f} bytes, and comes out as {seen.value:,.0f}."
    return Finding(words, f"{expected.value:,.0f}", f"{seen.value:,.0f}", ("bytes", seen.value))


def cases(rng: np.random.Generator) -> Iterator[Case]:
    # Multiples of 24, so that the chunks of 1, 3, 6 and 8 ranks are whole. A convolution's parameters are not its
    # inputs times its outputs; 6 ranks come first, because with 2 half a tensor and (p - 1)/p of it are the same.
    for ranks, side in ((6, 7), (3, 1), (8, 5), (1, 1)):
        first, last = 24 * int(rng.integers(2, 9)), 24 * int(rng.integers(17, 60))
        inputs, outputs, batch = first * side**2, last * side**2, int(rng.integers(5, 25))
        parameters = (first * (9 if side > 1 else 1) + 1) * last
        for split in SPLITS:
            if split == "layers" and ranks == 1:
                continue
            args = (split, inputs, outputs, parameters, batch, ranks)
            sizes = f"{inputs:,} inputs, {outputs:,} outputs, {parameters:,} parameters"
            yield Case(f"{split}, {sizes}, batch {batch}, {ranks} rank{'s' * (ranks > 1)}", args)


OBSERVE, JUDGE = Call(as_number), right_bytes

BYTES_PER_STEP = Exercise(
    id="06.6",
    title="Which split talks least",
    function="bytes_per_step",
    points=2,
    core=False,
    asks=(
        "Return the bytes that a rank sends in one step, forward and backward, for a layer with `inputs` and `outputs` "
        'numbers per image and `parameters`; numbers have 4 bytes. `split` is "data" (gradients all-reduced), "layers" '
        '(the rank has this layer whole, between two others), "column" or "row" (alone, whole inputs to whole outputs on '
        'every rank), or "pair" (column, then row, with `inputs` of the first and `outputs` of the second).'
    ),
    reference=bytes_per_step,
    also_right=(by_a_table, by_steps_of_a_ring),
    stub=bytes_per_step_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    hints=(
        (
            "For each split write down which collectives run forward and which backward, and of what tensor. The table in "
            "front of the exercise has them."
        ),
        (
            "An all-gather of n bytes sends (p - 1)/p n from each rank, an all-reduce twice that. An activation of the "
            "whole batch has `batch` times `outputs` numbers; gradients of parameters do not depend on the batch."
        ),
        "Column alone: an all-gather of the outputs forward, an all-reduce of the inputs' gradient backward.",
        "So `column` is `gather * batch * (outputs + 2 * inputs)`, with `gather = 4 * (ranks - 1) / ranks`.",
    ),
    mistakes=by_first_failure(OBSERVE, JUDGE, MISTAKES),
)
