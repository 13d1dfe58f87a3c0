"""Where the time of a run went: computing, communicating, waiting.

Floor 0. Every moment of a rank's time is exactly one of three:

| part      | the rank                                                                     |
|-----------|------------------------------------------------------------------------------|
| computing | is in a span of kind "compute" or "other" on its own stream (stream 0)       |
| exposed   | does not compute, while one of its transfers is moving                       |
| idle      | neither: it waits for another rank, or has nothing to do                     |

*Hidden* communication is the time in which a transfer moves while the rank computes; it is part of
computing. A *transfer moves* while a message from or to the rank is between `sent` and `received`,
and in a collective from the moment its last rank has entered it (a backend's own collectives show
no messages). Being blocked in a call before that is idle time: nothing moves yet.
Where spans of one stream nest, the innermost counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass

from lockstep.trace.events import Span, Trace
from lockstep.trace.intervals import Intervals, innermost, intersect, length, subtract, union

COMPUTING = ("compute", "other")


@dataclass(frozen=True)
class Usage:
    """One rank's seconds, by what it did: computing + exposed + idle = seconds, the trace's window.

    `hidden` (communication behind computation) is a part of `computing`.
    """

    rank: int
    seconds: float
    computing: float
    hidden: float
    exposed: float
    idle: float

    def share(self, part: str) -> float:
        """`part` ("computing", "hidden", "exposed", "idle") as a share of the window; 0.0 for an empty one."""
        return getattr(self, part) / self.seconds if self.seconds > 0 else 0.0


def usage(trace: Trace) -> tuple[Usage, ...]:
    """How each rank used its time, in rank order (seconds); the module's docstring defines the parts.

    A rank that computes over 0-6 s, with a message on its way over 4-9 s, in a window of 10 s:
    computing 6, hidden 2, exposed 3, idle 1.
    """
    first, last = trace.window
    work, moving = computing(trace), transfers(trace)
    found = []
    for rank in range(trace.ranks):
        exposed = length(subtract(moving[rank], work[rank]))
        busy = length(work[rank])
        hidden = length(intersect(moving[rank], work[rank]))
        found.append(Usage(rank, last - first, busy, hidden, exposed, max(0.0, last - first - busy - exposed)))
    return tuple(found)


def idle_share(trace: Trace) -> tuple[float, ...]:
    """Per rank, the share of the window in which it neither computes nor communicates."""
    return tuple(u.share("idle") for u in usage(trace))


def bubble_share(trace: Trace) -> float:
    """Share of all ranks' time that is not computing: 1 - sum of computing / (ranks x window).

    For a pipeline with free communication this is the bubble, (p-1)/(m+p-1) for GPipe and 1F1B with
    p stages and m micro-batches (Huang et al. 2019, section 2.3). 0.0 for an empty trace.
    """
    parts = usage(trace)
    total = sum(u.seconds for u in parts)
    return 1.0 - sum(u.computing for u in parts) / total if total > 0 else 0.0


def overlap_share(trace: Trace) -> float | None:
    """Share of communication time that is hidden behind computation: hidden / (hidden + exposed), over all ranks.

    None when nothing was communicated: there is no share of nothing.
    """
    parts = usage(trace)
    hidden, exposed = sum(u.hidden for u in parts), sum(u.exposed for u in parts)
    return hidden / (hidden + exposed) if hidden + exposed > 0 else None


def bytes_by_pair(trace: Trace) -> dict[tuple[int, int], int]:
    """Bytes of all messages from `src` to `dst`, by (src, dst); pairs that sent nothing are absent."""
    total: dict[tuple[int, int], int] = defaultdict(int)
    for message in trace.messages:
        total[message.src, message.dst] += message.bytes
    return dict(sorted(total.items()))


def own_pieces(trace: Trace) -> list[list[tuple[Span, float, float]]]:
    """Per rank, its own stream (stream 0) cut into pieces (span, start, end): the innermost span at each moment."""
    own: list[list[Span]] = [[] for _ in range(trace.ranks)]
    for span in trace.spans:
        if span.stream == 0:
            own[span.rank].append(span)
    return [innermost(spans) for spans in own]


def computing(trace: Trace) -> list[Intervals]:
    """Per rank, when it computes (the module's docstring says what counts)."""
    return [
        union((start, end) for span, start, end in pieces if span.kind in COMPUTING) for pieces in own_pieces(trace)
    ]


def transfers(trace: Trace) -> list[Intervals]:
    """Per rank, when a transfer of its own moves (the module's docstring says what counts)."""
    moving: list[list[tuple[float, float]]] = [[] for _ in range(trace.ranks)]
    for message in trace.messages:
        moving[message.src].append((message.sent, message.received))
        moving[message.dst].append((message.sent, message.received))
    for span, entered in collectives(trace):
        moving[span.rank].append((entered, span.end))
    return [union(m) for m in moving]


def collectives(trace: Trace) -> list[tuple[Span, float]]:
    """Spans of collectives, each with the time its last rank entered it (but at most the span's end).

    Spans belong to one collective when their `detail` has the same "group" and "sequence"; one
    without is taken to have been entered by all when this rank did.
    """
    spans = [span for span in trace.spans if span.kind == "collective"]
    entered: dict[Hashable, float] = {}
    for span in spans:
        entered[_collective(span)] = max(span.start, entered.get(_collective(span), span.start))
    return [(span, min(span.end, entered[_collective(span)])) for span in spans]


def _collective(span: Span) -> Hashable:
    """What spans of one collective share, and no other span does."""
    if "sequence" in span.detail:
        return str(span.detail.get("group")), span.detail["sequence"]
    return id(span)
