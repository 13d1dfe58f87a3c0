"""07.1 `gpipe`: all forward, then all backward.

Floor 4, room `exercises`. Huang et al. 2019, "GPipe", figure 2c.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.judge import Finding
from lockstep.exercises.lab07.rows import each_on_its_rank, schedule_that, takes_at_most, written
from lockstep.exercises.observe import Call, Observation
from lockstep.parallel.pipeline import Action, Schedule


def gpipe(stages, micro_batches):
    rows = []
    for r in range(stages):
        forward = [Action("F", r, i) for i in range(micro_batches)]
        backward = [Action("B", r, i) for i in reversed(range(micro_batches))]
        rows.append(forward + backward)
    return rows


def in_the_same_order_both_ways(stages, micro_batches):
    return [[f"{r}{kind}{i}" for kind in "FB" for i in range(micro_batches)] for r in range(stages)]


def appended_one_by_one(stages, micro_batches):
    rows = {r: [] for r in range(stages)}
    for i in range(micro_batches):
        for r in range(stages):
            rows[r].append(Action("F", r, i))
    while i >= 0:
        for r in range(stages):
            rows[r].append(Action("B", r, i))
        i -= 1
    return tuple(rows.values())


def gpipe_stub(stages, micro_batches):
    raise NotImplementedError("a list of actions for each rank")


def turns_round_on_the_last_rank_only(stages, micro_batches):
    rows = in_the_same_order_both_ways(stages, micro_batches)
    return [*rows[:-1], gpipe(stages, micro_batches)[-1]]


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


def all_on_chunk_0(stages, micro_batches):
    return [[Action(kind, 0, i) for kind in "FB" for i in range(micro_batches)] for _ in range(stages)]


def one_list_for_all(stages, micro_batches):
    return [action for row in gpipe(stages, micro_batches) for action in row]


def leaves_the_last_out(stages, micro_batches):
    return [[Action(kind, r, i) for kind in "FB" for i in range(micro_batches - 1)] for r in range(stages)]


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
    return [[None] * r + row for r, row in enumerate(in_the_same_order_both_ways(stages, micro_batches))]


def tuples_for_actions(stages, micro_batches):
    return [[(kind, r, i) for kind in "FB" for i in range(micro_batches)] for r in range(stages)]


def all_forward_first(case: Case, schedule: Schedule) -> Finding | None:
    """On every rank each forward comes before each backward."""
    for rank, row in enumerate(schedule.actions):
        kinds = "".join(action.kind for action in row)
        if "BF" in kinds:
            at = kinds.index("BF")
            sentence = (
                f"Rank {rank} does {row[at]} before {row[at + 1]}: in GPipe all forwards come before any backward."
            )
            return Finding(sentence, "F for all, then B for all", kinds, ("order", kinds))
    return None


def slow(case: Case, seen: Observation, expected: Observation) -> bool:
    """All forwards first, and still too slow: some ranks take micro-batches in another order than others."""
    found = JUDGE(case, seen, expected)
    return found is not None and isinstance(found.evidence, tuple) and found.evidence[0] == "makespan"


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


def sizes(rng: np.random.Generator) -> Iterator[Case]:
    """Stages and micro-batches, fewer and more of one than of the other."""
    pairs = [(1, 1), (1, 3), (2, 2), (2, 5), (3, 2), (4, 2), (4, 8)]
    pairs += [(5, 5 + int(rng.integers(1, 4)))]
    for stages, micro_batches in pairs:
        yield case_of(stages, micro_batches)


def case_of(stages: int, micro_batches: int) -> Case:
    """Named as the lab speaks of it."""
    words = f"{stages} stage{'s' * (stages > 1)}, {micro_batches} micro-batch{'es' * (micro_batches > 1)}"
    return Case(words, (stages, micro_batches))


def full(case: Case) -> int:
    """The makespan of GPipe and of 1F1B: (m + p - 1)(F + B)."""
    stages, micro_batches = case.args
    return 3 * (micro_batches + stages - 1)


JUDGE = schedule_that(each_on_its_rank, all_forward_first, takes_at_most(full, "F = 1, B = 2"))

GPIPE = Exercise(
    id="07.1",
    title="GPipe as a list of actions",
    function="gpipe",
    asks=(
        "Return, for each rank, the list of its actions in order: `Action(kind, stage, i)` with kind F or B. Rank r holds "
        "stage r. Every rank runs forward for all micro-batches, then backward for all, and nobody waits longer than it "
        "must."
    ),
    reference=gpipe,
    also_right=(in_the_same_order_both_ways, appended_one_by_one),
    stub=gpipe_stub,
    cases=sizes,
    observe=Call(written),
    judge=JUDGE,
    forbidden=("lockstep.parallel.pipeline.gpipe", "lockstep.parallel.pipeline.looped_bfs"),
    hints=(
        "Write down what rank 0 of two does with three micro-batches, on paper. Then rank 1. What differs?",
        "The lists of two ranks differ in the stage only. The order in which a rank takes the micro-batches is the same "
        "on all of them: forward in one order, backward in one order.",
        'For rank r: `[Action("F", r, i) for i in range(micro_batches)]`, and after it the same with "B", in the order '
        "of your choice, but the same on every rank.",
    ),
    mistakes=(
        Mistake(
            "backward order reversed wrongly",
            turns_round_on_the_last_rank_only,
            "Not all ranks go back in the same order. A gradient comes from the rank after: what that one does first is "
            "what this one can do first. Forward or reversed, both are right, but on every rank the same.",
            symptom=slow,
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
            "every rank has stage 0",
            all_on_chunk_0,
            "All ranks do the actions of stage 0. Rank r has stage r, and every stage has to be somewhere.",
        ),
        Mistake(
            "one list for all ranks",
            one_list_for_all,
            "You return one list in which the actions of all ranks stand one after the other. Each rank works through a "
            "list of its own, at the same time: return a list of lists.",
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
            "leaves the last micro-batch out",
            leaves_the_last_out,
            "The last micro-batch is missing: m of them have the numbers 0 to m - 1, which is `range(m)`.",
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
    ),
)
