"""07.3 `one_f_one_b`: backward as early as it can be.

Floor 4, room `exercises`. Fan et al. 2021, "DAPPLE"; Narayanan et al. 2021, figure 4.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.lab07.rows import each_on_its_rank, holds_at_most, schedule_that, takes_at_most, written
from lockstep.exercises.lab07.staircase import full, gpipe, sizes
from lockstep.exercises.observe import Call, Observation
from lockstep.exercises.symptoms import says
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


def with_warm_up(warm_up):
    """The mistakes: 1F1B with `warm_up(rank, stages)` forwards first."""

    def rows(stages, micro_batches):
        made = []
        for r in range(stages):
            first = max(0, min(micro_batches, warm_up(r, stages)))
            row = [Action("F", r, i) for i in range(first)]
            for i in range(micro_batches):
                row += [Action("F", r, first + i)] if first + i < micro_batches else []
                row.append(Action("B", r, i))
            made.append(row)
        return made

    return rows


def warm_up_one_short(stages, micro_batches):
    return with_warm_up(lambda r, p: p - 2 - r)(stages, micro_batches)


def warm_up_one_long(stages, micro_batches):
    return with_warm_up(lambda r, p: p - r)(stages, micro_batches)


def equal_warm_up(stages, micro_batches):
    return with_warm_up(lambda r, p: p - 1)(stages, micro_batches)


def warm_up_the_wrong_way(stages, micro_batches):
    return with_warm_up(lambda r, p: r)(stages, micro_batches)


def no_warm_up(stages, micro_batches):
    return with_warm_up(lambda r, p: 0)(stages, micro_batches)


def backward_first(stages, micro_batches):
    rows = []
    for r in range(stages):
        warm_up = min(micro_batches, stages - 1 - r)
        row = [Action("F", r, i) for i in range(warm_up)]
        for i in range(micro_batches):
            row.append(Action("B", r, i))
            if warm_up + i < micro_batches:
                row.append(Action("F", r, warm_up + i))
        rows.append(row)
    return rows


def no_cool_down(stages, micro_batches):
    rows = []
    for r in range(stages):
        warm_up = min(micro_batches, stages - 1 - r)
        row = [Action("F", r, i) for i in range(warm_up)]
        for i in range(micro_batches - warm_up):
            row += [Action("F", r, warm_up + i), Action("B", r, i)]
        rows.append(row)
    return rows


def the_newest_back_first(stages, micro_batches):
    rows = []
    for r in range(stages):
        warm_up, held = min(micro_batches, stages - 1 - r), []
        row = []
        for i in range(micro_batches):
            row.append(Action("F", r, i))
            held.append(i)
            if i >= warm_up:
                row.append(Action("B", r, held.pop()))
        rows.append(row + [Action("B", r, i) for i in reversed(held)])
    return rows


def both_of_one_micro_batch(stages, micro_batches):
    rows = []
    for r in range(stages):
        warm_up = min(micro_batches, stages - 1 - r)
        row = [Action("F", r, i) for i in range(warm_up)]
        for i in range(warm_up, micro_batches):
            row += [Action("F", r, i), Action("B", r, i)]
        rows.append(row + [Action("B", r, i) for i in range(warm_up)])
    return rows


def warm_up_beyond_m(stages, micro_batches):
    rows = []
    for r in range(stages):
        warm_up = stages - 1 - r
        row = [Action("F", r, i) for i in range(warm_up)]
        for i in range(micro_batches):
            row += [Action("F", r, warm_up + i)] if warm_up + i < micro_batches else []
            row.append(Action("B", r, i))
        rows.append(row)
    return rows


def held_by_1f1b(case: Case) -> list[int]:
    """min(m, p - r) on rank r."""
    stages, micro_batches = case.args
    return [min(micro_batches, stages - r) for r in range(stages)]


def lacks_backwards(case: Case, seen: Observation, expected: Observation) -> bool:
    """All forwards are there, and fewer backwards."""
    rows = seen.value if isinstance(seen.value, list) else []
    items = [item for row in rows if isinstance(row, list) for item in row if isinstance(item, str)]
    forwards, backwards = (sum(kind in item for item in items) for kind in "FB")
    return forwards == case.args[0] * case.args[1] > backwards


JUDGE = schedule_that(each_on_its_rank, holds_at_most(held_by_1f1b), takes_at_most(full, "F = 1, B = 2"))

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
    cases=sizes,
    observe=Call(written),
    judge=JUDGE,
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
    mistakes=(
        Mistake(
            "warm-up one short",
            warm_up_one_short,
            "The warm-up is one forward too short. While the first gradient is on its way, every stage after this one "
            "needs a micro-batch to work on: p - 1 - r forwards before rank r's first pair of F and B.",
        ),
        Mistake(
            "warm-up one long",
            warm_up_one_long,
            "It is no faster with one forward more, but a micro-batch more is in flight on every rank. Rank r begins with "
            "p - 1 - r forwards; the next F belongs to the first pair.",
        ),
        Mistake(
            "the same warm-up on every rank",
            equal_warm_up,
            "Every rank begins with as many forwards as rank 0. The nearer a rank is to the end, the sooner its first "
            "gradient comes: the last rank has it at once.",
        ),
        Mistake(
            "warm-up grows with the rank",
            warm_up_the_wrong_way,
            "Your warm-up is short on the first rank and long on the last. Rank 0 waits longest for its first gradient, "
            "so it needs the most forwards before: as many as there are stages after it.",
        ),
        Mistake(
            "no warm-up",
            no_warm_up,
            "Every rank starts with F0 B0, as only the last one can: rank 0 waits for the whole round trip of every "
            "micro-batch. Ranks further ahead need more forwards first.",
        ),
        Mistake(
            "backward first in a pair",
            backward_first,
            "After the warm-up comes a forward, then a backward. The other way round the last rank, whose warm-up is "
            "empty, would go back with what it has not done forward.",
        ),
        Mistake(
            "no cool-down",
            no_cool_down,
            "The last backwards are missing: there are as many pairs as forwards are left after the warm-up, and then "
            "still warm-up backwards to do.",
            symptom=lacks_backwards,
        ),
        Mistake(
            "the newest goes back first",
            the_newest_back_first,
            "Backward takes the newest micro-batch. The first gradient that comes from the next rank is that of the "
            "oldest: first in, first out.",
        ),
        Mistake(
            "both of one micro-batch in a pair",
            both_of_one_micro_batch,
            "In a pair you take F and B of the same micro-batch, and what the warm-up began comes last. It came first, so "
            "its gradient comes first: F is ahead of B by the warm-up.",
        ),
        Mistake(
            "warm-up longer than there are micro-batches",
            warm_up_beyond_m,
            "With fewer micro-batches than stages your warm-up asks for micro-batches that there are not.",
            symptom=says("micro_batch is -"),
        ),
        Mistake(
            "this is GPipe",
            gpipe,
            "This is GPipe: all micro-batches are in flight at once. In 1F1B a rank goes back as soon as it can, so that "
            "no more than p - r are.",
        ),
    ),
)
