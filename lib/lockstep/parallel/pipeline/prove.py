"""The prover: can this schedule be run, and what does it need?

Floor 2, room `parallel`. It looks at any list of actions, a student's too, and runs nothing. In order:

1. every chunk is on one rank, and every micro-batch goes through it once forward and once backward (B, or I and W);
2. on its rank each action comes after those it needs;
3. *happens before*: with sends that do not wait and receives that do, every action's turn comes;
4. how many micro-batches each rank holds at most;
5. whether it would still run if sends waited for their receiver, one by one, or with what lies between two actions
   fused into one exchange (`blocking`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from lockstep.parallel.pipeline.blocking import fused_deadlock, rendezvous_deadlock
from lockstep.parallel.pipeline.schedule import NAMES, Action, InvalidSchedule, Schedule
from lockstep.parallel.pipeline.transfers import Transfers
from lockstep.parallel.pipeline.versions import planned_versions


@dataclass(frozen=True)
class Proof:
    """What is known about a schedule; true when it can be run.

    faults: sentences that say what is wrong, the first the most likely cause. in_flight: per rank, the most
    micro-batches times chunks that are between their forward and the end of their backward (B or W);
    in_flight_until_input counts them to their B or I. in_order: whether each rank uses messages in the order in which
    each other rank sends them. blocking_deadlock, fused_deadlock: who waits for whom if sends wait for their
    receivers; empty when the schedule survives.
    """

    faults: tuple[str, ...] = ()
    in_flight: tuple[int, ...] = ()
    in_flight_until_input: tuple[int, ...] = ()
    in_order: bool = False
    blocking_deadlock: str = ""
    fused_deadlock: str = ""

    @property
    def valid(self) -> bool:
        """Whether it can be run, with sends that do not wait."""
        return not self.faults

    @property
    def survives_blocking_sends(self) -> bool:
        """Whether it can be run if a send returns only when it has been received."""
        return self.valid and not self.blocking_deadlock

    @property
    def survives_fused(self) -> bool:
        """Whether it can be run with one exchange between any two actions: sends and receives start together."""
        return self.valid and not self.fused_deadlock

    def require(self) -> Proof:
        """Itself; raises InvalidSchedule with the faults when there are any."""
        if self.faults:
            more = f" There are {len(self.faults) - 3} more faults." if len(self.faults) > 3 else ""
            raise InvalidSchedule(" ".join(self.faults[:3]) + more)
        return self

    def __bool__(self) -> bool:
        return self.valid

    def __str__(self) -> str:
        if not self.valid:
            return "The schedule cannot be run.\n" + "\n".join(self.faults)
        lines = [f"The schedule can be run. In flight at most, by rank: {', '.join(map(str, self.in_flight))}."]
        for how, stuck in (("blocking sends", self.blocking_deadlock), ("fused exchanges", self.fused_deadlock)):
            lines.append(f"With {how} it {f'deadlocks: {stuck}' if stuck else 'runs, too.'}")
        return "\n".join(lines)


def prove(schedule: Schedule) -> Proof:
    """All that can be said about `schedule` without running it."""
    faults = tuple(_wrong_numbers(schedule)) or tuple(_out_of_place(schedule)) or tuple(_stuck(schedule))
    faults = faults or tuple(_too_new(schedule))
    if faults:
        return Proof(faults)
    transfers = Transfers(schedule)
    return Proof(
        in_flight=tuple(_most_held(schedule, rank, "BW") for rank in range(schedule.ranks)),
        in_flight_until_input=tuple(_most_held(schedule, rank, "BI") for rank in range(schedule.ranks)),
        in_order=transfers.sent == transfers.used,
        blocking_deadlock=rendezvous_deadlock(schedule, transfers),
        fused_deadlock=fused_deadlock(schedule, transfers),
    )


def _wrong_numbers(schedule: Schedule) -> Iterator[str]:
    """Every action once, on one rank."""
    at: dict[int, int] = {}
    for rank in range(schedule.ranks):
        for part in schedule.parts(rank):
            if part.chunk >= schedule.chunks:
                yield f"Rank {rank} has {part}, but there are only chunks 0 to {schedule.chunks - 1}."
            elif part.micro_batch >= schedule.micro_batches:
                yield f"Rank {rank} has {part}, but there are only micro-batches 0 to {schedule.micro_batches - 1}."
            elif at.setdefault(part.chunk, rank) != rank:
                yield f"Rank {rank} has {part}, but chunk {part.chunk} is on rank {at[part.chunk]}: a chunk has one rank."
    counts = Counter(schedule.parts())
    for chunk in range(schedule.chunks):
        for i in range(schedule.micro_batches):
            f, b, g, w, u = (counts[Action(kind, chunk, i)] for kind in "FBIWU")
            where = f"micro-batch {i} on chunk {chunk}"
            if f != 1:
                yield f"Forward of {where} is there {_times(f)}, and must be there once."
            if (b, g, w) not in ((1, 0, 0), (0, 1, 1)):
                have = ", ".join(f"{kind} {_times(n)}" for kind, n in (("B", b), ("I", g), ("W", w)) if n) or "nothing"
                yield f"Backward of {where} must be one B, or one I and one W; there is {have}."
            if u != schedule.updates:
                yield f"The update for {where} is there {_times(u)}: either every micro-batch has one or none has."


def _out_of_place(schedule: Schedule) -> Iterator[str]:
    """An action before one on the same rank that it needs."""
    for rank in range(schedule.ranks):
        row = schedule.parts(rank)
        place = {part: at for at, part in enumerate(row)}
        for part in row:
            for need in needs(part, schedule):
                if place.get(need, -1) > place[part]:
                    yield f"Rank {rank} does {part} ({NAMES[part.kind]}) before {need} ({NAMES[need.kind]}), which it needs."


def needs(part: Action, schedule: Schedule) -> list[Action]:
    """The actions that must be over before this one, among all kinds that they may have."""
    chunk, i = part.chunk, part.micro_batch
    if part.kind == "F":
        return [Action("F", chunk - 1, i)] if chunk else []
    if part.kind == "W":
        return [Action("I", chunk, i)]
    if part.kind == "U":
        return [Action(kind, chunk, i) for kind in "BW"]
    after = [Action(kind, chunk + 1, i) for kind in "BI"] if chunk + 1 < schedule.chunks else []
    return [Action("F", chunk, i), *after]


def _stuck(schedule: Schedule) -> Iterator[str]:
    """Play it with sends that do not wait; whoever cannot go on says what is missing."""
    exists, done = set(schedule.parts()), set()
    at = [0] * schedule.ranks

    def missing(rank: int) -> list[Action]:
        item = schedule.actions[rank][at[rank]]
        own = set(item.parts)
        return [
            need
            for part in item.parts
            for need in needs(part, schedule)
            if need in exists and need not in done and need not in own
        ]

    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(schedule.actions):
            while at[rank] < len(row) and not missing(rank):
                done |= set(row[at[rank]].parts)
                at[rank] += 1
                moved = True
    place = schedule.placement
    for rank, row in enumerate(schedule.actions):
        if at[rank] < len(row):
            need = missing(rank)[0]
            yield f"Rank {rank} waits for ever at {row[at[rank]]!r}: it needs {need} of rank {place[need.chunk]}."


def _too_new(schedule: Schedule) -> Iterator[str]:
    """With vertical sync: a chunk must have the version that the first chunk used."""
    if not schedule.vertical_sync:
        return
    asked, own = planned_versions(schedule), planned_versions(replace(schedule, vertical_sync=False))
    for (chunk, i), version in asked.items():
        if version > own[chunk, i]:
            yield (
                f"Micro-batch {i} meets version {version} on chunk 0, and chunk {chunk} has made only {own[chunk, i]} "
                f"updates when it comes there: without vertical_sync every chunk uses what it has."
            )


def _most_held(schedule: Schedule, rank: int, ends: str) -> int:
    held = most = 0
    for part in schedule.parts(rank):
        held += (part.kind == "F") - (part.kind in ends)
        most = max(most, held)
    return most


def _times(count: int) -> str:
    return {0: "not at all", 1: "once", 2: "twice"}.get(count, f"{count} times")
