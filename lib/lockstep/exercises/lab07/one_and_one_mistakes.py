"""Exercise 07.3: the sentences that students get for what is in `one_and_one_wrong.py`, and how it is recognised.

Floor 4, room `exercises`; the exercise is in `one_and_one.py`.
"""

from __future__ import annotations

import re

from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.lab07 import one_and_one_wrong as wrong
from lockstep.exercises.lab07.judging import ONE_F_ONE_B, breaks
from lockstep.exercises.lab07.rows import listed, stage_a_rank
from lockstep.exercises.lab07.shapes import (
    beyond_the_last,
    both,
    forwards_first,
    in_the_right_orders,
    lacks_backwards,
    numbers,
)
from lockstep.exercises.observe import Observation
from lockstep.exercises.symptoms import says


def goes_beyond_m(case: Case, seen: Observation, expected: Observation) -> bool:
    """Forwards of micro-batches that there are not, or counted to before the first."""
    return says("micro_batch is -")(case, seen, expected) or beyond_the_last(stage_a_rank)(case, seen, expected)


def back_in_another_order(case: Case, seen: Observation, expected: Observation) -> bool:
    """Some rank's backwards take the micro-batches in another order than its forwards."""
    return any(numbers(row, "F") != numbers(row, "B") for row in listed(seen.value))


def only_the_last_goes_back_early(case: Case, seen: Observation, expected: Observation) -> bool:
    """All ranks but the last do all forwards first."""
    kinds = ["".join(action.kind for action in row) for row in listed(seen.value)]
    return "BF" in kinds[-1] and not any("BF" in row for row in kinds[:-1])


def forwards_in_a_row_again(case: Case, seen: Observation, expected: Observation) -> bool:
    """After a backward come two forwards or more, and two backwards before that: blocks, not pairs."""
    kinds = ["".join(action.kind for action in row) for row in listed(seen.value)]
    return any(re.search("FB.*FF", row) or re.fullmatch("FF+BB+F+B+", row) for row in kinds)


MISTAKES = (
    Mistake(
        "warm-up one short",
        wrong.warm_up_one_short,
        "The warm-up is one forward too short. While the first gradient is on its way, every stage after this one "
        "needs a micro-batch to work on: p - 1 - r forwards before rank r's first pair of F and B.",
    ),
    Mistake(
        "warm-up one long",
        wrong.warm_up_one_long,
        "It is no faster with one forward more, but a micro-batch more is in flight on every rank. Rank r begins with "
        "p - 1 - r forwards; the next F belongs to the first pair.",
    ),
    Mistake(
        "the same warm-up on every rank",
        wrong.equal_warm_up,
        "Every rank begins with as many forwards as rank 0. The nearer a rank is to the end, the sooner its first "
        "gradient comes: the last rank has it at once.",
    ),
    Mistake(
        "warm-up grows with the rank",
        wrong.warm_up_the_wrong_way,
        "Your warm-up is short on the first rank and long on the last. Rank 0 waits longest for its first gradient, "
        "so it needs the most forwards before: as many as there are stages after it.",
    ),
    Mistake(
        "no warm-up",
        wrong.no_warm_up,
        "Every rank starts with F0 B0, as only the last one can: rank 0 waits for the whole round trip of every "
        "micro-batch. Ranks further ahead need more forwards first.",
    ),
    Mistake(
        "backward first in a pair",
        wrong.backward_first,
        "After the warm-up comes a forward, then a backward. The other way round the last rank, whose warm-up is "
        "empty, would go back with what it has not done forward.",
    ),
    Mistake(
        "no cool-down",
        wrong.no_cool_down,
        "The last backwards are missing: there are as many pairs as forwards are left after the warm-up, and then "
        "still warm-up backwards to do.",
        symptom=lacks_backwards,
    ),
    Mistake(
        "the newest goes back first",
        wrong.the_newest_back_first,
        "Backward takes the newest micro-batch. The first gradient that comes from the next rank is that of the "
        "oldest: first in, first out.",
        symptom=both(breaks(ONE_F_ONE_B, "makespan"), back_in_another_order),
    ),
    Mistake(
        "both of one micro-batch in a pair",
        wrong.both_of_one_micro_batch,
        "In a pair you take F and B of the same micro-batch, and what the warm-up began comes last. It came first, so "
        "its gradient comes first: F is ahead of B by the warm-up.",
    ),
    Mistake(
        "warm-up longer than there are micro-batches",
        wrong.warm_up_beyond_m,
        "With fewer micro-batches than stages your warm-up asks for micro-batches that there are not.",
        symptom=goes_beyond_m,
    ),
    Mistake(
        "this is GPipe",
        wrong.all_forward_first,
        "This is GPipe: all micro-batches are in flight at once. In 1F1B a rank goes back as soon as it can, so that "
        "no more than p - r are, also when there are few.",
        symptom=both(breaks(ONE_F_ONE_B, "in flight"), forwards_first),
    ),
    Mistake(
        "the last rank alone",
        wrong.only_the_last_rank_goes_back,
        "The last rank goes back at once, but the others do all forwards first. They, too, get gradients before that, and "
        "can let go of what they hold.",
        symptom=both(breaks(ONE_F_ONE_B, "in flight"), only_the_last_goes_back_early),
    ),
    Mistake(
        "in blocks",
        wrong.in_blocks,
        "You take some forwards, then as many backwards, then forwards again. At the end of each block the pipeline has run "
        "empty: after the warm-up one F and one B take turns.",
        symptom=both(breaks(ONE_F_ONE_B, "in flight", "makespan"), forwards_in_a_row_again),
    ),
    Mistake(
        "a warm-up that is too long",
        wrong.warm_up_of_four,
        "The warm-up is too long, on some rank at least. It is p - 1 - r forwards on rank r of p, for any p: as many as there "
        "are stages after this one.",
        symptom=both(breaks(ONE_F_ONE_B, "in flight"), in_the_right_orders),
    ),
    Mistake(
        "a warm-up that is too short",
        wrong.warm_up_of_three_at_most,
        "The warm-up is too short, on some rank at least. It is p - 1 - r forwards on rank r of p, for any p, and less only "
        "where there are fewer micro-batches.",
        symptom=both(breaks(ONE_F_ONE_B, "faults", "makespan"), in_the_right_orders),
    ),
)
