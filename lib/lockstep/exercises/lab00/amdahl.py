"""Exercise 00.2: Amdahl's law. What students get wrong is in `amdahl_mistakes.py`.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import same_value
from lockstep.exercises.lab00.amdahl_mistakes import MISTAKES
from lockstep.exercises.observe import Call


def amdahl(serial_share, workers):
    return 1 / (serial_share + (1 - serial_share) / workers)


def amdahl_multiplied_out(serial_share, workers):
    return workers / (1 + serial_share * (workers - 1))


def amdahl_in_minutes(serial_share, workers):
    whole = 60.0
    serial = whole * serial_share
    shared = whole - serial
    return whole / (serial + shared / workers)


def amdahl_as_tensor(serial_share, workers):
    parts = torch.tensor([serial_share, 1.0 - serial_share], dtype=torch.float64)
    return (parts / torch.tensor([1, workers])).sum() ** -1


def amdahl_stub(serial_share, workers):
    raise NotImplementedError("return the time with one worker divided by the time with `workers`")


def amdahl_cases(rng: np.random.Generator) -> Iterator[Case]:
    drawn = zip(rng.uniform(0.01, 0.9, 4).round(3), rng.integers(3, 2000, 4), strict=True)
    # 0.1 and 3: there every known mistake but rounding gives another value. 0 and 1: floor division is right there only.
    for share, workers in ((0.1, 3), (0.5, 1), (0.0, 1), (0.0, 4), (1.0, 8), *drawn):
        yield Case(f"serial_share={share:g}, workers={workers}", (float(share), int(workers)))


AMDAHL = Exercise(
    id="00.2",
    title="Amdahl's law",
    function="amdahl",
    points=1,
    asks=(
        "Return the speed-up: the time with one worker divided by the time with `workers` of them, when "
        "`serial_share` of the job (0 to 1) cannot be shared out. Do not round."
    ),
    reference=amdahl,
    also_right=(amdahl_multiplied_out, amdahl_in_minutes, amdahl_as_tensor),
    stub=amdahl_stub,
    cases=amdahl_cases,
    observe=Call(),
    judge=same_value(rtol=1e-6),
    hints=(
        (
            "Let the whole job take 1 second on one worker. How long does its serial part take when there are "
            "`workers` of them? And the rest?"
        ),
        "The new time is the sum of those two. A speed-up is the old time over the new time, so more than 1 is good.",
        (
            "The serial part takes `serial_share` seconds, whatever `workers` is. The rest is `1 - serial_share` "
            "seconds of work, split evenly. Divide 1 by the sum of the two."
        ),
    ),
    mistakes=MISTAKES,
)
