"""Exercise 07.7: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; the exercise is in `designing.py`, what goes wrong in any schedule in `shapes.py`.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.lab07 import one_and_one
from lockstep.exercises.lab07.judging import DESIGN, breaks
from lockstep.exercises.lab07.rows import listed, stage_a_rank
from lockstep.exercises.lab07.shapes import beyond_the_last, both, forwards_first
from lockstep.exercises.observe import Observation
from lockstep.exercises.symptoms import Symptom
from lockstep.parallel.pipeline import Action


def only_split(stages, micro_batches):
    """1F1B with I and W in place of B: the gradient leaves before the weights' turn."""
    rows = one_and_one.one_f_one_b(stages, micro_batches)
    return [
        [part for a in row for part in ([a] if a.kind == "F" else [Action(k, a.chunk, a.micro_batch) for k in "IW"])]
        for row in rows
    ]


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
    return [
        [a for a in row if a.kind != "W" or a.micro_batch < micro_batches - r]
        for r, row in enumerate(only_split(stages, micro_batches))
    ]


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


def several_stages_a_rank(stages, micro_batches):
    """Two, one from each half of a model that goes round twice."""
    return [[Action(kind, c, i) for i in range(micro_batches) for kind, cs in (("F", (r, r + stages)),
             ("B", (r + stages, r))) for c in cs] for r in range(stages)]  # fmt: skip


def warm_up_beyond_m(stages, micro_batches):
    rows = []
    for r in range(stages):
        ahead = stages - 1 - r
        row = [Action("F", r, i) for i in range(ahead)]
        for i in range(micro_batches):
            row += [Action("F", r, ahead + i)] if ahead + i < micro_batches else []
            row += [Action("I", r, i), Action("W", r, i)]
        rows.append(row)
    return rows


def has_kind(kind: str, wanted: bool) -> Symptom:
    """Whether there are actions of this kind."""
    return lambda case, seen, expected: any(a.kind == kind for row in listed(seen.value) for a in row) is wanted


def owes_weights(case: Case, seen: Observation, expected: Observation) -> bool:
    """Some W, but fewer than I."""
    kinds = [action.kind for row in listed(seen.value) for action in row]
    return 0 < kinds.count("W") < kinds.count("I")


def weights_come_first(case: Case, seen: Observation, expected: Observation) -> bool:
    """On some rank W of a micro-batch stands before its I."""
    for row in listed(seen.value):
        done = set()
        for action in row:
            if action.kind == "W" and action.micro_batch not in done:
                return "I" in {other.kind for other in row}
            done |= {action.micro_batch} if action.kind == "I" else set()
    return False


def more_forwards_first(case: Case, seen: Observation, expected: Observation) -> bool:
    """Some rank begins with more forwards than 1F1B."""
    firsts = [next((at for at, a in enumerate(row) if a.kind != "F"), len(row)) for row in listed(seen.value)]
    return any(first > case.args[0] - r for r, first in enumerate(firsts))


def weights_wait_long(case: Case, seen: Observation, expected: Observation) -> bool:
    """No rank begins with more forwards than 1F1B, so what is too much waits for its W."""
    return has_kind("W", True)(case, seen, expected) and not more_forwards_first(case, seen, expected)


def beyond_the_stages(case: Case, seen: Observation, expected: Observation) -> bool:
    """A chunk that does not exist where each rank has one, and chunk 0 is there."""
    chunks = {action.chunk for row in listed(seen.value) for action in row}
    return 0 in chunks and max(chunks) >= case.args[0]


MISTAKES = (
    Mistake(
        "GPipe with a split backward",
        split_gpipe,
        "All forwards come first, so all micro-batches are in flight. Splitting backward makes it shorter; what "
        "keeps memory at p is 1F1B's order.",
        symptom=both(breaks(DESIGN, "in flight"), forwards_first),
    ),
    Mistake(
        "all weight gradients at the end",
        weights_at_the_end,
        "Your weight gradients wait until the end, and so do the activations that they need: more than p are in "
        "flight. Do a W as soon as there are p, or whenever the rank would be idle.",
        symptom=both(breaks(DESIGN, "in flight"), weights_wait_long),
    ),
    Mistake(
        "more warm-up than there is room for",
        twice_the_warm_up,
        "With a longer warm-up the ranks wait less, but the first ones hold more than p. There is room for more only "
        "on the later ranks, and for W that waits, not for F.",
        symptom=both(breaks(DESIGN, "in flight"), more_forwards_first),
    ),
    Mistake(
        "W before I",
        weights_before_input,
        "The weight gradient comes before the input gradient. W uses what I has worked out on the way, and I is what "
        "the rank before waits for: I first.",
        symptom=weights_come_first,
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
        symptom=owes_weights,
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
        symptom=both(breaks(DESIGN, "makespan"), has_kind("W", False)),
    ),
    Mistake(
        "one micro-batch at a time",
        split_naive,
        "Each micro-batch goes there and back alone, so the other ranks wait. Splitting helps little then: several "
        "have to be on their way.",
        symptom=both(breaks(DESIGN, "makespan"), has_kind("W", True)),
    ),
    Mistake(
        "one rank does all",
        one_rank_does_all,
        "One rank has all stages: no bubble, but no pipeline either. Each rank holds one stage.",
    ),
    Mistake(
        "several stages a rank",
        several_stages_a_rank,
        "Here each rank has one stage: 0 to p - 1, and no more. To cut the model finer is another way to a smaller bubble, "
        "that of section 5.",
        symptom=beyond_the_stages,
    ),
    Mistake(
        "warm-up longer than there are micro-batches",
        warm_up_beyond_m,
        "With fewer micro-batches than stages your warm-up asks for micro-batches that there are not.",
        symptom=beyond_the_last(stage_a_rank),
    ),
)
