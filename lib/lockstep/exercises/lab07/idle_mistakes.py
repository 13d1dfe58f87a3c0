"""Exercise 07.2: the sentences that students get for what is in `idle_wrong.py`, and how it is recognised.

Floor 4, room `exercises`; the exercise is in `idle.py`.
"""

from __future__ import annotations

from lockstep.exercises.compare import alike
from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.lab07 import idle_wrong as wrong
from lockstep.exercises.observe import Observation

TWIN = "ZB-H1, 3 ranks, 5 micro-batches"  # comes with whole costs, and then with others


def is_the_formula(case: Case, seen: Observation, expected: Observation) -> bool:
    """The formula's value, where it goes wrong first; elsewhere it may be a coincidence."""
    return case.name.startswith("naive") and alike(seen.value, wrong.the_formula_of_gpipe(*case.args))


def is_rounded(case: Case, seen: Observation, expected: Observation) -> bool:
    """The right share with a few digits."""
    right = isinstance(seen.value, float) and isinstance(expected.value, float)
    return right and any(seen.value == round(expected.value, digits) for digits in (1, 2, 3, 4, 5))


def has_halves(case: Case, seen: Observation, expected: Observation) -> bool:
    """Costs that are no whole numbers, in a schedule that came before with whole ones."""
    return case.name.startswith(TWIN) and any(cost != int(cost) for cost in case.args[1].values())


MISTAKES = (
    Mistake(
        "counts the bubble per rank twice",
        wrong.counts_every_wait_twice,
        "The share is twice what it should be: each idle time is counted twice, as the wait of the one rank and "
        "again as what the other makes it wait, or before an action and again after the one before it.",
    ),
    Mistake(
        "divides by the time of one rank",
        wrong.against_one_ranks_time,
        "You add up the idle time of all ranks and divide by the makespan of one. Divide by the time of all of "
        "them, ranks times makespan, or take the mean over ranks.",
    ),
    Mistake(
        "divides by the work",
        wrong.against_the_work,
        "You divide idle time by working time. That is how much longer it takes than without a bubble, and can "
        "be more than 1. The share is idle time over all time.",
    ),
    Mistake(
        "counts no wait at the start and at the end",
        wrong.only_between_first_and_last,
        "You count the waits between actions only. A rank that has not begun yet, or has finished while others "
        "work, is idle, too: from 0 to the end of the last action of all.",
    ),
    Mistake(
        "forgets the wait at the end",
        wrong.forgets_the_end,
        "You stop counting when a rank has done its own last action. It is idle until the last rank has finished.",
    ),
    Mistake(
        "lets nobody wait for anybody",
        wrong.waits_for_nobody,
        "Every rank seems to start at 0 and to work without a break. An action has to wait for what it needs: F "
        "for the F of the chunk before, B for the B of the chunk after.",
    ),
    Mistake(
        "the formula of GPipe",
        wrong.the_formula_of_gpipe,
        "(p - 1)/(m + p - 1) is the bubble of GPipe and 1F1B, with one chunk a rank. Here any schedule may come: "
        "play it through.",
        symptom=is_the_formula,
    ),
    Mistake(
        "rank 0's share",
        wrong.of_rank_0,
        "That is the idle share of rank 0 alone. The ranks differ when they do not do the same amount of work; "
        "ask for all of them together.",
    ),
    Mistake("in percent", wrong.in_percent, "That is in percent. A share goes from 0 to 1."),
    Mistake(
        "every action takes as long",
        wrong.every_action_takes_one,
        "You give every action the same time. `costs` says what each kind takes: backward usually twice as much "
        "as forward.",
    ),
    Mistake(
        "the busy share",
        wrong.the_busy_share,
        "That is the share of time in which the ranks work. The bubble is the rest.",
    ),
    Mistake(
        "the idle time",
        wrong.the_idle_time,
        "That is the idle time itself. Divide it by the time of all ranks: ranks times makespan.",
    ),
    Mistake(
        "backward does not wait",
        wrong.only_forward_waits,
        "Your backwards start too early. B or I of a chunk needs the gradient from the chunk after it, and if that is "
        "not over yet, it does not count as over at 0: the action has to be asked again, in a later round.",
    ),
    Mistake(
        "forward does not wait",
        wrong.only_backward_waits,
        "Your forwards start as soon as the rank is free. F of a chunk needs the activation from the chunk before it.",
    ),
    Mistake(
        "an order of its own",
        wrong.micro_batch_after_micro_batch,
        "You play micro-batch after micro-batch. A rank does its actions in the order of its list, whatever their numbers.",
    ),
    Mistake(
        "divides by two ranks",
        wrong.as_if_two_ranks,
        "You divide by the time of two ranks. There are `len(actions)` of them.",
    ),
    Mistake(
        "the makespan of rank 0",
        wrong.until_rank_0_has_done,
        "You take rank 0's last end for the makespan. Where weight gradients are put off, or rank 0 does not have the first "
        "chunk, another rank ends last: the makespan is the latest end of all.",
    ),
    Mistake(
        "each rank's own end",
        wrong.until_each_has_done,
        "You count each rank up to its own last action. All of them count from 0 to the makespan, the last end of all.",
    ),
    Mistake(
        "from the first action",
        wrong.from_each_ranks_first,
        "You count each rank from its own first action. It is idle before that, too: from 0.",
    ),
    Mistake(
        "the last rank's share",
        wrong.of_the_last_rank,
        "That is the idle share of the last rank alone. The ranks differ when they do not do the same amount of work; ask "
        "for all of them together.",
    ),
    Mistake(
        "the largest share",
        wrong.the_largest,
        "That is the share of the rank that is idle longest. The ranks differ when they do not do the same amount of work; "
        "ask for all of them together.",
    ),
    Mistake(
        "costs that it knows",
        wrong.known_costs,
        "You do not use `costs`: F = 1 and B = 2 is what they often are. It says what each kind takes.",
    ),
    Mistake(
        "W takes no time",
        wrong.weights_for_free,
        "Your W takes no time, or is left out. Nobody else waits for it, but its rank does it, and that takes `costs['W']`.",
    ),
    Mistake(
        "I as long as B",
        wrong.input_gradient_as_long_as_backward,
        "Your I takes as long as a whole backward. Each kind has its own time: `costs['I']`.",
    ),
    Mistake(
        "half of B",
        wrong.halves_of_backward,
        "You give I and W half of B each. Each kind has its own time: `costs['I']` and `costs['W']`.",
    ),
    Mistake(
        "waits for W",
        wrong.gradient_leaves_with_the_weights,
        "The chunk before waits for your W. The gradient that it needs is ready when I is over; that is why backward is split.",
    ),
    Mistake(
        "as many chunks as ranks",
        wrong.one_chunk_for_each_rank,
        "You take the number of ranks for that of chunks. A rank may have several: the last chunk is the highest number that "
        "there is.",
    ),
    Mistake(
        "rounded",
        wrong.in_hundredths,
        "The share is right, but rounded. Return it as it is.",
        symptom=is_rounded,
    ),
    Mistake(
        "whole steps",
        wrong.in_whole_steps,
        "This schedule is right with whole costs, and wrong with halves. Costs may be any numbers: reckon with starts and "
        "ends in place of whole steps of time.",
        symptom=has_halves,
    ),
)
