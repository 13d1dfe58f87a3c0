"""07.7 `design`: the student's own schedule, shorter than 1F1B without more memory than its first rank has.

Floor 4, room `exercises`. Qi, Wan, Huang, Lin 2023, "Zero bubble pipeline parallelism".
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.judge import Finding
from lockstep.exercises.lab07 import one_and_one, staircase
from lockstep.exercises.lab07.rows import holds_at_most, schedule_that, takes_at_most, written
from lockstep.exercises.observe import Call, Observation
from lockstep.exercises.symptoms import Symptom
from lockstep.parallel.pipeline import Action, Schedule


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


def only_split(stages, micro_batches):
    """1F1B with I and W in place of B: the gradient leaves before the weights' turn."""
    rows = one_and_one.one_f_one_b(stages, micro_batches)
    return [
        [part for a in row for part in ([a] if a.kind == "F" else [Action(k, a.chunk, a.micro_batch) for k in "IW"])]
        for row in rows
    ]


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


def weights_at_the_end(stages, micro_batches):
    rows = only_split(stages, micro_batches)
    return [[a for a in row if a.kind != "W"] + [a for a in row if a.kind == "W"] for row in rows]


def twice_the_warm_up(stages, micro_batches):
    rows = []
    for r in range(stages):
        first = min(micro_batches, 2 * (stages - 1 - r))
        row = [Action("F", r, i) for i in range(first)]
        for i in range(micro_batches):
            row += [Action("F", r, first + i)] if first + i < micro_batches else []
            row += [Action("I", r, i), Action("W", r, i)]
        rows.append(row)
    return rows


def weights_before_input(stages, micro_batches):
    rows = one_and_one.one_f_one_b(stages, micro_batches)
    return [
        [part for a in row for part in ([a] if a.kind == "F" else [Action(k, a.chunk, a.micro_batch) for k in "WI"])]
        for row in rows
    ]


def forgets_the_weights(stages, micro_batches):
    return [[a for a in row if a.kind != "W"] for row in only_split(stages, micro_batches)]


def forgets_the_last_weights(stages, micro_batches):
    return [[a for a in row if a.kind != "W" or a.micro_batch < micro_batches - r] for r, row in
            enumerate(design(stages, micro_batches))]  # fmt: skip


def both_whole_and_split(stages, micro_batches):
    rows = one_and_one.one_f_one_b(stages, micro_batches)
    return [
        [part for a in row for part in ([a] if a.kind == "F" else [a, Action("W", a.chunk, a.micro_batch)])]
        for row in rows
    ]


def split_gpipe(stages, micro_batches):
    return [
        [Action("F", r, i) for i in range(micro_batches)]
        + [Action(kind, r, i) for i in range(micro_batches) for kind in "IW"]
        for r in range(stages)
    ]


def split_naive(stages, micro_batches):
    return [[Action(kind, r, i) for i in range(micro_batches) for kind in "FIW"] for r in range(stages)]


def one_rank_does_all(stages, micro_batches):
    return [[Action(kind, c, i) for i in range(micro_batches) for kind, cs in (("F", range(stages)),
             ("B", reversed(range(stages)))) for c in cs]] + [[] for _ in range(stages - 1)]  # fmt: skip


def one_stage_each(case: Case, schedule: Schedule) -> Finding | None:
    """Every rank holds exactly one stage, whichever."""
    placed = list(schedule.placement.values())
    if sorted(placed) == list(range(schedule.ranks)):
        return None
    busy = next(rank for rank in placed if placed.count(rank) > 1)
    return Finding(
        f"Rank {busy} has {placed.count(busy)} stages, and another has none: each rank has the memory for one.",
        "one stage on each rank", f"stages 0 to {schedule.chunks - 1} on ranks {placed}", ("placement", placed),
    )  # fmt: skip


def below_1f1b(case: Case) -> int:
    """The longest makespan that is accepted: one unit less than 1F1B's."""
    return staircase.full(case) - 1


def only_p(case: Case) -> list[int]:
    """At most p on every rank."""
    return [case.args[0]] * case.args[0]


def is_like(evidence: str, split: bool) -> Symptom:
    """Fails for memory or for time, with a backward that is split, or is not."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        found = JUDGE(case, seen, expected)
        if found is None or not isinstance(found.evidence, tuple) or found.evidence[0] != evidence:
            return False
        return split == any("W" in action for row in seen.value for action in row)

    return symptom


def forwards_first(case: Case, seen: Observation, expected: Observation) -> bool:
    """On no rank does a forward follow anything but forwards."""
    rows = [[action.kind for action in map(Action.parse, row)] for row in seen.value]
    return all("F" not in row[row.index("I") :] for row in rows if "I" in row)


def several(rng: np.random.Generator) -> Iterator[Case]:
    """At least two stages: one alone has no bubble."""
    for stages, micro_batches in ((2, 2), (2, 4), (3, 2), (4, 2), (3, 5), (4, 8), (6, 6 + int(rng.integers(1, 6)))):
        yield staircase.case_of(stages, micro_batches)


JUDGE = schedule_that(
    one_stage_each,
    holds_at_most(only_p),
    takes_at_most(below_1f1b, "F = I = W = 1, B = 2; 1F1B takes one more"),
    kinds="FBIW",
)

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
    cases=several,
    observe=Call(written),
    judge=JUDGE,
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
    mistakes=(
        Mistake(
            "all weight gradients at the end",
            weights_at_the_end,
            "Your weight gradients wait until the end, and so do the activations that they need: more than p are in "
            "flight. Do a W as soon as there are p, or whenever the rank would be idle.",
        ),
        Mistake(
            "more warm-up than there is room for",
            twice_the_warm_up,
            "With a longer warm-up the ranks wait less, but the first ones hold more than p. There is room for more only "
            "on the later ranks, and for W that waits, not for F.",
        ),
        Mistake(
            "W before I",
            weights_before_input,
            "The weight gradient comes before the input gradient. W uses what I has worked out on the way, and I is what "
            "the rank before waits for: I first.",
        ),
        Mistake(
            "no weight gradients",
            forgets_the_weights,
            "There is I without W. That would be fast, but nothing would be learned: every I needs its W at some time.",
        ),
        Mistake(
            "forgets the last weight gradients",
            forgets_the_last_weights,
            "The weight gradients that were still owed at the end are missing: after the last I a rank has to do those "
            "that it has put off.",
        ),
        Mistake(
            "B and W",
            both_whole_and_split,
            "B is I and W in one. Where there is a W of its own, there must be an I and no B.",
        ),
        Mistake(
            "this is 1F1B",
            one_and_one.one_f_one_b,
            "This is as fast as 1F1B itself. As long as backward is whole, the rank before waits for a weight gradient "
            "that it does not need: split it.",
            symptom=is_like("makespan", split=False),
        ),
        Mistake(
            "GPipe with a split backward",
            split_gpipe,
            "All forwards come first, so all micro-batches are in flight. Splitting backward makes it shorter; what "
            "keeps memory at p is 1F1B's order.",
            symptom=forwards_first,
        ),
        Mistake(
            "one micro-batch at a time",
            split_naive,
            "Each micro-batch goes there and back alone, so the other ranks wait. Splitting helps little then: several "
            "have to be on their way.",
            symptom=is_like("makespan", split=True),
        ),
        Mistake(
            "one rank does all",
            one_rank_does_all,
            "One rank has all stages: no bubble, but no pipeline either. Each rank holds one stage.",
        ),
    ),
)
