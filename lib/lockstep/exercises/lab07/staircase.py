"""07.1 `gpipe`: all forward, then all backward.

Floor 4, room `exercises`. Huang et al. 2019, "GPipe", figure 2c.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Exercise
from lockstep.exercises.lab07 import judging
from lockstep.exercises.lab07.rows import written
from lockstep.exercises.lab07.shapes import of_any_schedule
from lockstep.exercises.lab07.staircase_mistakes import MISTAKES
from lockstep.exercises.observe import Call
from lockstep.parallel.pipeline import Action


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
    cases=judging.sizes,
    observe=Call(written),
    judge=judging.GPIPE,
    forbidden=("lockstep.parallel.pipeline.gpipe", "lockstep.parallel.pipeline.looped_bfs"),
    hints=(
        "Write down what rank 0 of two does with three micro-batches, on paper. Then rank 1. What differs?",
        "The lists of two ranks differ in the stage only. The order in which a rank takes the micro-batches is the same "
        "on all of them: forward in one order, backward in one order.",
        'For rank r: `[Action("F", r, i) for i in range(micro_batches)]`, and after it the same with "B", in the order '
        "of your choice, but the same on every rank.",
    ),
    mistakes=(*MISTAKES, *of_any_schedule(gpipe)),
)
