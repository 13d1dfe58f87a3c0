"""07.2 `bubble`: the idle share of any schedule, by playing it through.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.judge import same_value
from lockstep.exercises.lab05.likeness import by_first_failure
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


def played(actions, costs):
    """Start and end of each action, by rank: what the mistakes have right."""
    ends, times, waiting = {}, [[] for _ in actions], [deque(row) for row in actions]
    last = max(action.chunk for row in actions for action in row)
    while any(waiting):
        for row, own in zip(waiting, times, strict=True):
            needs = _needs(row[0], last) if row else None
            if needs is not None and needs <= ends.keys():
                action = row.popleft()
                start = max([own[-1][1] if own else 0, *(ends[need] for need in needs)])
                own.append((start, start + costs[action.kind]))
                ends["B" if action.kind == "I" else action.kind, action.chunk, action.micro_batch] = own[-1][1]
    return times


def _needs(action, last):
    if action.kind == "F" and action.chunk > 0:
        return {("F", action.chunk - 1, action.micro_batch)}
    if action.kind in "BI" and action.chunk < last:
        return {("B", action.chunk + 1, action.micro_batch)}
    return set()


def idle_times(rows):
    makespan = max(end for row in rows for _, end in row)
    return makespan, [makespan - sum(end - start for start, end in row) for row in rows]


def counts_every_wait_twice(actions, costs):
    makespan, idle = idle_times(played(actions, costs))
    return 2 * sum(idle) / (len(idle) * makespan)


def against_one_ranks_time(actions, costs):
    makespan, idle = idle_times(played(actions, costs))
    return sum(idle) / makespan


def against_the_work(actions, costs):
    makespan, idle = idle_times(played(actions, costs))
    return sum(idle) / (len(idle) * makespan - sum(idle))


def only_between_first_and_last(actions, costs):
    rows = played(actions, costs)
    makespan = max(end for row in rows for _, end in row)
    waits = sum(later[0] - earlier[1] for row in rows for earlier, later in zip(row, row[1:], strict=False))
    return waits / (len(rows) * makespan)


def forgets_the_end(actions, costs):
    rows = played(actions, costs)
    makespan = max(end for row in rows for _, end in row)
    waits = sum(row[-1][1] - sum(end - start for start, end in row) for row in rows)
    return waits / (len(rows) * makespan)


def waits_for_nobody(actions, costs):
    busy = [sum(costs[action.kind] for action in row) for row in actions]
    return 1 - sum(busy) / (len(busy) * max(busy))


def the_formula_of_gpipe(actions, costs):
    stages, micro_batches = len(actions), 1 + max(action.micro_batch for row in actions for action in row)
    return (stages - 1) / (micro_batches + stages - 1)


def of_rank_0(actions, costs):
    makespan, idle = idle_times(played(actions, costs))
    return idle[0] / makespan


def in_percent(actions, costs):
    return 100 * bubble(actions, costs)


def every_action_takes_one(actions, costs):
    return bubble(actions, dict.fromkeys(costs, 1))


def the_busy_share(actions, costs):
    return 1 - bubble(actions, costs)


def the_idle_time(actions, costs):
    return sum(idle_times(played(actions, costs))[1])


def any_schedule(rng: np.random.Generator) -> Iterator[Case]:
    """Known ones, with costs that are multiples of a half, and one that nobody would choose."""
    plain = {"F": 1, "B": 2, "I": 1, "W": 1}
    own = {kind: float(rng.integers(2, 7)) / 2 for kind in "FBIW"}
    yield _case(pipeline.naive(2, 1), plain)
    yield _case(pipeline.gpipe(2, 3), plain)
    yield _case(pipeline.one_f_one_b(3, 4), plain)
    yield _case(pipeline.gpipe(4, 4), {"F": 1.5, "B": 2.5, "I": 1, "W": 1})
    yield _case(pipeline.one_f_one_b(3, 6), own)
    yield _case(pipeline.naive(3, 3), own)
    yield _case(pipeline.interleaved(2, 4, 2), plain)
    yield _case(pipeline.zero_bubble(3, 5), own)
    yield _case(pipeline.gpipe(1, 3), own)
    yield _case(pipeline.zbv(3, 5), {"F": 1, "B": 2, "I": 1.5, "W": 0.5})
    folded = (
        [[f"{c}F{i}" for c in (0, 2)] + [f"{c}B{i}" for c in (2, 0)] for i in range(2)],
        ["1F0 1B0 1F1 1B1".split()],
    )
    rows = [sum(lists, []) for lists in folded]
    yield _case(pipeline.Schedule.of(rows, "three chunks, two of them on rank 0"), plain)


def _case(schedule: pipeline.Schedule, costs: dict[str, float]) -> Case:
    kinds = "FB" if not any(part.kind in "IW" for part in schedule.parts()) else "FIW"
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
    mistakes=by_first_failure(
        Call(),
        JUDGE,
        (
            Mistake(
                "counts the bubble per rank twice",
                counts_every_wait_twice,
                "The share is twice what it should be: each idle time is counted twice, as the wait of the one rank and "
                "again as what the other makes it wait, or before an action and again after the one before it.",
            ),
            Mistake(
                "divides by the time of one rank",
                against_one_ranks_time,
                "You add up the idle time of all ranks and divide by the makespan of one. Divide by the time of all of "
                "them, ranks times makespan, or take the mean over ranks.",
            ),
            Mistake(
                "divides by the work",
                against_the_work,
                "You divide idle time by working time. That is how much longer it takes than without a bubble, and can "
                "be more than 1. The share is idle time over all time.",
            ),
            Mistake(
                "counts no wait at the start and at the end",
                only_between_first_and_last,
                "You count the waits between actions only. A rank that has not begun yet, or has finished while others "
                "work, is idle, too: from 0 to the end of the last action of all.",
            ),
            Mistake(
                "forgets the wait at the end",
                forgets_the_end,
                "You stop counting when a rank has done its own last action. It is idle until the last rank has "
                "finished.",
            ),
            Mistake(
                "lets nobody wait for anybody",
                waits_for_nobody,
                "Every rank seems to start at 0 and to work without a break. An action has to wait for what it needs: F "
                "for the F of the chunk before, B for the B of the chunk after.",
            ),
            Mistake(
                "the formula of GPipe",
                the_formula_of_gpipe,
                "(p - 1)/(m + p - 1) is the bubble of GPipe and 1F1B, with one chunk a rank. Here any schedule may come: "
                "play it through.",
            ),
            Mistake(
                "rank 0's share",
                of_rank_0,
                "That is the idle share of rank 0 alone. The ranks differ when they do not do the same amount of work; "
                "ask for all of them together.",
            ),
            Mistake("in percent", in_percent, "That is in percent. A share goes from 0 to 1."),
            Mistake(
                "every action takes as long",
                every_action_takes_one,
                "You give every action the same time. `costs` says what each kind takes: backward usually twice as much "
                "as forward.",
            ),
            Mistake(
                "the busy share",
                the_busy_share,
                "That is the share of time in which the ranks work. The bubble is the rest.",
            ),
            Mistake(
                "the idle time",
                the_idle_time,
                "That is the idle time itself. Divide it by the time of all ranks: ranks times makespan.",
            ),
        ),
    ),
)
