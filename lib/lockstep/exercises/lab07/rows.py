"""Schedules as students write them: a list of actions for each rank, judged by the prover and the simulator.

Floor 4, room `exercises`. An action may be an `Action` or its text, "2F0". `written` observes in the child; in the
parent `schedule_that` makes a `Schedule` of the texts, has it proved, and then asks rules about order, memory and time.
No rule compares with the reference's list, so every right order is accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lockstep.exercises.exercise import Case
from lockstep.exercises.judge import Finding, Judge
from lockstep.exercises.observe import Observation
from lockstep.exercises.plain import kind, short
from lockstep.parallel.pipeline import Action, Overlap, Schedule, Timing

Size = tuple[int, int, int]
"""Ranks, chunks, micro-batches."""
REMEMBERED = 2000  # findings of schedules that were judged before
Rule = Callable[[Case, Schedule], Finding | None]


def written(fn: Callable[..., Any], *args: Any) -> Any:
    """What `fn` gives, with actions as their texts: drives an exercise whose answer is a schedule."""
    made = fn(*args)
    if isinstance(made, Schedule):
        made = made.actions
    return [_row(row) for row in made] if _is_listing(made) else made


def _row(row: Any) -> Any:
    return [_text(item) for item in row] if _is_listing(row) else _text(row)


def _is_listing(value: Any) -> bool:
    return not isinstance(value, (str, dict, Action)) and hasattr(value, "__iter__")


def _text(item: Any) -> Any:
    return repr(item) if isinstance(item, (Action, Overlap)) else item


def stage_a_rank(case: Case) -> Size:
    """The size of `f(stages, micro_batches)`: one chunk a rank."""
    stages, micro_batches = case.args[:2]
    return stages, stages, micro_batches


def schedule_that(*rules: Rule, size: Callable[[Case], Size] = stage_a_rank, kinds: str = "FB") -> Judge:
    """A valid schedule of that size, with these kinds of actions only, that breaks none of the rules."""

    def decide(case: Case, value: Any) -> Finding | None:
        found = read(value, *size(case), kinds)
        if isinstance(found, Finding):
            return found
        faults = found.prove().faults
        if faults:
            more = f" ({len(faults)} faults in all)" if len(faults) > 1 else ""
            return Finding(
                faults[0] + more, "a schedule that can be run", as_text(value), ("faults", "; ".join(faults))
            )
        return next((wrong for rule in rules if (wrong := rule(case, found)) is not None), None)

    known: dict[tuple[Any, ...], Finding | None] = {}

    def judge(case: Case, seen: Observation, expected: Observation) -> Finding | None:
        key = case.args, repr(seen.value)  # asked for again by each symptom
        if key not in known:
            if len(known) >= REMEMBERED:
                known.clear()
            known[key] = decide(case, seen.value)
        return known[key]

    return judge


def read(value: Any, ranks: int, chunks: int, micro_batches: int, kinds: str) -> Schedule | Finding:
    """The schedule that a student's value stands for, or what it lacks to be one."""
    asked = f"{ranks} list{'s' * (ranks > 1)} of actions, one for each rank"
    if value is None:
        return Finding("The function returns None: is there a `return`?", asked, "None", "None")
    if not isinstance(value, list) or not all(isinstance(row, list) for row in value):
        flat = isinstance(value, list) and any(isinstance(item, str) for item in value)
        said = "one list of actions" if flat else kind(value)
        return Finding(f"There must be {asked}; this is {said}.", asked, short(value), ("no rows", flat))
    if len(value) != ranks:
        sentence = f"There must be {asked}; there are {len(value)} lists."
        return Finding(sentence, asked, as_text(value), ("rows", len(value) - ranks))
    parsed = []
    for rank, row in enumerate(value):
        parsed.append([])
        for item in row:
            action = parse(item)
            if action is None:
                sentence = f"Rank {rank} has {short(item, 40)} among its actions, which is none."
                return Finding(
                    sentence, '`Action("F", 0, 1)`, or its text "0F1"', short(item), ("no action", type(item))
                )
            if action.kind not in kinds:
                sentence = f"Rank {rank} has {action}: here the kinds are {', '.join(kinds)}."
                return Finding(sentence, f"the kinds {', '.join(kinds)}", as_text(value), ("kind", action.kind))
            parsed[-1].append(action)
    return Schedule("your schedule", chunks, micro_batches, tuple(map(tuple, parsed)))


def parse(item: Any) -> Action | None:
    """The action of a text, None for anything else."""
    try:
        return Action.parse(item)
    except (ValueError, AttributeError, TypeError):
        return None


def listed(value: Any) -> list[list[Action]]:
    """The actions of each list; [] for what is no list of lists of actions."""
    if not isinstance(value, list) or not all(isinstance(row, list) for row in value):
        return []
    rows = [[parse(item) for item in row] for row in value]
    return rows if all(all(row) for row in rows) else []


def as_text(value: Any) -> str:
    """Rows on one line: "rank 0: 0F0 0F1 0B0 | rank 1: ..."."""
    rows = [f"rank {r}: {' '.join(map(str, row))}" for r, row in enumerate(value)]
    return short_of(" | ".join(rows))


def short_of(text: str, most: int = 160) -> str:
    """At most so many characters."""
    return text if len(text) <= most else text[: most - 2].rstrip() + " …"


def each_on_its_rank(case: Case, schedule: Schedule) -> Finding | None:
    """Chunk c is on rank c, and with several chunks a rank on rank c modulo the ranks."""
    for chunk, rank in schedule.placement.items():
        if rank != chunk % schedule.ranks:
            what = "stage" if schedule.chunks == schedule.ranks else "chunk"
            return Finding(
                f"Rank {rank} has the actions of {what} {chunk}, which is on rank {chunk % schedule.ranks}.",
                f"{what} {chunk} on rank {chunk % schedule.ranks}", f"on rank {rank}",
                ("placement", str(list(schedule.placement.values()))),
            )  # fmt: skip
    return None


def takes_at_most(limit: Callable[[Case], float], because: str, **costs: float) -> Rule:
    """The makespan, with the costs of an action, is no longer than `limit(case)`; `because` says what they are."""

    def rule(case: Case, schedule: Schedule) -> Finding | None:
        timing = schedule.simulate(**costs)
        if timing.makespan <= limit(case):
            return None
        return Finding(
            f"The schedule can be run, but it takes {timing.makespan:g} units of time, where {limit(case):g} are enough "
            f"({because}). {longest_wait(timing)}",
            f"a makespan of {limit(case):g}", f"{timing.makespan:g}: {as_text(schedule.actions)}",
            ("makespan", timing.makespan),
        )  # fmt: skip

    return rule


def holds_at_most(limits: Callable[[Case], list[int]]) -> Rule:
    """No rank has more in flight than `limits(case)` says for it."""

    def rule(case: Case, schedule: Schedule) -> Finding | None:
        held, most = schedule.prove().in_flight, limits(case)
        for rank, (h, allowed) in enumerate(zip(held, most, strict=True)):
            if h > allowed:
                what = "micro-batch" if schedule.chunks == schedule.ranks else "chunk input"
                plural = ("es" if what.endswith("h") else "s") * (h != 1)
                return Finding(
                    f"The schedule can be run, but rank {rank} has {h} {what}{plural} in flight at once; "
                    f"{allowed} would do.",
                    f"at most {short(most)} in flight, by rank", short(list(held)), ("in flight", str(held)),
                )  # fmt: skip
        return None

    return rule


def longest_wait(timing: Timing) -> str:
    """A sentence on the longest time that a rank waits between two of its actions."""
    longest, said = 0.0, "No rank waits between its first and its last action."
    for rank in range(len(timing.idle)):
        own = [event for event in timing.events if event.rank == rank]
        for before, after in zip(own, own[1:], strict=False):
            if after.start - before.end > longest:
                longest = after.start - before.end
                said = f"The longest wait is rank {rank}'s, {longest:g} between {before.item} and {after.item}."
    return said
