"""What the four exercises ask whose answer is a schedule: their cases, their limits, and the judge of each.

Floor 4, room `exercises`; read `rows.py` first. Symbols: p stages, m micro-batches, v chunks a rank.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lockstep.exercises.exercise import Case
from lockstep.exercises.judge import Finding, Judge
from lockstep.exercises.lab07.rows import Size, each_on_its_rank, holds_at_most, schedule_that, takes_at_most
from lockstep.exercises.observe import Observation
from lockstep.exercises.symptoms import Symptom
from lockstep.parallel.pipeline import Schedule


def case_of(stages: int, micro_batches: int) -> Case:
    """Named as the lab speaks of it."""
    words = f"{stages} stage{'s' * (stages > 1)}, {micro_batches} micro-batch{'es' * (micro_batches > 1)}"
    return Case(words, (stages, micro_batches))


def sizes(rng: np.random.Generator) -> Iterator[Case]:
    """Stages and micro-batches, fewer, as many and more of one than of the other; more than anybody writes down.

    The first that can fail has more micro-batches than stages: with as many, several schedules are one.
    """
    pairs = [(1, 1), (2, 4), (1, 5), (4, 2), (3, 3), (4, 8), (7, 6)]
    pairs += [(5, 5 + int(rng.integers(1, 4))), (2, int(rng.integers(17, 25)))]
    for stages, micro_batches in pairs:
        yield case_of(stages, micro_batches)


def sizes_with_a_bubble(rng: np.random.Generator) -> Iterator[Case]:
    """At least two stages: one alone has no bubble."""
    pairs = [(2, 1), (2, 3), (3, 2), (4, 1), (4, 2), (3, 5), (4, 8), (6, 6 + int(rng.integers(1, 6)))]
    pairs += [(9, 4), (2, int(rng.integers(17, 25)))]
    for stages, micro_batches in pairs:
        yield case_of(stages, micro_batches)


def sizes_of_rounds(rng: np.random.Generator) -> Iterator[Case]:
    """Stages, micro-batches and chunks a rank; the micro-batches are a multiple of the stages."""
    for p, rounds, v in (
        (1, 3, 2),
        (2, 1, 3),
        (3, 1, 2),
        (2, 3, 2),
        (3, 2, 1),
        (2, 2, 3),
        (3, 2, 2),
        (4, 2, int(rng.integers(2, 4))),
    ):
        words = f"{p} rank{'s' * (p > 1)}, {p * rounds} micro-batches, {v} chunk{'s' * (v > 1)} a rank"
        yield Case(words, (p, p * rounds, v))


def full(case: Case) -> int:
    """The makespan of GPipe and of 1F1B: (m + p - 1)(F + B)."""
    stages, micro_batches = case.args
    return 3 * (micro_batches + stages - 1)


def below_1f1b(case: Case) -> int:
    """The longest makespan that a design may have: one unit less than 1F1B's."""
    return full(case) - 1


def shortest(case: Case) -> int:
    """All work of a rank, m v (F + B), and a bubble of (p - 1)(F + B)."""
    p, m, v = case.args
    return 3 * (m * v + p - 1)


def held_by_1f1b(case: Case) -> list[int]:
    """min(m, p - r) on rank r."""
    stages, micro_batches = case.args
    return [min(micro_batches, stages - r) for r in range(stages)]


def only_p(case: Case) -> list[int]:
    """At most p on every rank."""
    return [case.args[0]] * case.args[0]


def room(case: Case) -> list[int]:
    """min(v m, (v - 1) p + 2 (p - 1 - r) + 1) chunk inputs on rank r."""
    p, m, v = case.args
    return [min(v * m, (v - 1) * p + 2 * (p - 1 - r) + 1) for r in range(p)]


def several_chunks(case: Case) -> Size:
    """Ranks, chunks in all, micro-batches."""
    p, m, v = case.args
    return p, p * v, m


def all_forward_first(case: Case, schedule: Schedule) -> Finding | None:
    """On every rank each forward comes before each backward."""
    for rank, row in enumerate(schedule.actions):
        kinds = "".join(action.kind for action in row)
        if "BF" in kinds:
            at = kinds.index("BF")
            sentence = (
                f"Rank {rank} does {row[at]} before {row[at + 1]}: in GPipe all forwards come before any backward."
            )
            return Finding(sentence, "F for all, then B for all", kinds, ("order", rank, kinds))
    return None


def one_stage_each(case: Case, schedule: Schedule) -> Finding | None:
    """Every rank holds exactly one stage, whichever."""
    placed = list(schedule.placement.values())
    if sorted(placed) == list(range(schedule.ranks)):
        return None
    busy = next(rank for rank in placed if placed.count(rank) > 1)
    return Finding(
        f"Rank {busy} has {placed.count(busy)} stages, and another has none: each rank has the memory for one.",
        "one stage on each rank", f"stages 0 to {schedule.chunks - 1} on ranks {placed}", ("placement", str(placed)),
    )  # fmt: skip


GPIPE = schedule_that(each_on_its_rank, all_forward_first, takes_at_most(full, "F = 1, B = 2"))
ONE_F_ONE_B = schedule_that(each_on_its_rank, holds_at_most(held_by_1f1b), takes_at_most(full, "F = 1, B = 2"))
INTERLEAVED = schedule_that(
    each_on_its_rank, holds_at_most(room), takes_at_most(shortest, "F = 1, B = 2, for a chunk"), size=several_chunks
)
DESIGN = schedule_that(
    one_stage_each,
    holds_at_most(only_p),
    takes_at_most(below_1f1b, "F = I = W = 1, B = 2; 1F1B takes one more"),
    kinds="FBIW",
)


def breaks(judge: Judge, *rules: str) -> Symptom:
    """A schedule that fails for one of these: "faults", "placement", "order", "in flight", "makespan"."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        found = judge(case, seen, expected) if seen.error is None else None
        return found is not None and isinstance(found.evidence, tuple) and found.evidence[0] in rules

    return symptom
