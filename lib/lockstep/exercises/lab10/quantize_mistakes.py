"""What goes wrong in exercise 10.1, and the sentence that each fault gets.

Floor 4, room `exercises`; the exercise is in `quantize.py`.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Mistake
from lockstep.exercises.lab10 import quantize_symptoms as shown
from lockstep.exercises.lab10 import quantize_wrong as wrong
from lockstep.exercises.symptoms import matches

MISTAKES = (
    Mistake(
        "codes all-reduced in int8",
        wrong.reduces_codes,
        "You add codes up in int8, where 100 + 100 is -56. (An NCCL all-reduce would say nothing.) And codes of two ranks count "
        "steps of different length. Gather codes and scales, and add up what they stand for.",
        symptom=matches("int8"),
    ),
    Mistake(
        "integer sums wrap",
        wrong.adds_codes,
        "Your sums wrap: codes are added in int8, and 100 + 100 is -56 there. Turn codes into float32 before you add them.",
        symptom=shown.any_of(
            shown.looks_like(
                shown.wrapped_at_one_scale, lambda g, block: shown.steps_of(g, block).amax(0, keepdim=True)
            ),
            shown.looks_like(shown.wrapped_at_own_scales),
            shown.looks_like(shown.wrapped_at_mean_scales),
        ),
    ),
    Mistake(
        "biased: rounds to the nearest",
        wrong.to_the_nearest,
        "You round to the nearest code: 30.3 is 30 every time, so on average 0.3 of a step is lost, and small numbers are lost "
        "for ever. Round up as often as the part after the point says.",
    ),
    Mistake(
        "biased: always down",
        wrong.always_down,
        "You round down every time. Round up as often as the part after the point says: 30.3 in three of ten cases.",
    ),
    Mistake(
        "biased: towards zero",
        wrong.towards_zero,
        "You cut off the part after the point, which is what a conversion to int8 does: numbers shrink, and small ones vanish. "
        "Round at random.",
    ),
    Mistake(
        "biased: rounds after adding",
        wrong.rounds_after_adding,
        "You add a random number from 0 to 1 and round to the nearest: on average half a step too much. Round *down* after adding.",
    ),
    Mistake(
        "biased below zero",
        wrong.carries_from_zero,
        "Below zero your rounding is off by one: the part after the point counts from the code below (-50.6 is 0.4 above -51), "
        "but `trunc` and `int` give the one above.",
    ),
    Mistake(
        "biased: more often the wrong way",
        wrong.more_often_the_wrong_way,
        "You round up when the random number is *above* the part after the point: 30.3 becomes 31 in seven of ten cases. It has "
        "to be in three.",
    ),
    Mistake(
        "one random number for all",
        wrong.one_random_number,
        "You draw one random number for the whole tensor, so all errors have one direction and do not cancel. Draw one for each "
        "number: `torch.rand_like`.",
        symptom=shown.differs_from_call_to_call,
    ),
    Mistake(
        "one scale for the tensor",
        wrong.one_scale,
        "You have one scale for the whole tensor. One large number then takes the resolution of all others: where a block's "
        "numbers are small, they become zero. A scale for each block.",
        symptom=shown.looks_like(shown.mean_of_all, shown.tensor_steps),
    ),
    Mistake(
        "the 127 forgotten",
        wrong.the_127_forgotten,
        "Your numbers are 127 times too large: a code counts steps of the largest magnitude *over 127*.",
        symptom=shown.looks_like(shown.whole_scales, lambda g, block: 127 * shown.steps_of(g, block)),
    ),
    Mistake(
        "largest number instead of largest magnitude",
        wrong.largest_with_sign,
        "Your scale is that of the largest number. Where the largest magnitude is a negative one's, its code does not fit: "
        "`abs` first.",
    ),
    Mistake(
        "so many blocks",
        wrong.so_many_blocks,
        "You make `block` blocks. It is the numbers in a block: `.view(-1, block)`.",
        symptom=shown.in_so_many_blocks,
    ),
    Mistake(
        "scales not sent",
        wrong.scales_not_sent,
        "Each rank reads everyone's codes with its own scales, so the others' scales are lost, and ranks return different numbers. "
        "Send the scales as well.",
        symptom=shown.looks_like(shown.own_scales, lambda g, block: shown.steps_of(g, block).sum(0, keepdim=True)),
    ),
    Mistake(
        "averages codes and scales apart",
        wrong.averages_apart,
        "You average codes and scales apart and multiply the means. A code counts steps of its own rank's length: multiply first, "
        "then average.",
        symptom=shown.looks_like(shown.mean_scales),
    ),
    Mistake(
        "own part not rounded",
        wrong.own_part_exact,
        "Each rank takes its own gradient as it is, and the others' rounded. So no two ranks have the same mean, and their models "
        "walk apart: take what you have sent, from yourself as well.",
        symptom=shown.apart_by_rounding,
    ),
    Mistake(
        "sum for mean",
        wrong.sums,
        "You add up what the ranks sent; asked is the mean.",
        symptom=shown.looks_like(shown.sum_of_all, lambda g, block: shown.steps_of(g, block).sum(0, keepdim=True)),
    ),
    Mistake(
        "own gradient alone",
        wrong.own_alone,
        "Nothing is sent: each rank returns its own gradient, rounded.",
        symptom=shown.looks_like(shown.own_alone),
    ),
    Mistake(
        "a code too many",
        wrong.a_code_too_many,
        "Your largest number has the code 128, and int8 ends at 127: it wraps to -128. Divide the largest magnitude by 127.",
    ),
    Mistake(
        "float32 on the wire",
        wrong.numbers_on_the_wire,
        "You turn codes back into float32 before you send them, and send as much as without any codes. Send codes and scales.",
    ),
    Mistake(
        "a scale for each number",
        wrong.a_scale_for_each_number,
        "You send a scale for each number: five bytes a number, more than float32 takes. One for each block goes round; each rank "
        "repeats it for itself.",
    ),
    Mistake(
        "wide codes",
        wrong.wide_codes,
        "Your codes travel as whole numbers of four bytes. `.to(torch.int8)` before they are sent.",
    ),
    Mistake(
        "writes into the gradient",
        wrong.into_the_gradient,
        "You write the mean into `g`. Who compresses with error feedback still needs it: return a new tensor.",
    ),
    Mistake(
        "whole blocks alone",
        wrong.whole_blocks_alone,
        "You see `g` as rows of `block` numbers, and it need not divide. Fill the last row up with zeros, and cut them off in the "
        "end.",
        symptom=matches("is invalid for input of size"),
    ),
    Mistake(
        "zero over zero",
        wrong.zero_over_zero,
        "A block of zeros has the scale 0, and 0/0 is NaN. Divide by 1 there, or by a very small number.",
        symptom=shown.any_of(matches("NaN to integer"), matches("p_in >= 0")),  # of Python's floor, and of bernoulli
    ),
    Mistake(
        "cut off after adding",
        wrong.cut_after_adding,
        "You add a random number and then cut off the part after the point, as a conversion to int8 does. Below zero that goes up: "
        "`torch.floor` first.",
    ),
    Mistake(
        "biased: never below zero",
        wrong.never_below_zero,
        "Numbers below zero are cut off towards zero: their part after the point is negative, and no random number is below it. "
        "Count from the code below, `floor`.",
    ),
    Mistake(
        "biased: a coin",
        wrong.tosses_a_coin,
        "You round up in half of all cases, whatever the number. Round up as often as the part after the point says: 30.3 in three "
        "of ten cases.",
    ),
    Mistake(
        "the same random numbers at each call",
        wrong.the_same_at_each_call,
        "You seed your generator in each call, so a number that comes again is rounded the same way again, and its error is never "
        "made good. Use torch's own generator, or one that lives on between calls.",
    ),
    Mistake(
        "one random number for each block",
        wrong.one_for_each_block,
        "You draw one random number for a whole block: its numbers go up together or down together, and their errors do not cancel. "
        "Draw one for each number: `torch.rand_like`.",
    ),
    Mistake(
        "half of the codes",
        wrong.half_of_the_codes,
        "You use about half of the codes, so steps are twice as long as a byte allows. Codes go from -127 to 127: divide the largest "
        "magnitude by 127.",
    ),
    Mistake(
        "scales of two bytes",
        wrong.scales_of_two_bytes,
        "Your scales travel with fewer than four bytes. Half precision has no numbers below 6e-8, and gradients have: a small "
        "block's scale would become 0. Send float32.",
        symptom=shown.sends_too_little,
    ),
    Mistake(
        "the rest left out",
        wrong.the_rest_left_out,
        "Numbers after the last whole block are left out. Fill the last row up with zeros, and cut them off in the end.",
    ),
)
