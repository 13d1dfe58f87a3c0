"""The simulator: when each action of a schedule runs, if we know what each takes.

Floor 2, room `parallel`. It follows the executor: an action starts when its rank is free and what it needs has
arrived; a send does not wait; a rank takes messages from each other rank in sending order, and has the next one's
receive posted while it still works on this one. A transfer starts when both sides are posted, the sender's send port
and the receiver's receive port are free, and keeps both busy for its time, as in the simulated world.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real

from lockstep.parallel.pipeline.schedule import NAMES, Action, Item, Schedule
from lockstep.parallel.pipeline.transfers import Channel, Transfer, Transfers
from lockstep.trace import Message, Span, Trace

Costs = float | Sequence[float | Sequence[float]]
"""Seconds: one number for all chunks, or one for each; a chunk may have a list in place of its number, one for each
micro-batch."""


@dataclass(frozen=True, slots=True)
class Event:
    """One item of a schedule from `start` to `end`."""

    rank: int
    item: Item
    start: float
    end: float


@dataclass(frozen=True)
class Timing:
    """What a simulation found, in the unit of its costs.

    makespan: the end of the last action. idle: per rank, makespan minus the time of its own actions. bubble: per rank,
    idle / makespan. in_flight: per rank, the most micro-batches times chunks between forward and the end of backward.
    events: every item in order of its start. transfers: (transfer, start, end). seconds: of every action.
    """

    makespan: float
    idle: tuple[float, ...]
    bubble: tuple[float, ...]
    in_flight: tuple[int, ...]
    events: tuple[Event, ...] = field(repr=False)
    transfers: tuple[tuple[Transfer, float, float], ...] = field(repr=False)
    seconds: Mapping[Action, float] = field(repr=False)

    @property
    def trace(self) -> Trace:
        """As the trace of a run, for `viz.timeline` and for a comparison with a measured one.

        An overlap becomes its parts, one after the other; messages that take no time are left out.
        """
        spans = []
        for event in self.events:
            start = event.start
            for part in event.item.parts:
                end = start + self.seconds[part]
                spans.append(
                    Span(event.rank, "compute", NAMES[part.kind], start, end, part.micro_batch, detail=_detail(part))
                )
                start = end
        moved = [Message(t.src, t.dst, 0, start, end) for t, start, end in self.transfers if end > start]
        return Trace.of(len(self.idle), spans, moved, "simulated")


def simulate(
    schedule: Schedule,
    forward: Costs = 1,
    backward: Costs = 2,
    input_gradient: Costs = 1,
    weight_gradient: Costs = 1,
    transfer: Costs = 0,
    update: float = 0,
) -> Timing:
    """Play `schedule` with these costs of a chunk: one number, or one for each chunk, or for each of its micro-batches.

    transfer: seconds of a message across a cut, either way: one number, or one for each of the `chunks - 1` cuts.
    Raises InvalidSchedule for one that cannot be run, and ValueError for costs that make no sense.
    """
    proof = schedule.prove().require()
    chunks = schedule.chunks
    named = {"F": forward, "B": backward, "I": input_gradient, "W": weight_gradient, "U": update}
    costs = {kind: _per(NAMES[kind], cost, chunks, schedule.micro_batches) for kind, cost in named.items()}
    seconds = {part: costs[part.kind][part.chunk][part.micro_batch] for part in schedule.parts()}
    cuts = [cost for (cost,) in _per("transfer", transfer, chunks - 1, 1)]
    run = _Run(schedule, seconds, cuts)
    makespan = max(event.end for event in run.events)
    busy = [sum(event.end - event.start for event in run.events if event.rank == r) for r in range(schedule.ranks)]
    idle = tuple(makespan - time for time in busy)
    return Timing(
        makespan,
        idle,
        tuple(time / makespan if makespan else 0.0 for time in idle),
        proof.in_flight,
        tuple(sorted(run.events, key=lambda event: (event.start, event.rank))),
        tuple(run.moved),
        seconds,
    )


class _Run:
    """One play through: `events` and `moved` are what happened."""

    def __init__(self, schedule: Schedule, seconds: Mapping[Action, float], cuts: Sequence[float]) -> None:
        self._schedule, self._seconds, self._cuts = schedule, seconds, cuts
        self._transfers = Transfers(schedule)
        self._order = self._transfers.sent
        self._number = {t: n for messages in self._order.values() for n, t in enumerate(messages)}
        self._posted: dict[Channel, int] = dict.fromkeys(self._order, 0)  # receives, in sending order
        self._sent: set[Transfer] = set()
        self._arrived: set[Transfer] = set()
        self._queue: list[Transfer] = []  # both sides are posted, a port is not free
        self._sending, self._receiving = [False] * schedule.ranks, [False] * schedule.ranks
        self._at = [0] * schedule.ranks
        self._working = [False] * schedule.ranks
        self.events: list[Event] = []
        self.moved: list[tuple[Transfer, float, float]] = []
        self._future: list[tuple[float, int, Callable[[float], None]]] = []
        self._turn = itertools.count()
        for channel in self._order:
            self._post(channel, 0)
        for rank in range(schedule.ranks):
            self._reach(rank, 0.0)
        while self._future:
            now, _, happen = heapq.heappop(self._future)
            happen(now)

    def _reach(self, rank: int, now: float) -> None:
        """The rank comes to its next item: it posts receives, and starts if all is there."""
        row = self._schedule.actions[rank]
        if self._at[rank] == len(row):
            return
        for need in self._transfers.needed_by(row[self._at[rank]]):
            self._post((need.src, need.dst), self._number[need] + 1)
        self._move(now)
        self._start(rank, now)

    def _start(self, rank: int, now: float) -> None:
        row = self._schedule.actions[rank]
        if self._working[rank] or self._at[rank] == len(row):
            return
        item = row[self._at[rank]]
        if not self._arrived.issuperset(self._transfers.needed_by(item)):
            return
        self._working[rank] = True
        end = now + sum(self._seconds[part] for part in item.parts)
        self.events.append(Event(rank, item, now, end))
        self._at_time(end, lambda time: self._finish(rank, item, time))

    def _finish(self, rank: int, item: Item, now: float) -> None:
        self._working[rank] = False
        self._at[rank] += 1
        for transfer in self._transfers.given_by(item):
            self._sent.add(transfer)
            if self._number[transfer] < self._posted[transfer.src, transfer.dst]:
                self._queue.append(transfer)
        self._reach(rank, now)
        self._move(now)

    def _post(self, channel: Channel, last: int) -> None:
        """Post receives up to message number `last`."""
        messages = self._order[channel]
        while self._posted[channel] <= min(last, len(messages) - 1):
            transfer = messages[self._posted[channel]]
            self._posted[channel] += 1
            if transfer in self._sent:
                self._queue.append(transfer)

    def _move(self, now: float) -> None:
        """Start every transfer whose ports are free, first come first served."""
        for transfer in list(self._queue):
            if self._sending[transfer.src] or self._receiving[transfer.dst]:
                continue
            self._queue.remove(transfer)
            end = now + self._cuts[transfer.boundary]
            self.moved.append((transfer, now, end))
            self._sending[transfer.src] = self._receiving[transfer.dst] = True
            self._at_time(end, lambda time, transfer=transfer: self._arrive(transfer, time))

    def _arrive(self, transfer: Transfer, now: float) -> None:
        self._sending[transfer.src] = self._receiving[transfer.dst] = False
        self._arrived.add(transfer)
        self._move(now)
        self._start(transfer.dst, now)

    def _at_time(self, time: float, happen: Callable[[float], None]) -> None:
        heapq.heappush(self._future, (time, next(self._turn), happen))


def _per(name: str, cost: Costs, count: int, micro_batches: int) -> list[list[float]]:
    """For each of `count` chunks or cuts a number for each micro-batch."""
    if isinstance(cost, Real):
        cost = [cost] * count
    rows = [list(each) if isinstance(each, Iterable) else [each] * micro_batches for each in cost]
    if len(rows) != count:
        raise ValueError(f"{name} has {len(rows)} costs: give one number, or {count}, one for each")
    for row in rows:
        if len(row) != micro_batches:
            raise ValueError(
                f"{name} of a chunk has {len(row)} costs: give one for each of {micro_batches} micro-batches"
            )
        for value in row:
            if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= value < math.inf:
                raise ValueError(f"{name} costs {value!r}: give a number of at least 0")
    return rows


def _detail(part: Action) -> dict[str, object]:
    return {"chunk": part.chunk}
