"""The sentence that each fault of exercise 11.5 gets.

Floor 4, room `exercises`; the exercise is in `share.py`, the wrong functions in `share_wrong.py`.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Mistake
from lockstep.exercises.lab11 import share_wrong as wrong
from lockstep.exercises.symptoms import raises

MISTAKES = (
    Mistake(
        "counts overlap twice",
        wrong.counts_transfers_twice,
        "Where two transfers move at the same time you count that time twice. The rank waits, or computes, only once "
        "meanwhile: put the transfers together first.",
    ),
    Mistake(
        "counts computation twice",
        wrong.counts_work_twice,
        "Where one computation lies within another, what it hides counts twice. A rank that computes hides what moves, "
        "however many spans say so.",
    ),
    Mistake(
        "the mean of the ranks' shares",
        wrong.mean_of_shares,
        "You take the mean of the shares of the ranks. A rank that hardly communicates would count as much as one that does "
        "nothing else: add up the seconds, then divide.",
    ),
    Mistake(
        "as a share of the computation",
        wrong.of_the_computation,
        "You divide by the seconds of computation. Asked is which share of the *communication* is hidden.",
    ),
    Mistake(
        "the exposed share",
        wrong.the_exposed_share,
        "That is what is not hidden. The share that is hidden is the rest.",
    ),
    Mistake("in percent", wrong.in_percent, "That is in percent. A share goes from 0 to 1."),
    Mistake(
        "as a share of the run",
        wrong.of_the_run,
        "You divide by the time of the whole run. Divide by the seconds in which something moves.",
    ),
    Mistake(
        "all ranks on one line",
        wrong.of_all_ranks_at_once,
        "You put the ranks' times together before you compare. A rank's transfers are hidden by its own computation, not by "
        "that of another rank.",
    ),
    Mistake("rank 0 alone", wrong.rank_0, "That is rank 0's share. All ranks count, together."),
    Mistake(
        "zero for nothing",
        wrong.zero_for_nothing,
        "When nothing moves, or nothing is hidden, there is a difference: a share of nothing is None, and none of something "
        "is 0.",
    ),
    Mistake(
        "divides by nothing",
        wrong.divides_by_nothing,
        "When nothing moves you divide by 0. Return None.",
        symptom=raises("ZeroDivisionError"),
    ),
    Mistake(
        "whole transfers",
        wrong.whole_transfers,
        "You count a transfer as hidden when some computation meets it. Only the part during which the rank computes is "
        "hidden.",
    ),
    Mistake(
        "hidden by one computation",
        wrong.hidden_by_one,
        "You stop at the first computation that meets a transfer. A long transfer may go on behind the next one.",
    ),
    Mistake(
        "takes the order for granted",
        wrong.unsorted,
        "You put neighbours in the list together. They come in any order: sort them first.",
    ),
    Mistake(
        "how many are hidden",
        wrong.many,
        "You count transfers. They are of unequal length: add up their seconds.",
    ),
    Mistake(
        "the hidden seconds",
        wrong.hidden_seconds,
        "Those are the hidden seconds. Divide by all seconds in which something moves.",
    ),
    Mistake(
        "None when one rank moves nothing",
        wrong.none_if_one_moves_nothing,
        "You return None as soon as one rank moves nothing. The others still do: None is for when nobody moves anything.",
    ),
    Mistake(
        "leaves out ranks that do not compute",
        wrong.without_ranks_that_do_not_compute,
        "You leave out ranks that compute nothing. What they move is exposed, and counts below the line as all the rest.",
    ),
    Mistake(
        "the lesser of both",
        wrong.the_lesser_of_both,
        "You divide the lesser of both sums by the communication. That much could be hidden at best; what *is* hidden is the "
        "time in which both go on at once.",
    ),
    Mistake(
        "hidden from end to end",
        wrong.hidden_from_end_to_end,
        "You count a transfer only when a single computation covers all of it. The part that is covered is hidden, also when "
        "the rest is not.",
    ),
    Mistake(
        "ends with the later one",
        wrong.ends_with_the_later,
        "Where you put two intervals together, the new end is that of the one which began later. The first may go on for "
        "longer: take the larger of both ends.",
    ),
    Mistake(
        "on a grid",
        wrong.on_a_grid,
        "That is nearly right: you look at points of a grid, which fall beside begins and ends. Cut the time at the begins and "
        "ends themselves.",
        symptom=wrong.is_close,
    ),
)
