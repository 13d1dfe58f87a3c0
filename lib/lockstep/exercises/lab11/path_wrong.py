"""Wrong functions for exercise 11.1, and by what some of them show.

Floor 4, room `exercises`; what they are told is in `path_mistakes.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from lockstep.exercises.exercise import Case
from lockstep.exercises.observe import Observation
from lockstep.trace import Span

WRAPPED = "an event inside a"  # how an entry of the path is told that holds an event and is none


def times(event):
    return (event.start, event.end) if isinstance(event, Span) else (event.sent, event.received)


def both(event):
    return {event.rank} if isinstance(event, Span) else {event.src, event.dst}


def events_of(trace):
    return [s for s in trace.spans if s.kind == "compute"] + list(trace.messages)


def backwards(trace, *, events=events_of, ranks=both, of=both, fits=None, choose=None, last=None):
    """The right function, in which one thing can be another."""
    fits = fits or (lambda one, start: times(one)[1] <= start)
    choose = choose or (lambda before: max(before, key=lambda one: times(one)[1]))
    known = events(trace)
    event = last(known) if last else max(known, key=lambda one: times(one)[1])
    path = [event]
    while before := [
        e for e in known if e not in path and fits(e, times(path[-1])[0]) and of(e) & ranks(path[-1])
    ]:  # fmt: skip
        path.append(choose(before))
    return path[::-1]


def from_the_first(trace):
    known = sorted(events_of(trace), key=times)
    path = [known[0]]
    while after := [e for e in known if times(e)[0] >= times(path[-1])[1] and both(e) & both(path[-1])]:
        path.append(min(after, key=times))
    return path


def own_rank(trace):
    return backwards(trace, events=lambda t: [s for s in t.spans if s.kind == "compute"])


def by_the_sender(trace):
    return backwards(trace, ranks=lambda e: {e.rank} if isinstance(e, Span) else {e.src})


def by_the_receiver(trace):
    return backwards(trace, ranks=lambda e: {e.rank} if isinstance(e, Span) else {e.dst})


def on_the_senders_rank(trace):
    return backwards(trace, **dict.fromkeys(("of", "ranks"), lambda e: {e.rank} if isinstance(e, Span) else {e.src}))


def on_the_receivers_rank(trace):
    return backwards(trace, **dict.fromkeys(("of", "ranks"), lambda e: {e.rank} if isinstance(e, Span) else {e.dst}))


def backwards_in_time(trace):
    return backwards(trace)[::-1]


def with_waiting(trace):
    return backwards(trace, events=lambda t: [*t.spans, *t.messages])


def started_last(trace):
    return backwards(trace, choose=lambda before: max(before, key=lambda one: times(one)[0]))


def longest_before(trace):
    return backwards(trace, choose=lambda before: max(before, key=lambda one: times(one)[1] - times(one)[0]))


def from_the_longest(trace):
    return backwards(trace, last=lambda known: max(known, key=lambda one: times(one)[1] - times(one)[0]))


def on_any_rank(trace):
    return backwards(trace, ranks=lambda e: set(range(trace.ranks)))


def counts_overlap_twice(trace):
    return backwards(trace, fits=lambda one, start: times(one)[0] < start)


def nothing_that_touches(trace):
    return backwards(trace, fits=lambda one, start: times(one)[1] < start)


def without_the_last(trace):
    return backwards(trace)[:-1]


def without_messages(trace):
    return [e for e in backwards(trace) if isinstance(e, Span)]


def busiest_rank(trace):
    own = [[s for s in trace.spans if s.kind == "compute" and s.rank == r] for r in range(trace.ranks)]
    return max(own, key=lambda spans: sum(s.end - s.start for s in spans))


def its_length(trace):
    return sum(times(e)[1] - times(e)[0] for e in backwards(trace))


def its_names(trace):
    return [e.name if isinstance(e, Span) else f"{e.src} to {e.dst}" for e in backwards(trace)]


def all_on_its_ranks(trace):
    last = max(events_of(trace), key=lambda one: times(one)[1])
    return sorted((e for e in events_of(trace) if both(e) & both(last)), key=lambda one: times(one)[0])


def from_the_last_span(trace):
    return backwards(trace, last=lambda known: max((e for e in known if isinstance(e, Span)), key=lambda e: e.end))


def ended_exactly_then(trace):
    return backwards(trace, fits=lambda one, start: times(one)[1] == start)


def all_events(trace):
    return sorted(events_of(trace), key=times)


def began_last_of_all(trace):
    return backwards(trace, last=lambda known: max(known, key=lambda one: times(one)[0]))


def one_step_back(trace):
    return backwards(trace)[-2:]


def before_its_end(trace):
    """In which nothing is before its own end, so that each step leads to something new."""
    path = [max(events_of(trace), key=lambda one: times(one)[1])]
    while before := [e for e in events_of(trace) if times(e)[1] < times(path[-1])[1] and both(e) & both(path[-1])]:
        path.append(max(before, key=lambda one: times(one)[1]))
    return path[::-1]


def ended_first(trace):
    return backwards(trace, choose=lambda before: min(before, key=lambda one: times(one)[1]))


def with_no_end(trace):
    path = [max(events_of(trace), key=lambda one: times(one)[1])]
    while path:
        before = [e for e in events_of(trace) if times(e)[1] <= times(path[-1])[0] and both(e) & both(path[-1])]
        path.append(max(before, key=lambda one: times(one)[1]))
    return path[::-1]


def ranks_pile_up(trace):
    path = [max(events_of(trace), key=lambda one: times(one)[1])]
    ranks = both(path[0])
    while before := [e for e in events_of(trace) if times(e)[1] <= times(path[-1])[0] and both(e) & ranks]:
        path.append(max(before, key=lambda one: times(one)[1]))
        ranks |= both(path[-1])
    return path[::-1]


def in_tuples(trace):
    return [(*times(e), e) for e in backwards(trace)]


def in_a_generator(trace):
    yield from backwards(trace)


def entries(seen: Observation) -> list:
    return seen.arguments if isinstance(seen.arguments, list) else []


def on_every_case_alone(case: Case, seen: Observation, expected: Observation) -> bool:
    """Never: a short path says too little, and only who goes wrong alike on every case made this mistake."""
    return False


def has_waiting(case: Case, seen: Observation, expected: Observation) -> bool:
    """A rank that stands still is on the path."""
    return any(one[0] == "wait" for one in entries(seen) if isinstance(one, tuple))


def goes_on_with(which: int) -> Callable[[Case, Observation, Observation], bool]:
    """Before some message comes an event of its sender (0) or receiver (1), although the other's ended later."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        events = events_of(case.args[0])
        for one, other in pairwise(entries(seen)):
            if isinstance(one, str) or isinstance(other, str) or len(other[1]) != 2 or other[1][which] not in one[1]:
                continue
            asked, missed = other[1][which], other[1][1 - which]
            ends = [times(e)[1] for e in events if missed in both(e) and asked not in both(e)]
            if missed not in one[1] and any(one[3] < end <= other[2] for end in ends):
                return True
        return False

    return symptom


def has_wrapped(case: Case, seen: Observation, expected: Observation) -> bool:
    return any(one.startswith(WRAPPED) for one in entries(seen) if isinstance(one, str))


def gives_a_generator(case: Case, seen: Observation, expected: Observation) -> bool:
    return getattr(seen.arguments, "type", "") == "generator"
