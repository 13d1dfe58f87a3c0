"""Slack: how much later an event might have ended without the run ending later.

Floor 0; read `path` first, whose events these are. What is on the critical path has none; the more an event has, the less
it is worth to make it faster.

| this               | waits for                                                                        |
|--------------------|----------------------------------------------------------------------------------|
| computation        | the computation before it on its rank                                            |
| one after a wait   | as well, for every transfer of its rank that had ended by then                   |
| a transfer         | transfers that had ended on its ranks, and what a rank computed when it began it |

A rank *waits* where a span of kind "wait", "recv", "send" or "collective" on its own stream says so, and where
nothing is computed until the very moment at which a transfer ends.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from lockstep.trace.events import Message, Span, Trace
from lockstep.trace.measures import COMPUTING
from lockstep.trace.path import Node, nodes_of

WAITING = ("wait", "recv", "send", "collective")


@dataclass(frozen=True, slots=True)
class Slack:
    """`event` might have ended `seconds` later, and the run as soon."""

    event: Span | Message
    seconds: float


def slack(trace: Trace) -> tuple[Slack, ...]:
    """The slack of every event (seconds), in order of time; events are those of `critical_path`.

    Each by itself: two events in a row share theirs. As far as a trace can tell: a wait that took no time leaves no
    mark, so what it waited for may have less. Time that nothing in the trace explains counts as slack before it.

    Two ranks compute 2 s and 3 s, rank 1 sends to rank 0 for 1 s, rank 0 computes 1 s more: rank 0's first 2 s have a
    slack of 1 s, all else has none.
    """
    nodes = sorted(nodes_of(trace), key=lambda node: (node.start, node.end))
    after = _successors(trace, nodes)
    later = [_Later() for _ in range(trace.ranks)]  # of each rank, the transfers that begin later
    last, found = trace.seconds, {}
    for at in reversed(range(len(nodes))):
        node = nodes[at]
        bounds = [last, *(found[other] - _length(nodes[other]) for other in after[at])]
        if not _computes(node):
            bounds += [later[rank].begin_at_the_latest(node.end) for rank in node.ranks]
        found[at] = min(bounds)
        if not _computes(node):
            for rank in node.ranks:
                later[rank].add(node.start, found[at] - _length(node))
    return tuple(Slack(node.event, max(0.0, found[at] - node.end)) for at, node in enumerate(nodes))


class _Later:
    """Begins of transfers, added from the last to the first, each with the latest at which it may begin."""

    def __init__(self) -> None:
        self._begins: list[float] = []  # negative, and so in ascending order
        self._least: list[float] = []  # of those added so far

    def add(self, begin: float, latest: float) -> None:
        self._begins.append(-begin)
        self._least.append(min(latest, self._least[-1]) if self._least else latest)

    def begin_at_the_latest(self, time: float) -> float:
        """The least of those that begin at `time` or later."""
        many = bisect_right(self._begins, -time)
        return self._least[many - 1] if many else float("inf")


def _successors(trace: Trace, nodes: list[Node]) -> list[list[int]]:
    """For each node, those that wait for it, apart from transfers that wait for transfers."""
    after: list[list[int]] = [[] for _ in nodes]
    for rank in range(trace.ranks):
        own = [at for at, node in enumerate(nodes) if _computes(node) and node.ranks == (rank,)]
        for one, other in zip(own, own[1:], strict=False):
            after[one].append(other)
        moving = [at for at, node in enumerate(nodes) if not _computes(node) and rank in node.ranks]
        ends = [nodes[at].end for at in own]
        for at, launched in zip(moving, _launches(trace, rank, [nodes[at] for at in moving]), strict=True):
            before = bisect_right(ends, launched) - 1
            if before >= 0:
                after[own[before]].append(at)
        _add_waits(trace, rank, nodes, own, moving, after)
    return after


def _add_waits(
    trace: Trace, rank: int, nodes: list[Node], own: list[int], moving: list[int], after: list[list[int]]
) -> None:
    """Let the first computation after a wait wait for each transfer that had ended by then."""
    waits = sorted(s.end for s in trace.spans if s.rank == rank and s.stream == 0 and s.kind in WAITING)
    arrived = {nodes[at].end for at in moving}
    stops = []  # computations after a wait
    for place, at in enumerate(own):
        begin, before = nodes[at].start, nodes[own[place - 1]].end if place else float("-inf")
        waited = bisect_left(waits, before) < bisect_right(waits, begin)
        if waited or (before < begin and begin in arrived):
            stops.append(at)
    begins = [nodes[at].start for at in stops]
    for at in moving:
        first = bisect_left(begins, nodes[at].end)
        if first < len(stops):
            after[at].append(stops[first])


def _launches(trace: Trace, rank: int, moving: list[Node]) -> Iterator[float]:
    """When a rank began each transfer: a message of a collective beside its work, when it began that."""
    beside = sorted(
        (s.start, s.end) for s in trace.spans if s.rank == rank and s.stream == 1 and s.kind == "collective"
    )
    begins = [begin for begin, _ in beside]
    for node in moving:
        at = bisect_right(begins, node.start) - 1
        inside = at >= 0 and node.end <= beside[at][1]
        yield beside[at][0] if inside else node.start


def _computes(node: Node) -> bool:
    return isinstance(node.event, Span) and node.event.kind in COMPUTING


def _length(node: Node) -> float:
    return node.end - node.start
