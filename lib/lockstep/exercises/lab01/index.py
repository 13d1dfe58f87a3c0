"""01.1 `global_index`: which pixel a thread is responsible for.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.lab01.launching import Launched, launch_case, same_output, unwritten
from lockstep.simt import cuda


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
        "responsible for: x runs along a row, y down the rows. The grid may be larger than the image."
    ),
    reference=global_index,
    also_right=(by_grid, by_numbering_pixels),
    stub=global_index_stub,
    cases=index_cases,
    observe=Launched(),
    judge=same_output(),
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
    ),
)
