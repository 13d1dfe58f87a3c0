"""07.3 `one_f_one_b`: backward as early as it can be.

Floor 4, room `exercises`. Fan et al. 2021, "DAPPLE"; Narayanan et al. 2021, figure 4.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Exercise
from lockstep.exercises.lab07 import judging
from lockstep.exercises.lab07.one_and_one_mistakes import MISTAKES
from lockstep.exercises.lab07.rows import written
from lockstep.exercises.lab07.shapes import of_any_schedule
from lockstep.exercises.observe import Call
from lockstep.parallel.pipeline import Action


def one_f_one_b(stages, micro_batches):
    rows = []
    for r in range(stages):
        warm_up = min(micro_batches, stages - 1 - r)
        row = [Action("F", r, i) for i in range(warm_up)]
        for i in range(micro_batches):
            if warm_up + i < micro_batches:
                row.append(Action("F", r, warm_up + i))
            row.append(Action("B", r, i))
        rows.append(row)
    return rows


def in_three_phases(stages, micro_batches):
    rows = []
    for r in range(stages):
        ahead = min(stages - r, micro_batches)
        row = [f"{r}F{i}" for i in range(ahead)]
        for i in range(micro_batches - ahead):
            row += [f"{r}B{i}", f"{r}F{i + ahead}"]
        rows.append(row + [f"{r}B{i}" for i in range(micro_batches - ahead, micro_batches)])
    return rows


def by_what_is_held(stages, micro_batches):
    """Whoever holds as many as there are stages from here on, or has no more, goes back; otherwise forward."""

    def row(r):
        there = back = 0
        while back < micro_batches:
            if there - back == stages - r or there == micro_batches:
                yield Action("B", r, back)
                back += 1
            else:
                yield Action("F", r, there)
                there += 1

    return [row(r) for r in range(stages)]


def one_f_one_b_stub(stages, micro_batches):
    raise NotImplementedError("a list of actions for each rank")


ONE_F_ONE_B = Exercise(
    id="07.3",
    title="1F1B as a list of actions",
    function="one_f_one_b",
    points=2,
    asks=(
        "Return, for each rank, the list of its actions: `Action(kind, stage, i)` with kind F or B, stage r on rank r. "
        "Rank r of p has at most p - r micro-batches in flight, and the whole takes as long as GPipe."
    ),
    reference=one_f_one_b,
    also_right=(in_three_phases, by_what_is_held),
    stub=one_f_one_b_stub,
    cases=judging.sizes,
    observe=Call(written),
    judge=judging.ONE_F_ONE_B,
    forbidden=("lockstep.parallel.pipeline.one_f_one_b", "lockstep.parallel.pipeline.pipedream"),
    hints=(
        "The last rank can go back at once: F0 B0 F1 B1 and so on. What has the rank before it done by the time that "
        "the first gradient comes?",
        "A rank begins with as many forwards as there are stages after it (the warm-up), then does one F and one B in "
        "turn, and ends with the backwards that are left. Forward and backward both take micro-batches in order.",
        "With fewer micro-batches than stages the warm-up ends early: it is the smaller of m and p - 1 - r.",
        "`warm_up = min(micro_batches, stages - 1 - r)`; then for each i: F of micro-batch warm_up + i if there is one, "
        "and B of micro-batch i.",
    ),
    mistakes=(*MISTAKES, *of_any_schedule(one_f_one_b)),
)
