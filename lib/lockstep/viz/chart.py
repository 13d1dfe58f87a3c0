"""A timeline before it is drawn: `plan` decides which boxes there are, how each looks and where it stands.

Floor 3, under `timeline`; `drawing` draws it. A *band* is a rank's row, or the thinner one under it for
communication that runs beside its work (stream 1).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lockstep.trace import Message, Span, Trace
from lockstep.trace.intervals import Intervals, innermost, intersect, subtract, union
from lockstep.trace.measures import Usage, transfers
from lockstep.viz.figure import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, VERMILLION, YELLOW


@dataclass(frozen=True)
class Look:
    """How one kind of box is drawn: never by colour alone."""

    label: str
    color: str
    hatch: str = ""
    ink: str = INK


@dataclass(frozen=True)
class Box:
    """Drawn from `start` to `end` (seconds after the trace's first event); `said` is for the text alternative."""

    start: float
    end: float
    look: Look
    label: str
    said: str


@dataclass(frozen=True)
class Band:
    """`top` and `height` in units of a full row; `name` says which rank (and which trace) it is."""

    name: str
    trace: int
    rank: int
    stream: int
    top: float
    height: float
    boxes: Sequence[Box]


@dataclass(frozen=True)
class Chart:
    """Everything a drawing needs; `messages` only of a single trace: those of two would cross each other's rows."""

    heading: str
    notes: Sequence[str]
    bands: Sequence[Band]
    messages: Sequence[Message]
    computing: Mapping[tuple[int, int], float]
    seconds: float
    rows: float


COLLECTIVE = Look("collective", ORANGE, "xx")
SEND = Look("send", VERMILLION, "||")
RECEIVE = Look("receive", "#F2B48C", "--")
WAIT = Look("wait for a transfer", "#F2B48C", "..")
BLOCKED = Look("blocked, nothing moves", "#E3E3E3")
OTHER = Look("other", "#A6A6A6", "++")
COMMUNICATION = {"collective": COLLECTIVE, "send": SEND, "recv": RECEIVE, "wait": WAIT, "other": OTHER}
COMPUTE = ((SKY, "", INK), (GREEN, "//", INK), (PURPLE, "\\\\", INK), (YELLOW, "..", INK), (BLUE, "oo", "white"))


def plan(
    traces: Sequence[Trace], names: Sequence[str], heading: str, notes: Sequence[str], used: Sequence[Sequence[Usage]]
) -> Chart:
    """Place every rank's rows, one under the other, and sort what they show into boxes; `used` is each trace's usage."""
    looks = _compute_looks(traces)
    boxes = [_boxes(trace, looks) for trace in traces]
    bands, top = [], 0.0
    for rank in range(max((trace.ranks for trace in traces), default=0)):
        for t, trace in enumerate(traces):
            if rank >= trace.ranks:
                continue
            name = f"rank {rank} {names[t]}".strip()
            bands.append(Band(name, t, rank, 0, top, 1.0, boxes[t].get((rank, 0), ())))
            top += 1.0
            if any(stream == 1 for _, stream in boxes[t]):
                beside = f"{name} beside its work"
                bands.append(Band(beside, t, rank, 1, top + 0.04, 0.42, boxes[t].get((rank, 1), ())))
                top += 0.46
            top += 0.12
        top += 0.2 if len(traces) == 1 else 0.35
    moved = _shifted(traces[0]) if len(traces) == 1 else []
    shares = {(t, u.rank): u.share("computing") for t, parts in enumerate(used) for u in parts}
    seconds = max(trace.window[1] - trace.window[0] for trace in traces)
    return Chart(heading, notes, bands, moved, shares, seconds, max(top, 1.0))


def _compute_looks(traces: Sequence[Trace]) -> dict[str, Look]:
    """A look for each name of a computing span; with many names, forward and backward and the rest."""
    names = list(dict.fromkeys(s.name for trace in traces for s in trace.spans if s.kind == "compute"))
    families = names if len(names) <= len(COMPUTE) else list(dict.fromkeys(map(_family, names)))
    ordered = sorted(families, key=lambda n: (_family(n) != "forward", _family(n) != "backward"))
    looks = {name: Look(_short(name), *COMPUTE[i % len(COMPUTE)]) for i, name in enumerate(ordered)}
    return {name: looks[name if name in looks else _family(name)] for name in names}


def _family(name: str) -> str:
    for family in ("forward", "backward"):
        if family in name.lower():
            return family
    return "other computation"


def _short(name: str, most: int = 30) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _boxes(trace: Trace, looks: Mapping[str, Look]) -> dict[tuple[int, int], list[Box]]:
    """By rank and stream (0 own work, 1 beside it), in order of time, none overlapping."""
    origin = trace.window[0]
    moving = transfers(trace)
    spans: dict[tuple[int, int], list[Span]] = defaultdict(list)
    for span in trace.spans:
        spans[span.rank, min(span.stream, 1)].append(span)
    boxes = {}
    for (rank, stream), own in spans.items():
        pieces = innermost(_without_inner_calls(own))
        boxes[rank, stream] = [
            Box(start - origin, end - origin, look, label, said)
            for span, begin, stop in pieces
            for start, end, look, label, said in _parts(span, begin, stop, moving[rank], looks)
        ]
    return boxes


def _without_inner_calls(spans: list[Span]) -> list[Span]:
    """Leave out the sends and receives that a collective is made of: the collective is one box."""
    outer = union((s.start, s.end) for s in spans if s.kind == "collective")
    starts = [start for start, _ in outer]

    def inside(span: Span) -> bool:
        i = bisect_right(starts, span.start) - 1
        return i >= 0 and span.end <= outer[i][1]

    return [s for s in spans if s.kind not in ("send", "recv", "wait") or not inside(s)]


def _parts(
    span: Span, start: float, end: float, moving: Intervals, looks: Mapping[str, Look]
) -> Iterable[tuple[float, float, Look, str, str]]:
    """A piece of a span as (start, end, look, label, words): blocked time is told from moving time."""
    if span.kind == "compute" or span.kind not in COMMUNICATION:
        look = looks.get(span.name, OTHER)
        label = span.name if span.micro_batch is None else str(span.micro_batch)
        said = span.name if span.micro_batch is None else f"{span.name} of micro-batch {span.micro_batch}"
        yield start, end, look, label, said
        return
    look = COMMUNICATION[span.kind]
    if look is OTHER:
        yield start, end, look, span.name, span.name
        return
    near = moving[max(0, bisect_left(moving, (start, start)) - 1) : bisect_right(moving, (end, end))]
    busy = intersect([(start, end)], near)
    parts = [(a, b, BLOCKED, "", f"waiting in {span.name}") for a, b in subtract([(start, end)], busy)]
    parts += [(a, b, look, span.name if span.kind == "collective" else span.kind, span.name) for a, b in busy]
    yield from sorted(parts, key=lambda p: p[0])


def _shifted(trace: Trace) -> list[Message]:
    origin = trace.window[0]
    return [Message(m.src, m.dst, m.bytes, m.sent - origin, m.received - origin) for m in trace.messages]
