"""11.1 `critical_path`: the chain of events that a run could not have been shorter than.

Floor 4, room `exercises`. How it is run and judged; right functions are in `path_right.py`, wrong ones in
`path_wrong.py`, what they are told in `path_mistakes.py`, traces in `traces.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import Finding
from lockstep.exercises.lab11.path_mistakes import MISTAKES
from lockstep.exercises.lab11.path_right import (
    by_chains,
    by_sorting,
    critical_path,
    critical_path_stub,
)
from lockstep.exercises.lab11.path_wrong import WRAPPED
from lockstep.exercises.lab11.told import NO_RETURN, Told, by_what_it_alone_does
from lockstep.exercises.lab11.traces import drawn, played
from lockstep.exercises.observe import Call, Observation
from lockstep.exercises.plain import Words, kind, plain, short
from lockstep.trace import Message, Span, Trace

Event = tuple[str, tuple[int, ...], float, float]  # what it is, its ranks, when it begins and ends


def in_numbers(fn: Any, trace: Trace) -> Any:
    """What `fn` gives, with every span and message as plain data, and whatever else it lists as text."""
    found = fn(trace)
    return list(map(_plain, found)) if isinstance(found, (list, tuple)) else found


def _plain(event: Any) -> Any:
    if isinstance(event, Span):
        return event.name if event.kind == "compute" else "wait", (event.rank,), event.start, event.end
    if isinstance(event, Message):
        return f"message {event.src} to {event.dst}", (event.src, event.dst), event.sent, event.received
    if isinstance(event, (list, tuple)) and any(isinstance(one, (Span, Message)) for one in event):
        return f"{WRAPPED} {type(event).__name__}"
    return short(plain(event))


def is_critical(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """Before each event the one that ended last on its ranks, back to one before which nothing had ended."""
    (trace,) = case.args
    got, want = seen.arguments, expected.arguments
    if got is None:
        return Finding(NO_RETURN, _told(want), "None", ("type", "None"))
    if not isinstance(got, list):
        sentence = "A list of spans and messages is asked for."
        if getattr(got, "type", "") == "generator":
            sentence = "A list of spans and messages is asked for; with `yield` the function gives a generator."
        return Finding(sentence, _told(want), kind(got), ("type", str(got)))
    known = [_plain(event) for event in (*trace.spans, *trace.messages)]
    sentence = _fault([one if one in known else None for one in got], trace)
    return Finding(sentence, _told(want), _told(got), [got]) if sentence else None


def _fault(path: Sequence[Event | None], trace: Trace) -> str | None:
    """The first thing that is wrong with a path."""
    last = max(event[3] for event in map(_plain, (*trace.spans, *trace.messages)))
    if not path:
        return "The path is empty."
    if None in path:
        return f"Entry {path.index(None)} of the path is neither a span nor a message of the trace."
    waiting = next((event for event in path if event[0] == "wait"), None)
    if waiting:
        return f"On the path rank {waiting[1][0]} waits from {waiting[2]:g} to {waiting[3]:g} s: that is no event."
    if path[-1][3] < last:
        return f"The last event of the path ends at {path[-1][3]:g} s, and the run at {last:g} s."
    events = [_plain(event) for event in (*trace.messages, *(s for s in trace.spans if s.kind == "compute"))]
    for one, other in zip([None, *path], path, strict=False):
        sentence = _between(one, other, [e for e in events if e[3] <= other[2] and set(e[1]) & set(other[1])])
        if sentence:
            return sentence
    return None


def _between(one: Event | None, other: Event, before: Sequence[Event]) -> str | None:
    """What is wrong with `one` as the event before `other`; before: all that had ended on its ranks when it began."""
    latest = max(before, key=lambda event: event[3], default=None)
    begins = f"{_named(other)}, which begins at {other[2]:g} s"
    if one is None:
        return latest and f"The path begins with {begins}. Before it {_named(latest)} ended, at {latest[3]:g} s."
    if other[2] < one[3]:
        return f"Before {begins}, the path has {_named(one)}, which ends only at {one[3]:g} s."
    if not set(one[1]) & set(other[1]):
        return f"In the path {_named(one)} comes right before {_named(other)}, and they have no rank in common."
    if one[3] < latest[3]:
        return (
            f"Before {begins}, the path has {_named(one)}, which ended at {one[3]:g} s; {_named(latest)} ended later, at "
            f"{latest[3]:g} s."
        )
    return None


def _told(path: list[Event | str]) -> str:
    """ "rank 1's `work 0` (0 to 3), `message 1 to 0` (3 to 4)"."""
    return ", ".join(map(_one, path[:8])) + (", …" if len(path) > 8 else "")


def _named(event: Event) -> str:
    name, ranks, *_ = event
    return f"rank {ranks[0]}'s `{name}`" if len(ranks) == 1 else f"`{name}`"


def _one(event: Event | str) -> str:
    return event if isinstance(event, str) else f"{_named(event)} ({event[2]:g} to {event[3]:g})"


def in_words(found: Any, seconds: float) -> Any:
    """The events of a list in turn; what is no list stays as it is."""
    return Words(_told(found)) if isinstance(found, list) else found


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """The first that fails a mistake tells what is wrong with it; drawn ones come after."""
    w, s, i = "work", "send", "isend"
    yield Case("one rank, two computations", (played(1, [(w, 0, 2), (w, 0, 3)]),))
    yield Case(
        "two ranks, the sender is late", (played(2, [(w, 0, 2), (w, 1, 3), (s, 1, 0, 1), (w, 0, 1), (w, 1, 0.5)]),)
    )
    yield Case("two ranks, the receiver is late", (played(2, [(w, 0, 2), (w, 1, 3), (s, 0, 1, 1), (w, 1, 1)]),))
    beside = [(w, 0, 3), (w, 1, 2), (i, 0, 1, 1), (w, 0, 4), (w, 1, 3), (i, 0, 1, 2), ("wait", 0), ("wait", 1)]
    yield Case("two ranks, messages beside the work", (played(2, [*beside, (w, 0, 1), (w, 1, 0.5)]),))
    late = [(w, 0, 6), (w, 1, 1), (i, 0, 1, 1), (w, 1, 2), (w, 0, 0.5), ("wait", 1), (w, 1, 5), ("wait", 0)]
    yield Case("two ranks, the longest computation comes first", (played(2, late),))
    ring = [(w, 0, 1), (w, 1, 4), (w, 2, 2), (s, 1, 2, 1), (w, 2, 3), (w, 1, 6), (s, 2, 0, 2), (w, 0, 5), (w, 1, 1)]
    yield Case("three ranks in a chain", (played(3, ring),))
    # Who keeps the ranks that the path has left steps over to one that ends at the same time: ranks 0 and 2, at 2 s.
    left = [(w, 0, 2), (w, 1, 2), (w, 2, 2), (w, 1, 3), (s, 1, 2, 1), (s, 2, 0, 1), (w, 0, 1)]
    yield Case("three ranks, from one to the next and the next", (played(3, left),))
    gaps = [("pause", 0, 0.5), (w, 0, 2), (w, 1, 3), ("pause", 1, 0.25), (s, 1, 0, 1), ("pause", 0, 0.25), (w, 0, 1)]
    yield Case("two ranks that lose some time between the events", (played(2, gaps),))
    yield Case("two ranks, a message comes last", (played(2, [(w, 0, 2), (w, 1, 3), (i, 0, 1, 4), ("wait", 1)]),))
    together = [(w, 0, 3), (w, 1, 2), (s, 0, 1, 1), (w, 2, 4), (w, 1, 2)]
    yield Case("three ranks, two events that end together", (played(3, together),))
    for ranks, length in ((2, 8), (3, 16), (4, 40)):
        yield Case(f"{ranks} ranks, {length} steps, drawn", (drawn(rng, ranks, length),))


OBSERVE, JUDGE = Told(Call(in_numbers), in_words), is_critical

CRITICAL_PATH = Exercise(
    id="11.1",
    title="What the run waited for",
    function="critical_path",
    points=2,
    asks=(
        "Return the critical path of a trace, a list of spans and messages in order of time. It ends with the event that "
        "ends last; before each event stands the one that ended last, at or before its begin, on one of its ranks. "
        "Events are spans of kind `compute` (with `rank`, `start`, `end`) and messages (with `src`, `dst`, `sent`, "
        "`received`); waiting is none."
    ),
    reference=critical_path,
    also_right=(by_chains, by_sorting),
    stub=critical_path_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    forbidden=("lockstep.trace.critical_path",),
    hints=(
        "Begin at the end: which event ends last? What could it not begin without?",
        "`events_of(trace)`, above the exercise, gives spans and messages alike, as tuples (begin, end, set of ranks, the "
        "event itself); a message has two ranks. So one rule is enough for both kinds.",
        "As long as there is something before: keep of all events those whose end is at most the begin of the last one "
        "found and whose ranks meet its ranks, and take the one that ends last. Turn the list round in the end, and return the events alone, without the tuples.",
        "`before = [one for one in events if one[1] <= start and one[2] & ranks]`",
    ),
    mistakes=by_what_it_alone_does(OBSERVE, JUDGE, MISTAKES),
)
