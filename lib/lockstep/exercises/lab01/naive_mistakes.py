"""01.4 `conv2d_naive`: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; the exercise is in `naive.py`, wrong solutions are in `naive_wrong.py`.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.lab01 import naive_wrong as wrong
from lockstep.exercises.lab01.launching import WRITES, exceeds, leaves_like, outside, touched
from lockstep.exercises.observe import Observation


def below_0_in_weights(case: Case, seen: Observation, expected: Observation) -> bool:
    """A negative index into the filter."""
    return outside("weights")(case, seen, expected) and min(touched(seen).index) < 0


MISTAKES = (
    Mistake(
        "flips the filter",
        wrong.flips_the_filter,
        "Your filter is upside down and left to right: where i grows, the row has to grow too. That is the "
        "mathematicians' convolution; a CNN does not flip.",
    ),
    Mistake(
        "no guard",
        wrong.no_guard,
        "A thread past the edge writes. The grid is made of whole blocks: guard the write as in exercise 01.1.",
        symptom=outside("out"),
    ),
    Mistake(
        "reads past the border",
        wrong.reads_past_the_border,
        "Near the border the filter reaches out of the image, and you read there: a negative index is not the last "
        "row on a GPU, it is somebody else's memory. Leave out what lies outside.",
        symptom=outside("image"),
    ),
    Mistake(
        "filter begins at the pixel",
        wrong.filter_begins_at_the_pixel,
        "Your filter has its first corner on the pixel, so the picture moves up and left. Its middle belongs there: "
        "subtract half a filter.",
    ),
    Mistake(
        "leaves the border out",
        wrong.leaves_the_border_out,
        "The pixels near the border are never written. They have a sum as well, of fewer pixels.",
    ),
    Mistake(
        "repeats the border",
        wrong.repeats_the_border,
        "Outside the image you take the nearest pixel of the border. Here such pixels count as 0.",
    ),
    Mistake(
        "adds to what was there",
        wrong.adds_to_what_was_there,
        "You add to `out`, which nobody has set to 0: memory of a GPU holds whatever was there before.",
    ),
    Mistake(
        "sums up in global memory",
        wrong.sums_up_in_global_memory,
        "Every `out[y, x] +=` reads and writes global memory. Collect the sum in a variable, which lies in a register, "
        "and write it once.",
        symptom=exceeds(WRITES, 1.0),
    ),
    Mistake(
        "one radius for both sides",
        wrong.one_radius_for_both,
        "You take half of one side of the filter for both directions. A filter need not be square: rows go with "
        "weights.shape[0] // 2, columns with weights.shape[1] // 2.",
        symptom=leaves_like(wrong.one_radius_for_both, wrong.radius_of_the_rows_for_both),
    ),
    Mistake(
        "leaves out the last offset",
        wrong.leaves_out_the_last_offset,
        "A filter of 3 has the offsets -1, 0 and 1, and `range(-r, r)` ends before r: the last row and the last column "
        "of the filter are missing. It is `range(-r, r + 1)`.",
        symptom=leaves_like(wrong.leaves_out_the_last_offset),
    ),
    Mistake(
        "offsets for indices of the filter",
        wrong.offsets_for_indices_of_weights,
        "Your i and j count from the middle, and begin below 0. That fits the pixel; the filter itself counts from its "
        "corner: weights[i + r, j + r].",
        symptom=below_0_in_weights,
    ),
    Mistake(
        "weights column first",
        wrong.weights_column_first,
        "You leave the filter, not the image: `weights` is indexed row first as well, so i goes up to weights.shape[0] "
        "and comes first, weights[i, j].",
        symptom=outside("weights"),
    ),
    Mistake(
        "swaps x and y",
        wrong.swaps_x_and_y,
        "cuda.grid(2) gives x first, and x is the column: `x, y = cuda.grid(2)`.",
    ),
)
