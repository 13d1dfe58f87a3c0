"""07.7 `design`: the student's own schedule, shorter than 1F1B without more memory than its first rank has.

Floor 4, room `exercises`. Qi, Wan, Huang, Lin 2023, "Zero bubble pipeline parallelism".
"""

from __future__ import annotations

from lockstep.exercises.exercise import Exercise
from lockstep.exercises.lab07 import judging, one_and_one
from lockstep.exercises.lab07.designing_mistakes import MISTAKES, only_split
from lockstep.exercises.lab07.rows import written
from lockstep.exercises.lab07.shapes import of_any_schedule
from lockstep.exercises.observe import Call
from lockstep.parallel.pipeline import Action


def design(stages, micro_batches):
    rows = []
    for r in range(stages):
        warm_up = min(micro_batches, stages - 1 - r)
        row = [Action("F", r, i) for i in range(warm_up)]
        for i in range(micro_batches):
            if warm_up + i < micro_batches:
                row.append(Action("F", r, warm_up + i))
            row.append(Action("I", r, i))
            if i >= r:
                row.append(Action("W", r, i - r))
        first = max(0, micro_batches - r)
        rows.append(row + [Action("W", r, i) for i in range(first, micro_batches)])
    return rows


def whatever_is_ready(stages, micro_batches):
    """A greedy player: at each unit of time I before F before W, as memory allows."""
    done, rows = set(), [[] for _ in range(stages)]
    counts = [{"F": 0, "I": 0, "W": 0} for _ in range(stages)]
    while any(count["W"] < micro_batches for count in counts):
        now = set()
        for r, count in enumerate(counts):
            f, i, w = count["F"], count["I"], count["W"]
            if i < f and (r == stages - 1 or ("I", r + 1, i) in done):
                kind = "I"
            elif f < micro_batches and f - w < stages and (r == 0 or ("F", r - 1, f) in done):
                kind = "F"
            elif w < i:
                kind = "W"
            else:
                continue
            rows[r].append(f"{r}{kind}{count[kind]}")
            now.add((kind, r, count[kind]))
            count[kind] += 1
        done |= now
    return rows


def split_on_early_ranks_only(stages, micro_batches):
    """The last rank splits, the others go back whole: one rank's W is out of everybody's way."""
    whole, split = one_and_one.one_f_one_b(stages, micro_batches), only_split(stages, micro_batches)
    return [*whole[:1], *split[1:]]


def design_stub(stages, micro_batches):
    raise NotImplementedError("a list of actions for each rank")


DESIGN = Exercise(
    id="07.7",
    title="Your own schedule",
    function="design",
    points=3,
    asks=(
        "Return a schedule of your own, for each rank the list of its actions `Action(kind, stage, i)`: one stage a rank, "
        "kinds F and B, or I and W in place of B. With F = I = W = 1 and B = 2 it takes less time than 1F1B, and no rank "
        "has more than p (the number of stages) in flight."
    ),
    reference=design,
    also_right=(only_split, whatever_is_ready, split_on_early_ranks_only),
    stub=design_stub,
    cases=judging.sizes_with_a_bubble,
    observe=Call(written),
    judge=judging.DESIGN,
    forbidden=("lockstep.parallel.pipeline.zero_bubble",),
    core=False,
    hints=(
        "Look at the end of 1F1B: rank 0 waits for gradients that come back through all ranks, B by B. What of a B does "
        "the rank before need?",
        "Only I has to be over before the rank before can go on. Begin with 1F1B and put I and W in the place of B. Does "
        "W have to come right after its I?",
        "W can wait until its rank would be idle. But what waits stays in memory: on rank r there is room for r more "
        "than 1F1B holds there.",
        "Rank r: warm-up as in 1F1B; then for each i one F, I of micro-batch i, and W of micro-batch i - r as soon as "
        "there is one; the W that are left at the end.",
    ),
    mistakes=(*MISTAKES, *of_any_schedule(design)),
)
