"""01.4 `conv2d_naive`: a convolution with one thread for each pixel of the output.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.judge import all_of
from lockstep.exercises.lab01.launching import (
    WRITES,
    Launched,
    at_most,
    exceeds,
    launch_case,
    leaves_like,
    outside,
    same_output,
    touched,
    unwritten,
)
from lockstep.exercises.observe import Observation
from lockstep.simt import cuda

BLOCK = (8, 8)


@cuda.jit
def conv2d_naive(image, weights, out):
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        total = np.float32(0)
        for i in range(weights.shape[0]):
            for j in range(weights.shape[1]):
                row = y + i - weights.shape[0] // 2
                column = x + j - weights.shape[1] // 2
                if row >= 0 and row < image.shape[0] and column >= 0 and column < image.shape[1]:
                    total += weights[i, j] * image[row, column]
        out[y, x] = total


@cuda.jit(device=True)
def weighted_sum(image, weights, x, y, up, left):
    """The sum for pixel (x, y) with `up` and `left` for the radius of the filter."""
    total = np.float32(0)
    for i in range(weights.shape[0]):
        for j in range(weights.shape[1]):
            row, column = y + i - up, x + j - left
            if row >= 0 and row < image.shape[0] and column >= 0 and column < image.shape[1]:
                total += weights[i, j] * image[row, column]
    return total


@cuda.jit
def by_offsets_from_the_middle(image, weights, out):
    x, y = cuda.grid(2)
    height, width = image.shape
    if x >= width or y >= height:
        return
    up, left = weights.shape[0] // 2, weights.shape[1] // 2
    total = 0.0
    for dy in range(-up, up + 1):
        if 0 <= y + dy and y + dy < height:
            for dx in range(-left, left + 1):
                inside = 0 <= x + dx and x + dx < width
                total += weights[up + dy, left + dx] * image[y + dy, x + dx] if inside else 0.0
    out[y, x] = total


@cuda.jit
def by_cutting_the_filter(image, weights, out):
    x, y = cuda.grid(2)
    if x < out.shape[1]:
        if y < out.shape[0]:
            top = y - weights.shape[0] // 2
            left = x - weights.shape[1] // 2
            total = np.float32(0)
            for row in range(max(0, top), min(image.shape[0], top + weights.shape[0])):
                for column in range(max(0, left), min(image.shape[1], left + weights.shape[1])):
                    total += image[row, column] * weights[row - top, column - left]
            out[y, x] = total


@cuda.jit
def conv2d_naive_stub(image, weights, out):
    raise NotImplementedError("the weighted sum of the pixels around this thread's")


@cuda.jit
def flips_the_filter(image, weights, out):
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        total = np.float32(0)
        for i in range(weights.shape[0]):
            for j in range(weights.shape[1]):
                row = y - i + weights.shape[0] // 2
                column = x - j + weights.shape[1] // 2
                if row >= 0 and row < image.shape[0] and column >= 0 and column < image.shape[1]:
                    total += weights[i, j] * image[row, column]
        out[y, x] = total


@cuda.jit
def no_guard(image, weights, out):
    x, y = cuda.grid(2)
    total = np.float32(0)
    for i in range(weights.shape[0]):
        for j in range(weights.shape[1]):
            row = y + i - weights.shape[0] // 2
            column = x + j - weights.shape[1] // 2
            if row >= 0 and row < image.shape[0] and column >= 0 and column < image.shape[1]:
                total += weights[i, j] * image[row, column]
    out[y, x] = total


@cuda.jit
def reads_past_the_border(image, weights, out):
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        total = np.float32(0)
        for i in range(weights.shape[0]):
            for j in range(weights.shape[1]):
                total += weights[i, j] * image[y + i - weights.shape[0] // 2, x + j - weights.shape[1] // 2]
        out[y, x] = total


@cuda.jit
def filter_begins_at_the_pixel(image, weights, out):
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        total = np.float32(0)
        for i in range(weights.shape[0]):
            for j in range(weights.shape[1]):
                if y + i < image.shape[0] and x + j < image.shape[1]:
                    total += weights[i, j] * image[y + i, x + j]
        out[y, x] = total


@cuda.jit
def leaves_the_border_out(image, weights, out):
    x, y = cuda.grid(2)
    up = weights.shape[0] // 2
    left = weights.shape[1] // 2
    if y >= up and y < out.shape[0] - up and x >= left and x < out.shape[1] - left:
        total = np.float32(0)
        for i in range(weights.shape[0]):
            for j in range(weights.shape[1]):
                total += weights[i, j] * image[y + i - up, x + j - left]
        out[y, x] = total


@cuda.jit
def repeats_the_border(image, weights, out):
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        total = np.float32(0)
        for i in range(weights.shape[0]):
            for j in range(weights.shape[1]):
                row = min(max(y + i - weights.shape[0] // 2, 0), image.shape[0] - 1)
                column = min(max(x + j - weights.shape[1] // 2, 0), image.shape[1] - 1)
                total += weights[i, j] * image[row, column]
        out[y, x] = total


@cuda.jit
def adds_to_what_was_there(image, weights, out):
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        for i in range(weights.shape[0]):
            for j in range(weights.shape[1]):
                row = y + i - weights.shape[0] // 2
                column = x + j - weights.shape[1] // 2
                if row >= 0 and row < image.shape[0] and column >= 0 and column < image.shape[1]:
                    out[y, x] += weights[i, j] * image[row, column]


@cuda.jit
def sums_up_in_global_memory(image, weights, out):
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = 0
        for i in range(weights.shape[0]):
            for j in range(weights.shape[1]):
                row = y + i - weights.shape[0] // 2
                column = x + j - weights.shape[1] // 2
                if row >= 0 and row < image.shape[0] and column >= 0 and column < image.shape[1]:
                    out[y, x] += weights[i, j] * image[row, column]


@cuda.jit
def one_radius_for_both(image, weights, out):
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = weighted_sum(image, weights, x, y, weights.shape[1] // 2, weights.shape[1] // 2)


@cuda.jit
def swaps_x_and_y(image, weights, out):
    y, x = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = weighted_sum(image, weights, x, y, weights.shape[0] // 2, weights.shape[1] // 2)


@cuda.jit
def radius_of_the_rows_for_both(image, weights, out):
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = weighted_sum(image, weights, x, y, weights.shape[0] // 2, weights.shape[0] // 2)


@cuda.jit
def leaves_out_the_last_offset(image, weights, out):
    x, y = cuda.grid(2)
    up, left = weights.shape[0] // 2, weights.shape[1] // 2
    if y < out.shape[0] and x < out.shape[1]:
        total = np.float32(0)
        for i in range(-up, up):
            for j in range(-left, left):
                if y + i >= 0 and y + i < image.shape[0] and x + j >= 0 and x + j < image.shape[1]:
                    total += weights[i + up, j + left] * image[y + i, x + j]
        out[y, x] = total


@cuda.jit
def weights_column_first(image, weights, out):
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        total = np.float32(0)
        for i in range(weights.shape[0]):
            for j in range(weights.shape[1]):
                row = y + i - weights.shape[0] // 2
                column = x + j - weights.shape[1] // 2
                if row >= 0 and row < image.shape[0] and column >= 0 and column < image.shape[1]:
                    total += weights[j, i] * image[row, column]
        out[y, x] = total


@cuda.jit
def offsets_for_indices_of_weights(image, weights, out):
    x, y = cuda.grid(2)
    up, left = weights.shape[0] // 2, weights.shape[1] // 2
    if y < out.shape[0] and x < out.shape[1]:
        total = np.float32(0)
        for i in range(-up, up + 1):
            for j in range(-left, left + 1):
                if y + i >= 0 and y + i < image.shape[0] and x + j >= 0 and x + j < image.shape[1]:
                    total += weights[i, j] * image[y + i, x + j]
        out[y, x] = total


def below_0_in_weights(case: Case, seen: Observation, expected: Observation) -> bool:
    """A negative index into the filter."""
    return outside("weights")(case, seen, expected) and min(touched(seen).index) < 0


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
    mistakes=(
        Mistake(
            "flips the filter",
            flips_the_filter,
            "Your filter is upside down and left to right: where i grows, the row has to grow too. That is the "
            "mathematicians' convolution; a CNN does not flip.",
        ),
        Mistake(
            "no guard",
            no_guard,
            "A thread past the edge writes. The grid is made of whole blocks: guard the write as in exercise 01.1.",
            symptom=outside("out"),
        ),
        Mistake(
            "reads past the border",
            reads_past_the_border,
            "Near the border the filter reaches out of the image, and you read there: a negative index is not the last "
            "row on a GPU, it is somebody else's memory. Leave out what lies outside.",
            symptom=outside("image"),
        ),
        Mistake(
            "filter begins at the pixel",
            filter_begins_at_the_pixel,
            "Your filter has its first corner on the pixel, so the picture moves up and left. Its middle belongs there: "
            "subtract half a filter.",
        ),
        Mistake(
            "leaves the border out",
            leaves_the_border_out,
            "The pixels near the border are never written. They have a sum as well, of fewer pixels.",
        ),
        Mistake(
            "repeats the border",
            repeats_the_border,
            "Outside the image you take the nearest pixel of the border. Here such pixels count as 0.",
        ),
        Mistake(
            "adds to what was there",
            adds_to_what_was_there,
            "You add to `out`, which nobody has set to 0: memory of a GPU holds whatever was there before.",
        ),
        Mistake(
            "sums up in global memory",
            sums_up_in_global_memory,
            "Every `out[y, x] +=` reads and writes global memory. Collect the sum in a variable, which lies in a register, "
            "and write it once.",
            symptom=exceeds(WRITES, 1.0),
        ),
        Mistake(
            "one radius for both sides",
            one_radius_for_both,
            "You take half of one side of the filter for both directions. A filter need not be square: rows go with "
            "weights.shape[0] // 2, columns with weights.shape[1] // 2.",
            symptom=leaves_like(one_radius_for_both, radius_of_the_rows_for_both),
        ),
        Mistake(
            "leaves out the last offset",
            leaves_out_the_last_offset,
            "A filter of 3 has the offsets -1, 0 and 1, and `range(-r, r)` ends before r: the last row and the last column "
            "of the filter are missing. It is `range(-r, r + 1)`.",
            symptom=leaves_like(leaves_out_the_last_offset),
        ),
        Mistake(
            "offsets for indices of the filter",
            offsets_for_indices_of_weights,
            "Your i and j count from the middle, and begin below 0. That fits the pixel; the filter itself counts from its "
            "corner: weights[i + r, j + r].",
            symptom=below_0_in_weights,
        ),
        Mistake(
            "weights column first",
            weights_column_first,
            "You leave the filter, not the image: `weights` is indexed row first as well, so i goes up to weights.shape[0] "
            "and comes first, weights[i, j].",
            symptom=outside("weights"),
        ),
        Mistake(
            "swaps x and y",
            swaps_x_and_y,
            "cuda.grid(2) gives x first, and x is the column: `x, y = cuda.grid(2)`.",
        ),
    ),
)
