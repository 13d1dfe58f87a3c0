"""Small traces for exercise 11.1, in which an event begins when something on one of its ranks ends, or after a pause.

Floor 4, room `exercises`. A program is a list of what happens in turn, without running anything:

    ("work", rank, seconds)        the rank computes
    ("send", src, dst, seconds)    a message; both ranks stand still until it is there
    ("isend", src, dst, seconds)   a message beside what its ranks do, after those that they have begun before
    ("pause", rank, seconds)       the rank does nothing, as between two events of a real run
    ("wait", rank)                 the rank stands still until its messages have ended
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from lockstep.trace import Message, Span, Trace

MiB = 2**20


def played(ranks: int, program: Iterable[tuple]) -> Trace:
    """The trace of `program`."""
    clock, port = [0.0] * ranks, [0.0] * ranks
    spans: list[Span] = []
    messages: list[Message] = []

    def stand_still(rank: int, until: float, kind: str = "wait") -> None:
        if until > clock[rank]:
            spans.append(Span(rank, kind, kind, clock[rank], until))
            clock[rank] = until

    for what, *args in program:
        if what == "work":
            rank, seconds = args
            number = sum(span.rank == rank and span.kind == "compute" for span in spans)
            spans.append(Span(rank, "compute", f"work {number}", clock[rank], clock[rank] + seconds))
            clock[rank] += seconds
        elif what == "pause":
            clock[args[0]] += args[1]
        elif what == "wait":
            stand_still(args[0], port[args[0]])
        else:
            src, dst, seconds = args
            begin = max(clock[src], clock[dst], port[src], port[dst])
            messages.append(Message(src, dst, MiB, begin, begin + seconds))
            port[src] = port[dst] = begin + seconds
            if what == "send":
                stand_still(src, begin + seconds, "send")
                stand_still(dst, begin + seconds, "recv")
    return Trace.of(ranks, spans, messages, "simulated")


def drawn(rng: np.random.Generator, ranks: int, length: int) -> Trace:
    """A program of random steps, with seconds that hardly ever add up to equal times."""
    program: list[tuple] = [("work", rank, _seconds(rng)) for rank in range(ranks)]
    for _ in range(length):
        src, dst = (int(rank) for rank in rng.choice(ranks, 2, replace=False))
        what = ("work", "work", "send", "isend", "isend", "wait")[int(rng.integers(6))]
        if what in ("send", "isend"):
            program.append((what, src, dst, _seconds(rng)))
        else:
            program.append(("work", src, _seconds(rng)) if what == "work" else ("wait", src))
    program += [("wait", rank) for rank in range(ranks)]
    return played(ranks, program)


def _seconds(rng: np.random.Generator) -> float:
    return float(rng.integers(1, 4000)) / 512  # sums of such numbers are exact
