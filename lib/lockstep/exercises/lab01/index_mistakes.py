"""01.1 `global_index`: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; the exercise is in `index.py`, wrong solutions are in `index_wrong.py`.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.lab01 import index_wrong as wrong
from lockstep.exercises.lab01.launching import exceeds, outside, touched
from lockstep.exercises.observe import Observation
from lockstep.exercises.symptoms import matches, raises

ELSEWHERE = "pixels written by a thread that stands elsewhere"


def both_write(case: Case, seen: Observation, expected: Observation) -> bool:
    """Two threads of one block write the same pixel."""
    return raises("RaceError", "both write")(case, seen, expected) and seen.error.message.startswith("threads")


def at_the_far_edge(case: Case, seen: Observation, expected: Observation) -> bool:
    """Two threads write the same pixel of the last row or column."""
    cell = touched(seen, "RaceError")
    return cell is not None and any(
        at > 0 and at == size - 1 for at, size in zip(cell.index, case.args[2].shape, strict=False)
    )


MISTAKES = (
    Mistake(
        "swaps x and y",
        wrong.swaps_x_and_y,
        "x and y are swapped: x (the first of grid and block) runs along a row, so it is the column, and y is the row.",
    ),
    Mistake(
        "x as the first index",
        wrong.x_is_the_first_index,
        "An array is indexed row first, out[row, column], while a launch names x first. x is the column, so it comes "
        "second in the brackets.",
    ),
    Mistake(
        "no guard",
        wrong.no_guard,
        "A thread past the edge of the image gets to the array. A grid is made of whole blocks, so it is usually "
        "larger than the image: let a thread write only if both its row and its column exist.",
        symptom=outside("out"),
    ),
    Mistake(
        "guards one axis only",
        wrong.guards_one_axis,
        "One axis is guarded and the other is not: whole blocks may reach past the lower edge as well as past the "
        "right one.",
    ),
    Mistake(
        "compares with the other side",
        wrong.guards_by_the_other_side,
        "The guard compares with the wrong side: x is a column, and there are out.shape[1] of them; shape[0] is the "
        "number of rows.",
    ),
    Mistake(
        "forgets the block",
        wrong.forgets_the_block,
        "Every block starts again at 0. threadIdx counts within the block; the blocks before this one have taken "
        "blockIdx times a block's width of pixels already.",
        symptom=matches("^thread .* of block .* and thread .* of block .* both write"),
    ),
    Mistake(
        "grid's size for the block's",
        wrong.grid_for_block,
        "You multiply by the number of blocks. What the blocks before this one have taken is blockIdx times the "
        "number of threads in a block, blockDim.",
    ),
    Mistake(
        "thread and block exchanged",
        wrong.thread_times_block,
        "Thread and block are exchanged: neighbouring threads of a block should get neighbouring pixels, and a new "
        "block begins where the one before it ended.",
    ),
    Mistake(
        "rows as long as the image is high",
        wrong.rows_as_long_as_the_image_is_high,
        "The pixel is right and its number is not: each row before this one holds width numbers, out.shape[1].",
    ),
    Mistake(
        "width first",
        wrong.width_first,
        "`out.shape` is (height, width): rows first, as in the brackets. It is `height, width = out.shape`.",
    ),
    Mistake(
        "rows as long as the launch",
        wrong.rows_as_long_as_the_launch,
        "You count rows as long as the launch, with the threads past the right edge. A row of the image holds "
        "out.shape[1] numbers.",
    ),
    Mistake(
        "counts down the columns",
        wrong.counts_down_the_columns,
        "You number down the columns. A row comes first: its number is row * width + column.",
    ),
    Mistake(
        "clamps instead of leaving out",
        wrong.clamps,
        "Threads past the edge are sent back to the last pixel, which others write as well. They have no pixel: let "
        "the guard stop them.",
        symptom=at_the_far_edge,
    ),
    Mistake(
        "loops over the image",
        wrong.loops_over_the_image,
        "Several threads write the same pixel, each in a loop over the image. All threads run the same lines, so no "
        "loop is needed: each of them writes the one pixel that it stands on.",
        symptom=both_write,
    ),
    Mistake(
        "two pairs of brackets",
        wrong.two_pairs_of_brackets,
        "A kernel takes both indices in one pair of brackets: write out[y, x], not out[y][x].",
        symptom=raises("Unsupported", "is indexed by 2"),
    ),
    Mistake(
        "numbers the launch",
        wrong.numbers_the_launch,
        "You number the threads along the whole launch and give pixel after pixel to them. x and y exist to save you "
        "that: thread (x, y) stands at out[y, x].",
    ),
    Mistake(
        "one thread for many pixels",
        wrong.one_thread_a_row,
        "A thread writes pixels on which others stand, in a loop, while these do nothing. There is a thread for each "
        "pixel: let it write its own.",
        symptom=exceeds(ELSEWHERE, 1.0),
    ),
)
