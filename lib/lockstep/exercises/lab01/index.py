"""01.1 `global_index`: which pixel a thread is responsible for.

Floor 4, room `exercises`; solutions are in `index_right.py` and `index_mistakes.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import all_of
from lockstep.exercises.lab01.index_mistakes import ELSEWHERE, MISTAKES
from lockstep.exercises.lab01.index_right import by_grid, by_numbering_pixels, global_index, global_index_stub
from lockstep.exercises.lab01.launching import Launched, at_most, launch_case, same_output, unwritten
from lockstep.exercises.observe import Observation
from lockstep.simt import writers
from lockstep.simt.kernel import simulated


@dataclass(frozen=True)
class Placed:
    """Observe a launch, and count the pixels that another thread writes than the one that stands there."""

    def __call__(self, fn, case: Case) -> Observation:
        seen = Launched()(fn, case)
        if seen.error is not None:
            return seen
        grid, block, out = case.args
        kernel = simulated(fn)
        thread = writers(kernel, grid, block, out.copy(), array=kernel.py_func.__code__.co_varnames[0])
        number, threads = np.divmod(np.maximum(thread, 0), block[0] * block[1])
        column = number % grid[0] * block[0] + threads % block[0]
        row = number // grid[0] * block[1] + threads // block[0]
        there = (row == np.arange(out.shape[0])[:, None]) & (column == np.arange(out.shape[1]))
        elsewhere = (thread >= 0) & ~there  # -1: nobody, or a device function, which calls the array something else
        return replace(seen, counts={**seen.counts, ELSEWHERE: float(elsewhere.sum())})


def index_cases(rng: np.random.Generator) -> Iterator[Case]:
    # One row first: that is the 1-D case. The first launch covers its image exactly, so that it needs no guard.
    width, height = int(rng.integers(9, 16)), int(rng.integers(17, 24))
    for shape, grid, block in (
        ((1, 16), (4, 1), (4, 1)),
        ((1, width + 8), (3, 1), (8, 1)),
        ((12, 16), (4, 2), (4, 6)),
        ((height, width), (2, 6), (8, 4)),
    ):
        yield launch_case(f"an image of {shape[0]} x {shape[1]}", grid, block, unwritten(shape, np.int64))


GLOBAL_INDEX = Exercise(
    id="01.1",
    title="Which pixel is mine?",
    function="global_index",
    points=2,
    asks=(
        "A kernel. Write its number, row * width + column, into the pixel of `out` (height, width) that the thread is "
        "responsible for: x runs along a row, y down the rows, and thread (x, y) of the whole launch stands at "
        "`out[y, x]`. The grid may be larger than the image."
    ),
    reference=global_index,
    also_right=(by_grid, by_numbering_pixels),
    stub=global_index_stub,
    cases=index_cases,
    observe=Placed(),
    judge=all_of(
        same_output(),
        at_most(
            ELSEWHERE,
            1.0,
            "All numbers are right, but {got} pixels are written by a thread that stands elsewhere: thread (x, y) of the "
            "whole launch is to write `out[y, x]`, and nothing else.",
        ),
    ),
    hints=(
        "How many threads stand before this one along x? All those of the blocks to its left, and those of its own "
        "block to its left.",
        "`cuda.blockDim.x` is how many threads a block has along x. An image is indexed row first, and the row is y: "
        "`out[y, x]`. Its size along x is `out.shape[1]`.",
        "Threads past the right or the lower edge have no pixel. They must not touch `out`: "
        "`if y < out.shape[0] and x < out.shape[1]:`.",
    ),
    mistakes=MISTAKES,
)
