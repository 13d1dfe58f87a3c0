"""What goes wrong in exercise 11.1, and the sentence that each fault gets.

Floor 4, room `exercises`; the exercise is in `path.py`.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.observe import Observation
from lockstep.trace import Span


def times(event):
    return (event.start, event.end) if isinstance(event, Span) else (event.sent, event.received)


def both(event):
    return {event.rank} if isinstance(event, Span) else {event.src, event.dst}


def events_of(trace):
    return [s for s in trace.spans if s.kind == "compute"] + list(trace.messages)


def backwards(trace, *, events=events_of, ranks=both, fits=None, choose=None, last=None):
    """The right function, in which one thing can be another."""
    fits = fits or (lambda one, start: times(one)[1] <= start)
    choose = choose or (lambda before: max(before, key=lambda one: times(one)[1]))
    known = events(trace)
    event = last(known) if last else max(known, key=lambda one: times(one)[1])
    path = [event]
    while before := [
        e for e in known if e not in path and fits(e, times(path[-1])[0]) and both(e) & ranks(path[-1])
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


def all_without_slack(trace):
    chain = backwards(trace)
    return [e for e in events_of(trace) if any(both(e) & both(c) for c in chain)]


def has_waiting(case: Case, seen: Observation, expected: Observation) -> bool:
    """A rank that stands still is on the path."""
    return isinstance(seen.value, list) and any(one[:1] == ("wait",) for one in seen.value if isinstance(one, tuple))


MISTAKES = (
    Mistake(
        "stays on one rank",
        own_rank,
        "Your path never leaves its rank. A rank that stood still waited for somebody: a message leads over to another "
        "rank.",
    ),
    Mistake(
        "a message waits for its sender alone",
        by_the_sender,
        "From a message you go on with its sender. A message needs both: where the receiver was late, what the receiver "
        "did before is on the path.",
    ),
    Mistake(
        "a message waits for its receiver alone",
        by_the_receiver,
        "From a message you go on with its receiver. What held the message up may as well have been its sender.",
    ),
    Mistake(
        "from the end to the beginning",
        backwards_in_time,
        "The path is right, and stands the wrong way round. It was found backwards; return it in order of time.",
    ),
    Mistake(
        "waiting on the path",
        with_waiting,
        "There is waiting on your path. Waiting takes no part in what had to be done: it ends when something else ends, "
        "and that is what you look for.",
        symptom=has_waiting,
    ),
    Mistake(
        "what began last",
        started_last,
        "You step back to what *began* last. An event waits for the one that *ended* last: a short one that began late "
        "may have been over for long.",
    ),
    Mistake(
        "the longest before",
        longest_before,
        "You step back to the longest event. How long it took does not matter, if it was over long before: take the one "
        "that ended last.",
    ),
    Mistake(
        "from the longest event",
        from_the_longest,
        "Your path ends with the longest event. It has to end with the one that ends last: the run is over no sooner.",
    ),
    Mistake(
        "on any rank",
        on_any_rank,
        "You step back to whatever ended last, on any rank. Without a message two ranks know nothing of each other: ask "
        "on the ranks of the event alone.",
    ),
    Mistake(
        "counts overlap twice",
        counts_overlap_twice,
        "Events on your path overlap, so the same moments count twice. What an event waited for had *ended* when it "
        "began; beginning before it is not enough.",
    ),
    Mistake(
        "nothing that touches",
        nothing_that_touches,
        "You leave out what ended at the very moment. An event begins as soon as it can, so the one that it waited for "
        "ends exactly then: `<=`, not `<`.",
    ),
    Mistake(
        "without the last event",
        without_the_last,
        "The event that ends last is missing. It is a part of the path, as the first is.",
    ),
    Mistake(
        "without messages",
        without_messages,
        "There is no message on your path. While one travels, nobody computes what comes after it: it takes its time as "
        "any event.",
    ),
    Mistake(
        "the busiest rank",
        busiest_rank,
        "That is what the rank with most work did. Others may have kept it waiting, and the run may end elsewhere.",
    ),
    Mistake(
        "its length",
        its_length,
        "That is the length of the path. Return the events themselves, spans and messages, in a list.",
    ),
    Mistake(
        "its names",
        its_names,
        "Those are names. Return the spans and messages themselves, as they are in the trace.",
    ),
    Mistake(
        "everything on its ranks",
        all_without_slack,
        "You return everything that happened on the ranks of the path. The path is one chain: at each moment one event.",
    ),
    Mistake(
        "forward from the first event",
        from_the_first,
        "You start at the first event and go forward. From there nobody knows which way leads to the event that ends "
        "last. Begin with that one, and ask what it had to wait for.",
    ),
)
