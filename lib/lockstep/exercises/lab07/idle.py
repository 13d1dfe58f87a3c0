"""07.2 `bubble`: the idle share of any schedule, by playing it through.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import same_value
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab07.idle_mistakes import MISTAKES
from lockstep.exercises.observe import Call
from lockstep.parallel import pipeline


def bubble(actions, costs):
    total = sum(map(len, actions))
    last = max(action.chunk for row in actions for action in row)
    ends, free, at = {}, [0] * len(actions), [0] * len(actions)
    for _ in range(total):  # in every round at least one rank gets on
        for r, row in enumerate(actions):
            if at[r] == len(row):
                continue
            kind, c, i = row[at[r]].kind, row[at[r]].chunk, row[at[r]].micro_batch
            needs = []
            if kind == "F" and c > 0:
                needs = [("F", c - 1, i)]
            elif kind in "BI" and c < last:
                needs = [("B", c + 1, i)]
            if all(need in ends for need in needs):
                start = max([free[r], *(ends[need] for need in needs)])
                free[r] = start + costs[kind]
                ends["B" if kind == "I" else kind, c, i] = free[r]
                at[r] += 1
    busy = sum(costs[action.kind] for row in actions for action in row)
    return 1 - busy / (len(actions) * max(free))


def by_repeated_relaxation(actions, costs):
    """Longest paths: end times only grow until nothing changes."""
    last = max(a.chunk for row in actions for a in row)
    end = {a: 0 for row in actions for a in row}

    def feeders(a):
        if a.kind == "F":
            return [("F", a.chunk - 1, a.micro_batch)] if a.chunk else []
        if a.kind == "W":
            return [("I", a.chunk, a.micro_batch)]
        return [(k, a.chunk + 1, a.micro_batch) for k in "BI"] if a.chunk < last else []

    changed = True
    while changed:
        changed = False
        times = {(a.kind, a.chunk, a.micro_batch): t for a, t in end.items()}
        for row in actions:
            before = 0
            for a in row:
                start = max([before] + [times[f] for f in feeders(a) if f in times])
                before = start + costs[a.kind]
                if end[a] != before:
                    end[a], changed = before, True
    makespan = max(end.values())
    idle = [makespan - sum(costs[a.kind] for a in row) for row in actions]
    return sum(idle) / len(idle) / makespan


def by_unit_steps(actions, costs):
    """Ask every rank at every half unit of time what it can begin."""
    todo = [list(row) for row in actions]
    done, running, time, idle = set(), [None] * len(actions), 0.0, 0
    last = max(a.chunk for row in actions for a in row)

    def ready(a):
        if a.kind == "F":
            return a.chunk == 0 or ("F", a.chunk - 1, a.micro_batch) in done
        if a.kind == "W":
            return True
        return a.chunk == last or ("back", a.chunk + 1, a.micro_batch) in done

    ticks = 0
    while any(todo) or any(running):
        for r, job in enumerate(running):
            if job and job[1] <= time:
                done.add(("back" if job[0].kind in "BI" else job[0].kind, job[0].chunk, job[0].micro_batch))
                running[r] = None
        for r, row in enumerate(todo):
            if running[r] is None and row and ready(row[0]):
                running[r] = (row[0], time + costs[row[0].kind])
                row.pop(0)
        if any(todo) or any(running):
            idle += sum(job is None for job in running)
            ticks += 1
            time += 0.5
    return idle / (ticks * len(actions))


def bubble_stub(actions, costs):
    raise NotImplementedError("the idle share of all ranks together")


def any_schedule(rng: np.random.Generator) -> Iterator[Case]:
    """Known ones, with costs that are multiples of a half, and two that nobody would choose.

    The first tells mistakes apart: in smaller ones many of them give the same share.
    """
    plain = {"F": 1, "B": 2, "I": 1, "W": 1}
    own = {kind: float(rng.integers(2, 7)) / 2 for kind in "FBIW"}
    yield _case(pipeline.gpipe(3, 5), {"F": 1, "B": 3, "I": 1, "W": 1})
    yield _case(pipeline.naive(2, 1), plain)
    yield _case(pipeline.naive(3, 3), own)
    yield _case(pipeline.interleaved(2, 4, 2), plain)
    yield _case(_split_on_the_last_rank(), {"F": 2, "B": 5, "I": 1, "W": 4})
    yield _case(pipeline.zero_bubble(3, 5), {"F": 4, "B": 5, "I": 3, "W": 1})
    yield _case(pipeline.zero_bubble(3, 5), {"F": 1.5, "B": 2, "I": 1.5, "W": 0.5})
    yield _case(pipeline.one_f_one_b(3, 6), own)
    yield _case(pipeline.gpipe(1, 3), own)
    yield _case(pipeline.zbv(3, 5), {"F": 1, "B": 2, "I": 1.5, "W": 0.5})
    yield _case(_seven_chunks_on_three_ranks(), plain)


def _seven_chunks_on_three_ranks() -> pipeline.Schedule:
    """Four chunks on rank 0, one on rank 1, two on rank 2, one micro-batch after the other: no two shares are alike."""
    rows = [
        [f"{c}{kind}{i}" for i in range(2) for kind, cs in (("F", own), ("B", own[::-1])) for c in cs]
        for own in ((0, 2, 4, 6), (3,), (1, 5))
    ]
    return pipeline.Schedule.of(rows, "seven chunks, four of them on rank 0")


def _split_on_the_last_rank() -> pipeline.Schedule:
    """Backward is whole on rank 0, split on rank 1, which puts its W off and so ends last."""
    rows = ["0F0 0F1 0B0 0F2 0B1 0B2".split(), "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2".split()]
    return pipeline.Schedule.of(rows, "1F1B with a split backward on rank 1")


def _case(schedule: pipeline.Schedule, costs: dict[str, float]) -> Case:
    kinds = [kind for kind in "FBIW" if any(part.kind == kind for part in schedule.parts())]
    words = ", ".join(f"{kind} = {costs[kind]:g}" for kind in kinds)
    rows = [list(row) for row in schedule.actions]
    ranks = f"{schedule.ranks} rank{'s' * (schedule.ranks > 1)}"
    batches = f"{schedule.micro_batches} micro-batch{'es' * (schedule.micro_batches > 1)}"
    return Case(f"{schedule.name}, {ranks}, {batches}, {words}", (rows, dict(costs)))


JUDGE = same_value(rtol=1e-6)

BUBBLE = Exercise(
    id="07.2",
    title="The bubble of any schedule",
    function="bubble",
    points=2,
    asks=(
        "Return the idle share of a schedule, a number from 0 to 1: the time that ranks are idle until the last action "
        "has ended, over all ranks together, divided by the time of all ranks together. `actions[rank]` is a list of "
        "actions, each with `kind`, `chunk` and `micro_batch`; `costs[kind]` is the time of one."
    ),
    reference=bubble,
    also_right=(by_repeated_relaxation, by_unit_steps),
    stub=bubble_stub,
    cases=any_schedule,
    observe=Call(),
    judge=JUDGE,
    forbidden=("lockstep.parallel.pipeline.simulate", "lockstep.parallel.pipeline.Schedule.simulate"),
    core=False,
    hints=(
        "An action starts as soon as two things are over: what its rank did before, and what it needs from another "
        "chunk. Keep the end of every action that is over in a dictionary.",
        "Go round the ranks again and again. A rank whose next action has all it needs does it; the others are asked "
        "again in the next round. When all is done, the makespan is the latest end.",
        "F of chunk c needs F of chunk c - 1; B or I of chunk c needs B or I of chunk c + 1, whichever there is; W "
        "needs nothing but its turn. The share is 1 minus all the work over ranks times makespan.",
    ),
    mistakes=by_first_failure(Call(), JUDGE, MISTAKES),
)
