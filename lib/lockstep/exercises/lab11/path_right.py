"""Exercise 11.1's reference, other right functions, and the stub.

Floor 4, room `exercises`; the exercise is in `path.py`.
"""

from __future__ import annotations


def critical_path(trace):
    events = [(s.start, s.end, {s.rank}, s) for s in trace.spans if s.kind == "compute"]
    events += [(m.sent, m.received, {m.src, m.dst}, m) for m in trace.messages]
    path, before = [], events
    while before:
        start, _, ranks, event = max(before, key=lambda one: one[1])
        path.append(event)
        before = [one for one in events if one[1] <= start and one[2] & ranks]
    return path[::-1]


def by_chains(trace):
    """A graph: the chain of each event is that of the last before it, in the order in which they end."""

    def when(event):
        return (event.start, event.end) if hasattr(event, "start") else (event.sent, event.received)

    def who(event):
        return (event.rank,) if hasattr(event, "rank") else (event.src, event.dst)

    events = [e for e in (*trace.spans, *trace.messages) if getattr(e, "kind", "compute") == "compute"]
    events.sort(key=lambda e: when(e)[1])
    chains = []
    for i, event in enumerate(events):
        earlier = [
            k for k in range(i) if when(events[k])[1] <= when(event)[0] and set(who(events[k])) & set(who(event))
        ]
        chains.append((*(chains[earlier[-1]] if earlier else ()), event))
    return chains[-1]


def by_sorting(trace):
    """Once through all events, from the one that ends last: each that fits in front of the chain goes there."""
    ends = [(s.end, s.start, {s.rank}, s) for s in trace.spans if s.kind == "compute"]
    ends += [(m.received, m.sent, {m.src, m.dst}, m) for m in trace.messages]
    chain, until, ranks = [], float("inf"), set(range(trace.ranks))
    for end, start, own, event in sorted(ends, key=lambda one: one[:2], reverse=True):
        if end <= until and own & ranks:
            chain.insert(0, event)
            until, ranks = start, own
    return chain


def critical_path_stub(trace):
    raise NotImplementedError("return the chain of computations and messages that ends last, in order of time")
