"""01.4 `conv2d_naive`: a convolution with one thread for each pixel of the output.

Floor 4, room `exercises`; solutions are in `naive_right.py` and `naive_mistakes.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import all_of
from lockstep.exercises.lab01.launching import WRITES, Launched, at_most, launch_case, same_output, unwritten
from lockstep.exercises.lab01.naive_mistakes import MISTAKES
from lockstep.exercises.lab01.naive_right import (
    by_cutting_the_filter,
    by_offsets_from_the_middle,
    conv2d_naive,
    conv2d_naive_stub,
)

BLOCK = (8, 8)


def naive_cases(rng: np.random.Generator) -> Iterator[Case]:
    high, wide = int(rng.integers(5, 8)), int(rng.integers(17, 22))
    for shape, size in (((4, 8), (1, 3)), ((8, 16), (3, 5)), ((high, wide), (5, 3))):
        image, weights = (rng.standard_normal(one).astype(np.float32) for one in (shape, size))
        grid = -(-shape[1] // BLOCK[0]), -(-shape[0] // BLOCK[1])
        name = f"{shape[0]} x {shape[1]} pixels, a {size[0]} x {size[1]} filter"
        yield launch_case(name, grid, BLOCK, image, weights, unwritten(shape))


CONV2D_NAIVE = Exercise(
    id="01.4",
    title="A convolution, thread by thread",
    function="conv2d_naive",
    points=2,
    core=False,
    asks=(
        "A kernel. Each thread writes one pixel of `out`: the sum of `weights` (odd sides) times the pixels of `image` "
        "around it, the middle of the filter on the pixel, unflipped; pixels outside the image count as 0. Each pixel of "
        "`out` is written once."
    ),
    reference=conv2d_naive,
    also_right=(by_offsets_from_the_middle, by_cutting_the_filter),
    stub=conv2d_naive_stub,
    cases=naive_cases,
    observe=Launched(),
    judge=all_of(
        same_output(),
        at_most(
            WRITES,
            1.0,
            "The result is right, but a pixel of `out` is written {got} times on average where once will do.",
        ),
    ),
    hints=(
        "Which pixel of the image lies under weight [i, j] when the middle of the filter lies on [y, x]?",
        "Row y + i - weights.shape[0] // 2, and the column likewise. It may be negative or past the end: such pixels are "
        "left out of the sum.",
        "Collect the sum in a variable of the thread, `total = np.float32(0)`, and write it once, after the loops.",
    ),
    mistakes=MISTAKES,
)
