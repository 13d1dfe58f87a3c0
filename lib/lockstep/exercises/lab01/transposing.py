"""01.3 `transpose`: rows in, rows out, and the turn in shared memory.

Floor 4, room `exercises`; solutions are in `transposing_right.py` and `transposing_mistakes.py`. What is counted: the sectors of the worst request, and bank conflicts.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import all_of
from lockstep.exercises.lab01.launching import Launched, at_most, launch_case, same_output, unwritten
from lockstep.exercises.lab01.transposing_mistakes import MISTAKES, SECTORS, WAYS
from lockstep.exercises.lab01.transposing_right import (
    SIDE,
    skewed_instead_of_padded,
    transpose,
    transpose_stub,
    turns_while_loading,
)


def transpose_cases(rng: np.random.Generator) -> Iterator[Case]:
    wide, high = int(rng.integers(35, 60)), int(rng.integers(33, 45))
    for shape in ((32, 32), (64, 96), (high, wide)):  # the second: what goes wrong with whole tiles alone
        source = rng.standard_normal(shape).astype(np.float32)
        grid = -(-shape[1] // SIDE), -(-shape[0] // SIDE)
        yield launch_case(f"{shape[0]} x {shape[1]}", grid, (SIDE, SIDE), source, unwritten(shape[::-1]))


TRANSPOSE = Exercise(
    id="01.3",
    title="A transpose that stays coalesced",
    function="transpose",
    points=3,
    core=False,
    asks=(
        "A kernel. Write the transpose of `source` (height, width) into `out` (width, height), float32, with blocks of "
        "32 x 32 threads: each warp reads along a row and writes along a row, and no request to shared memory has a "
        "bank conflict."
    ),
    reference=transpose,
    also_right=(turns_while_loading, skewed_instead_of_padded),
    stub=transpose_stub,
    cases=transpose_cases,
    observe=Launched(),
    judge=all_of(
        same_output(),
        at_most(
            SECTORS,
            1.0,
            "The result is right, but a request of a warp moves {got} sectors where {want} would do: its lanes walk down "
            "a column of global memory, so nothing is coalesced.",
            more=2.0,
        ),
        at_most(
            WAYS,
            1.0,
            "The result is right and coalesced, but a request to shared memory takes {got} passes: so many lanes want "
            "different words of one bank.",
        ),
    ),
    hints=(
        "A tile of 32 x 32 numbers goes into shared memory as it is, row by row. The turn is in how it comes out.",
        "The block at (bx, by) of the grid reads the tile at row 32 by, column 32 bx, and writes the one at row 32 bx, "
        "column 32 by. Within a tile, threads with neighbouring `threadIdx.x` write neighbouring columns.",
        "A column of a 32 x 32 tile lies in a single bank, since 32 words is once around all banks. With one column more "
        "the next row begins one bank further: `cuda.shared.array((32, 33), np.float32)`.",
    ),
    mistakes=MISTAKES,
)
