"""04.6 `predict_seconds`: latency and bandwidth say how long a collective takes.

Floor 4, room `exercises`; solutions are in `seconds_right.py` and `seconds_mistakes.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lockstep.exercises.compare import differs
from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import Finding
from lockstep.exercises.lab04.seconds_mistakes import MISTAKES
from lockstep.exercises.lab04.seconds_right import (
    by_counting_levels,
    by_messages_and_bytes,
    predict_seconds,
    predict_seconds_stub,
)
from lockstep.exercises.observe import Call, Observation
from lockstep.exercises.plain import short
from lockstep.trace.units import show_seconds

ALGORITHMS = ("ring_all_reduce", "tree_broadcast", "recursive_doubling_all_reduce")


def right_seconds(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """The same seconds; the evidence is by what factor they are wrong, since seconds may be very few."""
    difference = differs(seen.value, expected.value, rtol=1e-6, atol=0.0)
    if difference is None:
        return None
    number = isinstance(seen.value, (int, float)) and not isinstance(seen.value, bool)
    if not number:
        sentence = (
            "It returns None: is there a `return` for this algorithm?" if seen.value is None else f"{difference}."
        )
        return Finding(sentence[0].upper() + sentence[1:], short(expected.value), short(seen.value), "no number")
    want, got = show_seconds(expected.value), show_seconds(seen.value)
    factor = seen.value / expected.value if expected.value else 1e6 * seen.value
    return Finding(f"It should be {want}, and comes out as {got}.", want, got, ("factor", factor))


def prediction_cases(rng: np.random.Generator) -> Iterator[Case]:
    # 6 ranks before 5 tell the natural logarithm from one that is rounded to the nearest; a single rank, where
    # nothing is sent, comes last, since what is wrong there says little of the formula.
    many = ((2, 1000), (3, 99), (4, 0), (6, 300), (5, 1_000_000), (8, 4000), (64, 16_000_000))
    for ranks, numbers in (*many, (1, 10)):
        latency, bandwidth = round(float(rng.uniform(5e-6, 5e-5)), 7), round(float(rng.uniform(1e9, 2e10)), -7)
        for algorithm in ALGORITHMS:
            name = f"{algorithm}, {4 * numbers:,} bytes, {ranks} rank{'s' * (ranks > 1)}"
            name += f", latency {1e6 * latency:g} µs, bandwidth {bandwidth / 1e9:g} GB/s"
            yield Case(name, (algorithm, 4 * numbers, ranks, latency, bandwidth))


PREDICT_SECONDS = Exercise(
    id="04.6",
    title="Seconds of a collective",
    function="predict_seconds",
    points=2,
    asks=(
        'Return the seconds that `algorithm` ("ring_all_reduce", "tree_broadcast" or "recursive_doubling_all_reduce") '
        "takes for a tensor of `nbytes` over `ranks` ranks, when a message of m bytes takes `latency` + m / `bandwidth` "
        "seconds. A chunk may be any fraction of `nbytes`."
    ),
    reference=predict_seconds,
    also_right=(by_messages_and_bytes, by_counting_levels),
    stub=predict_seconds_stub,
    cases=prediction_cases,
    observe=Call(),
    judge=right_seconds,
    hints=(
        (
            "For each algorithm answer two questions: how many messages come one after the other, and how many bytes "
            "has each of them? The table above the exercise holds both."
        ),
        (
            "A ring makes 2(p - 1) messages of nbytes / p bytes. A tree has a level more whenever the number of ranks "
            "passes a power of two, so its logarithm is rounded up."
        ),
        (
            "Recursive doubling: the logarithm rounded down, and two messages more when the number of ranks is no power "
            "of two. `(ranks - 1).bit_length()` is the logarithm rounded up, `ranks.bit_length() - 1` rounded down."
        ),
    ),
    mistakes=MISTAKES,
)
