"""The critical path: the chain of work and transfers that a run could not have been shorter than.

Floor 0. Read the parts that `measures` defines first.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace

from lockstep.trace.events import Message, Span, Trace
from lockstep.trace.measures import COMPUTING, collectives, own_pieces


@dataclass(frozen=True)
class Node:
    """Work or a transfer; it cannot start before what its `ranks` did earlier has ended."""

    event: Span | Message
    ranks: tuple[int, ...]
    start: float
    end: float


def critical_path(trace: Trace) -> tuple[Span | Message, ...]:
    """The chain that ends with the run's last event, in order of time.

    Found backwards: from the event that ends last, step to the event that ended last before it
    started on one of its ranks (a message has two, sender and receiver), and so on. Events are
    computation, messages, and collectives whose messages cannot be seen; being blocked is no event.
    A span that communication interrupts appears in pieces. The time between one event's end and the
    next one's start is waiting that the trace does not explain.

    Two ranks compute 2 s and 3 s, rank 1 sends to rank 0 for 1 s, rank 0 computes 1 s more: the path
    is rank 1's 3 s, the message, rank 0's last second, and rank 0's first 2 s are not on it.
    """
    nodes = nodes_of(trace)
    if not nodes:
        return ()
    by_rank: list[list[Node]] = [[] for _ in range(trace.ranks)]
    for node in nodes:
        for rank in node.ranks:
            by_rank[rank].append(node)
    for own in by_rank:
        own.sort(key=lambda n: (n.end, -n.start))  # of those that end together, the longest comes last
    ends = [[n.end for n in own] for own in by_rank]

    node: Node | None = max(nodes, key=lambda n: (n.end, -n.start))
    chain, seen = [], set()
    while node is not None:
        chain.append(node.event)
        seen.add(id(node))
        earlier = [_before(by_rank[r], ends[r], node.start, seen) for r in node.ranks]
        node = max((n for n in earlier if n is not None), key=lambda n: (n.end, -n.start), default=None)
    return tuple(reversed(chain))


def _before(own: list[Node], ends: list[float], time: float, seen: set[int]) -> Node | None:
    """The node of one rank that ended last at or before `time`; the longest if several ended together."""
    for i in range(bisect_right(ends, time) - 1, -1, -1):
        if id(own[i]) not in seen:  # a message that takes no time ends before it starts, so to speak
            return own[i]
    return None


def nodes_of(trace: Trace) -> list[Node]:
    nodes = [Node(m, (m.src, m.dst), m.sent, m.received) for m in trace.messages]
    begun: list[list[float]] = [[] for _ in range(trace.ranks)]
    for m in trace.messages:  # in the order of `sent`
        begun[m.src].append(m.sent)
        begun[m.dst].append(m.sent)
    for span, entered in collectives(trace):
        times = begun[span.rank]
        if bisect_left(times, span.start) < bisect_right(times, span.end):
            continue  # its messages are there, and say more than the whole
        group = span.detail.get("group")
        ranks = tuple(group) if isinstance(group, (tuple, list)) and "sequence" in span.detail else (span.rank,)
        nodes.append(Node(replace(span, start=entered), ranks, entered, span.end))
    for rank, pieces in enumerate(own_pieces(trace)):
        for span, start, end in pieces:
            if span.kind in COMPUTING:
                nodes.append(Node(replace(span, start=start, end=end), (rank,), start, end))
    return nodes
