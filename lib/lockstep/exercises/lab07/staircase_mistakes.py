"""Exercise 07.1: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; the exercise is in `staircase.py`, what goes wrong in any schedule in `shapes.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.lab07.judging import GPIPE, breaks
from lockstep.exercises.lab07.rows import listed
from lockstep.exercises.lab07.shapes import both, numbers
from lockstep.exercises.observe import Observation
from lockstep.parallel.pipeline import Action


def both_ways_alike(stages, micro_batches):
    return [[Action(kind, r, i) for kind in "FB" for i in range(micro_batches)] for r in range(stages)]


def turned_round(stages, micro_batches):
    return [row[:micro_batches] + row[: micro_batches - 1 : -1] for row in both_ways_alike(stages, micro_batches)]


def forward_turned_round_on_odd_ranks(stages, micro_batches):
    rows = both_ways_alike(stages, micro_batches)
    return [row[micro_batches - 1 :: -1] + row[micro_batches:] if r % 2 else row for r, row in enumerate(rows)]


def the_last_rank_goes_back_at_once(stages, micro_batches):
    return [*both_ways_alike(stages, micro_batches)[:-1], one_at_a_time(stages, micro_batches)[-1]]


def turns_round_on_the_last_rank_only(stages, micro_batches):
    rows = both_ways_alike(stages, micro_batches)
    return [*rows[:-1], turned_round(stages, micro_batches)[-1]]


def counts_the_stages_back(stages, micro_batches):
    return [
        [Action("F", r, i) for i in range(micro_batches)]
        + [Action("B", stages - 1 - r, i) for i in range(micro_batches)]
        for r in range(stages)
    ]


def one_at_a_time(stages, micro_batches):
    return [[Action(kind, r, i) for i in range(micro_batches) for kind in "FB"] for r in range(stages)]


def counts_from_one(stages, micro_batches):
    return [[Action(kind, r, i) for kind in "FB" for i in range(1, micro_batches + 1)] for r in range(stages)]


def swaps_stage_and_micro_batch(stages, micro_batches):
    return [[Action(kind, i, r) for kind in "FB" for i in range(micro_batches)] for r in range(stages)]


def reverses_from_m(stages, micro_batches):
    return [
        [Action("F", r, i) for i in range(micro_batches)] + [Action("B", r, i) for i in range(micro_batches, 0, -1)]
        for r in range(stages)
    ]


def stops_before_0(stages, micro_batches):
    return [
        [Action("F", r, i) for i in range(micro_batches)] + [Action("B", r, i) for i in range(micro_batches - 1, 0, -1)]
        for r in range(stages)
    ]


def only_forward(stages, micro_batches):
    return [[Action("F", r, i) for i in range(micro_batches)] for r in range(stages)]


def a_list_for_each_micro_batch(stages, micro_batches):
    there = range(stages)
    return [
        [Action("F", r, i) for r in there] + [Action("B", r, i) for r in reversed(there)] for i in range(micro_batches)
    ]


def writes_the_waits_down(stages, micro_batches):
    return [[None] * r + row for r, row in enumerate(both_ways_alike(stages, micro_batches))]


def tuples_for_actions(stages, micro_batches):
    return [[(kind, r, i) for kind in "FB" for i in range(micro_batches)] for r in range(stages)]


def forward_orders_differ(case: Case, seen: Observation, expected: Observation) -> bool:
    """Some rank takes the micro-batches forward in another order than rank 0."""
    orders = [numbers(row, "F") for row in listed(seen.value)]
    return any(order != orders[0] for order in orders)


def follows_micro_batches(case: Case, seen: Observation, expected: Observation) -> bool:
    """As many lists as micro-batches, in each of which all actions have one micro-batch."""
    rows = seen.value
    if not isinstance(rows, list) or len(rows) != case.args[1] or not all(isinstance(row, list) for row in rows):
        return False
    ends = [{item[2:] for item in row if isinstance(item, str)} for row in rows]
    return len(rows) > 1 and all(len(numbers) == 1 for numbers in ends)


def has_nothings(case: Case, seen: Observation, expected: Observation) -> bool:
    """None or an empty text stands for a wait."""
    return _holds(seen.value, lambda item: item is None or (isinstance(item, str) and not item.strip(" .-")))


def has_tuples(case: Case, seen: Observation, expected: Observation) -> bool:
    """Kind, stage and micro-batch side by side."""
    return _holds(seen.value, lambda item: isinstance(item, (tuple, list)) and len(item) == 3)


def _holds(rows: Any, wanted: Callable[[Any], bool]) -> bool:
    lists = [row for row in rows if isinstance(row, list)] if isinstance(rows, list) else []
    return any(wanted(item) for row in lists for item in row)


MISTAKES = (
    Mistake(
        "forward in another order on some ranks",
        forward_turned_round_on_odd_ranks,
        "Not all ranks go forward in the same order: a rank waits for the micro-batch that it wants first, while the rank "
        "before does others. One order, the same on every rank.",
        symptom=both(breaks(GPIPE, "makespan"), forward_orders_differ),
    ),
    Mistake(
        "backward order reversed wrongly",
        turns_round_on_the_last_rank_only,
        "Not all ranks go back in the same order. A gradient comes from the rank after: what that one does first is "
        "what this one can do first. Forward or reversed, both are right, but on every rank the same.",
        symptom=breaks(GPIPE, "makespan"),
    ),
    Mistake(
        "counts the stages from the back",
        counts_the_stages_back,
        "Backward runs from the last stage to the first, but nothing moves: rank r still has stage r. That the last "
        "rank goes first comes from what each action needs, you need not write it down.",
    ),
    Mistake(
        "one micro-batch at a time",
        one_at_a_time,
        "Each micro-batch goes back right after its forward, so rank 0 waits for the round trip of every one. GPipe "
        "sends all of them forward before the first comes back.",
    ),
    Mistake(
        "the last rank goes back at once",
        the_last_rank_goes_back_at_once,
        "A rank goes back before it has done all its forwards. That works, and saves memory: it is where section 3 leads. In "
        "GPipe all forwards come first, on the last rank, too.",
        symptom=breaks(GPIPE, "order"),
    ),
    Mistake(
        "counts micro-batches from one",
        counts_from_one,
        "You count micro-batches from 1 to m. They are counted from 0, as everything in Python: 0 to m - 1.",
    ),
    Mistake(
        "stage and micro-batch swapped",
        swaps_stage_and_micro_batch,
        "In an `Action` the stage comes before the micro-batch: Action(kind, stage, i). Yours are the other way "
        "round, so a rank has actions of many stages.",
    ),
    Mistake(
        "a list for each micro-batch",
        a_list_for_each_micro_batch,
        "Your lists follow a micro-batch through the stages. A schedule says what each rank does: one list for each "
        "rank, with all its micro-batches.",
        symptom=follows_micro_batches,
    ),
    Mistake(
        "writes the waits down",
        writes_the_waits_down,
        "You need not write down when a rank waits: it starts an action as soon as what it needs has arrived. Give "
        "the actions only.",
        symptom=has_nothings,
    ),
    Mistake(
        "tuples for actions",
        tuples_for_actions,
        'Write `Action("F", stage, i)`, or its text, such as "2F0". A tuple of the three is no action.',
        symptom=has_tuples,
    ),
    Mistake(
        "counts back from m",
        reverses_from_m,
        "Your backward begins with micro-batch m, which does not exist, and ends with 1. From the last to the first "
        "is `reversed(range(m))`, or `range(m - 1, -1, -1)`.",
    ),
    Mistake(
        "stops before micro-batch 0",
        stops_before_0,
        "Backward of micro-batch 0 is missing: the end of a `range` does not belong to it, also when it counts "
        "down. It is `range(m - 1, -1, -1)`.",
    ),
    Mistake(
        "only forward",
        only_forward,
        "There is no backward. Every micro-batch goes through every stage twice: F there, B back.",
    ),
)
