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


def by_longest_paths(trace):
    """A graph: each event after all that had ended on its ranks; the path is the heaviest chain that ends last."""

    def when(event):
        return (event.start, event.end) if hasattr(event, "start") else (event.sent, event.received)

    def who(event):
        return (event.rank,) if hasattr(event, "rank") else (event.src, event.dst)

    events = [e for e in (*trace.spans, *trace.messages) if getattr(e, "kind", "compute") == "compute"]
    events.sort(key=lambda e: when(e)[1])
    weight, came_from = [], []
    for i, event in enumerate(events):
        begin, end = when(event)
        earlier = [k for k in range(i) if when(events[k])[1] <= begin and set(who(events[k])) & set(who(event))]
        best = max(earlier, key=lambda k: weight[k], default=None)
        weight.append(end - begin + (0 if best is None else weight[best]))
        came_from.append(best)
    at, chain = max(range(len(events)), key=lambda i: weight[i]), []
    while at is not None:
        chain.insert(0, events[at])
        at = came_from[at]
    return tuple(chain)


def by_what_touches(trace):
    """Steps back to any event that ends at the very moment, of several to the one that began first."""
    chain = []
    time, ranks = trace.window[1], set(range(trace.ranks))
    while time > trace.window[0]:
        ends_now = [(m.sent, {m.src, m.dst}, m) for m in trace.messages if m.received == time]
        ends_now += [(s.start, {s.rank}, s) for s in trace.spans if s.end == time and s.kind == "compute"]
        time, ranks, event = min((one for one in ends_now if one[1] & ranks), key=lambda one: one[0])
        chain.append(event)
    chain.reverse()
    return chain


def critical_path_stub(trace):
    raise NotImplementedError("return the chain of computations and messages that ends last, in order of time")
