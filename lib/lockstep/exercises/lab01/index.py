"""01.1 `global_index`: which pixel a thread is responsible for.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.judge import all_of
from lockstep.exercises.lab01.launching import (
    Launched,
    at_most,
    exceeds,
    launch_case,
    outside,
    same_output,
    touched,
    unwritten,
)
from lockstep.exercises.observe import Observation
from lockstep.exercises.symptoms import matches, raises
from lockstep.simt import cuda, writers
from lockstep.simt.kernel import simulated

ELSEWHERE = "pixels written by a thread that stands elsewhere"


@cuda.jit
def global_index(out):
    x = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    y = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = y * out.shape[1] + x


@cuda.jit
def by_grid(out):
    column, row = cuda.grid(2)
    height, width = out.shape
    if column >= width or row >= height:
        return
    out[row, column] = column + width * row


@cuda.jit
def by_numbering_pixels(out):
    left = cuda.blockDim.x * cuda.blockIdx.x
    top = cuda.blockDim.y * cuda.blockIdx.y
    if cuda.threadIdx.x < out.shape[1] - left:
        if cuda.threadIdx.y < out.shape[0] - top:
            number = (top + cuda.threadIdx.y) * out.shape[1] + left + cuda.threadIdx.x
            out[number // out.shape[1], number % out.shape[1]] = number


@cuda.jit
def global_index_stub(out):
    raise NotImplementedError("write the pixel's number into the pixel that this thread is responsible for")


@cuda.jit
def swaps_x_and_y(out):
    y = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    x = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = y * out.shape[1] + x


@cuda.jit
def x_is_the_first_index(out):
    x = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    y = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    if y < out.shape[0] and x < out.shape[1]:
        out[x, y] = y * out.shape[1] + x


@cuda.jit
def no_guard(out):
    x = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    y = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    out[y, x] = y * out.shape[1] + x


@cuda.jit
def guards_one_axis(out):
    x = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    y = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    if x < out.shape[1]:
        out[y, x] = y * out.shape[1] + x


@cuda.jit
def guards_by_the_other_side(out):
    x = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    y = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    if x < out.shape[0] and y < out.shape[1]:
        out[y, x] = y * out.shape[1] + x


@cuda.jit
def forgets_the_block(out):
    x = cuda.threadIdx.x
    y = cuda.threadIdx.y
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = y * out.shape[1] + x


@cuda.jit
def grid_for_block(out):
    x = cuda.blockIdx.x * cuda.gridDim.x + cuda.threadIdx.x
    y = cuda.blockIdx.y * cuda.gridDim.y + cuda.threadIdx.y
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = y * out.shape[1] + x


@cuda.jit
def thread_times_block(out):
    x = cuda.threadIdx.x * cuda.blockDim.x + cuda.blockIdx.x
    y = cuda.threadIdx.y * cuda.blockDim.y + cuda.blockIdx.y
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = y * out.shape[1] + x


@cuda.jit
def rows_as_long_as_the_image_is_high(out):
    x = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    y = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = y * out.shape[0] + x


@cuda.jit
def width_first(out):
    x = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    y = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    width, height = out.shape
    if x < width and y < height:
        out[y, x] = y * width + x


@cuda.jit
def rows_as_long_as_the_launch(out):
    x = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    y = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = y * cuda.gridDim.x * cuda.blockDim.x + x


@cuda.jit
def counts_down_the_columns(out):
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = x * out.shape[0] + y


@cuda.jit
def clamps(out):
    x, y = cuda.grid(2)
    x = min(x, out.shape[1] - 1)
    y = min(y, out.shape[0] - 1)
    out[y, x] = y * out.shape[1] + x


@cuda.jit
def loops_over_the_image(out):
    for y in range(out.shape[0]):
        for x in range(out.shape[1]):
            out[y, x] = y * out.shape[1] + x


@cuda.jit
def two_pairs_of_brackets(out):
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        out[y][x] = y * out.shape[1] + x


@cuda.jit
def numbers_the_launch(out):
    x, y = cuda.grid(2)
    number = y * cuda.gridDim.x * cuda.blockDim.x + x
    if number < out.size:
        out[number // out.shape[1], number % out.shape[1]] = number


@cuda.jit
def one_thread_a_row(out):
    x, y = cuda.grid(2)
    if x == 0 and y < out.shape[0]:
        for column in range(out.shape[1]):
            out[y, column] = y * out.shape[1] + column


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


def both_write(case: Case, seen: Observation, expected: Observation) -> bool:
    """Two threads of one block write the same pixel."""
    return raises("RaceError", "both write")(case, seen, expected) and seen.error.message.startswith("threads")


def at_the_far_edge(case: Case, seen: Observation, expected: Observation) -> bool:
    """Two threads write the same pixel of the last row or column."""
    cell = touched(seen, "RaceError")
    return cell is not None and any(
        at > 0 and at == size - 1 for at, size in zip(cell.index, case.args[2].shape, strict=False)
    )


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
    mistakes=(
        Mistake(
            "swaps x and y",
            swaps_x_and_y,
            "x and y are swapped: x (the first of grid and block) runs along a row, so it is the column, and y is the "
            "row.",
        ),
        Mistake(
            "x as the first index",
            x_is_the_first_index,
            "An array is indexed row first, out[row, column], while a launch names x first. x is the column, so it comes "
            "second in the brackets.",
        ),
        Mistake(
            "no guard",
            no_guard,
            "A thread past the edge of the image gets to the array. A grid is made of whole blocks, so it is usually "
            "larger than the image: let a thread write only if both its row and its column exist.",
            symptom=outside("out"),
        ),
        Mistake(
            "guards one axis only",
            guards_one_axis,
            "One axis is guarded and the other is not: whole blocks may reach past the lower edge as well as past the "
            "right one.",
        ),
        Mistake(
            "compares with the other side",
            guards_by_the_other_side,
            "The guard compares with the wrong side: x is a column, and there are out.shape[1] of them; shape[0] is the "
            "number of rows.",
        ),
        Mistake(
            "forgets the block",
            forgets_the_block,
            "Every block starts again at 0. threadIdx counts within the block; the blocks before this one have taken "
            "blockIdx times a block's width of pixels already.",
            symptom=matches("^thread .* of block .* and thread .* of block .* both write"),
        ),
        Mistake(
            "grid's size for the block's",
            grid_for_block,
            "You multiply by the number of blocks. What the blocks before this one have taken is blockIdx times the "
            "number of threads in a block, blockDim.",
        ),
        Mistake(
            "thread and block exchanged",
            thread_times_block,
            "Thread and block are exchanged: neighbouring threads of a block should get neighbouring pixels, and a new "
            "block begins where the one before it ended.",
        ),
        Mistake(
            "rows as long as the image is high",
            rows_as_long_as_the_image_is_high,
            "The pixel is right and its number is not: each row before this one holds width numbers, out.shape[1].",
        ),
        Mistake(
            "width first",
            width_first,
            "`out.shape` is (height, width): rows first, as in the brackets. It is `height, width = out.shape`.",
        ),
        Mistake(
            "rows as long as the launch",
            rows_as_long_as_the_launch,
            "You count rows as long as the launch, with the threads past the right edge. A row of the image holds "
            "out.shape[1] numbers.",
        ),
        Mistake(
            "counts down the columns",
            counts_down_the_columns,
            "You number down the columns. A row comes first: its number is row * width + column.",
        ),
        Mistake(
            "clamps instead of leaving out",
            clamps,
            "Threads past the edge are sent back to the last pixel, which others write as well. They have no pixel: let "
            "the guard stop them.",
            symptom=at_the_far_edge,
        ),
        Mistake(
            "loops over the image",
            loops_over_the_image,
            "Several threads write the same pixel, each in a loop over the image. All threads run the same lines, so no "
            "loop is needed: each of them writes the one pixel that it stands on.",
            symptom=both_write,
        ),
        Mistake(
            "two pairs of brackets",
            two_pairs_of_brackets,
            "A kernel takes both indices in one pair of brackets: write out[y, x], not out[y][x].",
            symptom=raises("Unsupported", "is indexed by 2"),
        ),
        Mistake(
            "numbers the launch",
            numbers_the_launch,
            "You number the threads along the whole launch and give pixel after pixel to them. x and y exist to save you "
            "that: thread (x, y) stands at out[y, x].",
        ),
        Mistake(
            "one thread for many pixels",
            one_thread_a_row,
            "A thread writes pixels on which others stand, in a loop, while these do nothing. There is a thread for each "
            "pixel: let it write its own.",
            symptom=exceeds(ELSEWHERE, 1.0),
        ),
    ),
)
