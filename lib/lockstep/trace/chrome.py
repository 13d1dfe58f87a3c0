"""A trace as the JSON that Perfetto and chrome://tracing read ("Trace Event Format", Google 2016).

Floor 0. One process per rank; in it a track for its own work (stream 0), one for communication beside
it (stream 1), and one each for messages sent and received, joined by arrows.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lockstep.trace.events import Trace

SENT, RECEIVED = "messages sent", "messages received"
TRACKS = ("own work", "communication", SENT, RECEIVED)
LANES = 1000  # the lanes of track t have thread ids t * LANES, t * LANES + 1, ...


@dataclass(frozen=True)
class _Slice:
    """A box on one rank's track; `start` and `end` in whole nanoseconds, the format's resolution."""

    rank: int
    track: str
    name: str
    kind: str
    start: int
    end: int
    args: Mapping[str, object]
    flow: int | None = None


def chrome_text(trace: Trace) -> str:
    """The whole file as text, strict JSON.

    Raises ValueError when an event has a time that is not a finite number.
    """
    content = {"traceEvents": chrome_events(trace), "displayTimeUnit": "ms", "otherData": {"world": trace.world}}
    return json.dumps(content, allow_nan=False, separators=(",", ":"))


def chrome_events(trace: Trace) -> list[dict]:
    """Events with the format's own keys: ph "X" boxes, ph "s" and "f" ends of arrows, ph "M" names of tracks."""
    by_track: dict[tuple[int, int], list[_Slice]] = defaultdict(list)
    for box in _slices(trace):
        by_track[box.rank, TRACKS.index(box.track)].append(box)

    events: list[dict] = []
    for rank in range(trace.ranks):
        events.append(_name("process_name", rank, 0, name=f"rank {rank}"))
        events.append(_name("process_sort_index", rank, 0, sort_index=rank))
    for (rank, track), boxes in sorted(by_track.items()):
        for lane, nested in enumerate(_lanes(boxes)):
            thread = track * LANES + lane
            events.append(_name("thread_name", rank, thread, name=TRACKS[track]))
            events.append(_name("thread_sort_index", rank, thread, sort_index=thread))
            for box in nested:
                events += _box_events(box, thread)
    return events


def _slices(trace: Trace) -> list[_Slice]:
    boxes = []
    for s in trace.spans:
        args = {"micro_batch": s.micro_batch, "bytes": s.bytes, **{k: _plain(v) for k, v in s.detail.items()}}
        args = {key: value for key, value in args.items() if value is not None}
        start, end = _nanoseconds(s.start, s.name), _nanoseconds(s.end, s.name)
        boxes.append(_Slice(s.rank, TRACKS[min(s.stream, 1)], s.name, s.kind, start, end, args))
    for number, m in enumerate(trace.messages):
        start, end = _nanoseconds(m.sent, "message"), _nanoseconds(m.received, "message")
        end = max(end, start + 1)  # an arrow needs a box that is open for a moment
        args = {"src": m.src, "dst": m.dst, "bytes": m.bytes}
        boxes.append(_Slice(m.src, SENT, f"to {m.dst}", "message", start, end, args, number))
        boxes.append(_Slice(m.dst, RECEIVED, f"from {m.src}", "message", start, end, args, number))
    return boxes


def _lanes(boxes: Sequence[_Slice]) -> list[list[_Slice]]:
    """Spread boxes so that in each lane any two are nested or apart, which is all the format can show."""
    lanes: list[tuple[list[_Slice], list[_Slice]]] = []  # all boxes of a lane, and those still open
    for box in sorted(boxes, key=lambda b: (b.start, -b.end)):
        for _, still_open in lanes:
            while still_open and still_open[-1].end <= box.start:
                still_open.pop()
        free = [lane for lane in lanes if not lane[1] or box.end <= lane[1][-1].end]
        if not free:
            free = [([], [])]
            lanes += free
        for boxes_of_lane in free[0]:
            boxes_of_lane.append(box)
    return [all_boxes for all_boxes, _ in lanes]


def _box_events(box: _Slice, thread: int) -> list[dict]:
    where = {"pid": box.rank, "tid": thread}
    events = [
        {"ph": "X", "name": box.name, "cat": box.kind, "ts": box.start / 1e3, "dur": (box.end - box.start) / 1e3}
        | where
        | {"args": dict(box.args)}
    ]
    arrow = {"name": "message", "cat": "message", "id": box.flow} | where
    if box.track == SENT:
        events.append({"ph": "s", "ts": box.start / 1e3} | arrow)
    elif box.track == RECEIVED:
        events.append({"ph": "f", "bp": "e", "ts": (box.end - 1) / 1e3} | arrow)
    return events


def _name(what: str, rank: int, thread: int, **args: object) -> dict:
    return {"ph": "M", "name": what, "pid": rank, "tid": thread, "args": args}


def _nanoseconds(seconds: float, name: str) -> int:
    if not math.isfinite(seconds):
        raise ValueError(
            f"An event of {name!r} has the time {seconds}, which no trace file can hold; times are finite."
        )
    return round(seconds * 1e9)


def _plain(value: object) -> object:
    """What JSON can hold as it is, and the text of everything else (a NaN too)."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
