"""10.7 `pays_off`: from which bandwidth on a compressor takes longer than it saves.

Floor 4, room `exercises`. Latency is left out: what is compared is bytes over bandwidth, and seconds of compressing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from numbers import Real
from typing import Any

import numpy as np

from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import all_of, same_value
from lockstep.exercises.lab03.state import has_the_keys
from lockstep.exercises.lab10.pays_off_mistakes import MISTAKES
from lockstep.exercises.lab10.pays_off_right import by_a_ratio, by_messages, pays_off, pays_off_stub
from lockstep.exercises.observe import Call


def as_numbers(fn: Callable[..., Any], *args: Any) -> Any:
    """What it returns; a `defaultdict`, or a `Fraction` for a float, is as good."""
    value = fn(*args)
    if not isinstance(value, dict):
        return value
    return {
        key: float(one) if isinstance(one, Real) and not isinstance(one, bool) else one for key, one in value.items()
    }


def cases(rng: np.random.Generator) -> Iterator[Case]:
    for ranks, share, method, milliseconds, gigabytes in (
        (2, 0.1, "top-k", 2, 0.125), (4, 0.1, "random-k", 1, 1.25), (3, 0.01, "top-k", 5, 0.1),
        (128, 0.01, "top-k", 3, 12.5), (128, 0.01, "random-k", 3, 12.5), (8, 0.05, "top-k", 0, 1.25),
        (8, 0.125, "top-k", 2, 0.3), (8, 0.125, "top-k", 0, 0.3), (7, 0.4, "random-k", 0, 3), (1, 0.1, "random-k", 4, 1), (1, 0.1, "top-k", 4, 1),
        (5, 0.02, "top-k", 4, 25),
    ):  # fmt: skip
        n = (
            1000 * ranks * (int(rng.integers(300, 9000)) // ranks)
        )  # n and k divide, for who counts whole chunks of a ring
        k = round(share * n)
        seconds, bandwidth = milliseconds / 1000, gigabytes * 1e9
        name = f"{method}, {k:,} of {n:,} numbers, {ranks} rank{'s' if ranks > 1 else ''}, {milliseconds} ms, {gigabytes} GB/s"
        yield Case(name, (n, ranks, k, method, seconds, bandwidth))


PAYS_OFF = Exercise(
    id="10.7",
    title="Does it pay?",
    function="pays_off",
    points=2,
    asks=(
        "Return a dictionary: the seconds in which `ranks` ranks average `n` float32 numbers, \"dense\" by a ring "
        'all-reduce and "compressed" by `method`, its own `seconds` of compressing included; and "break_even", the '
        "bandwidth (bytes a second) below which the compressor is faster: 0 if it never is, infinity if it always is. "
        '"top-k" gathers `k` values and their 4-byte indices from every rank; "random-k" adds up `k` values by a ring, '
        "at places that all ranks know. Leave latency out; a ring divides its numbers evenly."
    ),
    reference=pays_off,
    also_right=(by_messages, by_a_ratio),
    stub=pays_off_stub,
    cases=cases,
    observe=Call(as_numbers),
    judge=all_of(has_the_keys, same_value(rtol=1e-6)),
    equivalent_mutants=(
        # less than a byte
        'line 6: if saved <= 0: -> if saved <= 1:',
    ),
    hints=(
        "First the bytes that one rank sends. A ring all-reduce sends each number not quite twice. In a ring all-gather "
        "every rank's payload passes through every rank but one: how many payloads does a rank send on?",
        "Dense: `2 (N-1)/N` times 4n bytes. top-k: `N-1` payloads of 8k bytes. random-k: as dense, with k for n. All of it "
        "over the bandwidth; then the seconds of compressing.",
        "At the break-even the bytes that are saved take as long as compressing: `saved / bandwidth = seconds`. No bytes "
        "saved: it never pays. Otherwise, nothing spent: it always does.",
    ),
    mistakes=MISTAKES,
)  # fmt: skip
