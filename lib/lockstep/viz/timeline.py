"""The timeline of a run: one row per rank, a box for everything that took time, an arrow per message.

Floor 3. `timeline` is the figure, `timeline_player` its moving twin; both draw one `Chart`
(`viz/chart.py`, `viz/drawing.py`). What is drawn follows `lockstep.trace.measures`: computation where a rank
computes, communication where a transfer moves, pale grey where it is blocked and nothing moves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from matplotlib.figure import Figure as Canvas
from PIL import Image, ImageDraw

from lockstep.trace import Trace, usage
from lockstep.trace.measures import Usage
from lockstep.trace.units import show_bytes, show_seconds, show_share
from lockstep.viz.chart import Chart, plan
from lockstep.viz.drawing import AIR, LINES, draw
from lockstep.viz.figure import INK, SCREEN, Figure, pixels, small_png
from lockstep.viz.player import Frame, Player

WORLDS = {"simulated": "simulated", "processes": "measured", "paced": "paced"}
FRAME_SCALE, FRAME_COLORS = 0.9, 24  # frames are many, and have to be small
LISTED = 16  # more ranks than this are summed up in the text alternative


def timeline(run: Any, title: str | None = None, compare: Any = None, labels: tuple[str, str] | None = None) -> Figure:
    """Draw when each rank computed, communicated and waited; all rows share one time axis.

    run, compare: a `Run` or a `Trace`; each rank of `compare` gets a row under the same rank of `run`
    (predicted against measured). Each trace begins at its own first event.
    labels: what to call the two; their worlds ("simulated", "measured", "paced") if not given.

    Boxes carry the micro-batch, or the name, where it fits. Messages are arrows up to 60 of them, thin
    lines up to 250, and beyond that only counted. Raises TypeError when `run` has no trace, ValueError when `labels`
    has fewer names than there are timelines.
    """
    chart, alt = _chart(run, title, compare, labels)
    return Figure(draw(chart), alt)


def timeline_player(
    run: Any,
    title: str | None = None,
    compare: Any = None,
    labels: tuple[str, str] | None = None,
    frames: int = 12,
) -> Player:
    """The same figure with a slider for the time: what had happened after 1/12, 2/12, ... of the run.

    Nothing plays until the reader presses play. Where no widgets are shown (GitHub, a printout, plain
    Python) the last frame stands in its place, which is the whole timeline. Raises what `timeline` raises, and
    ValueError for fewer than 2 frames.
    """
    if frames < 2:
        raise ValueError(f"frames is {frames}; a player needs at least 2.")
    chart, alt = _chart(run, title, compare, labels)
    whole, before = draw(chart), draw(chart, rows_only=True)
    times = [chart.seconds * k / frames for k in range(1, frames + 1)]
    made = tuple(
        Frame(small_png(image, FRAME_COLORS), f"After {show_seconds(time)}: {_at(chart, time)}", show_seconds(time))
        for time, image in zip(times, _curtain(whole, before, frames), strict=True)
    )
    return Player(made, alt, round(whole.get_figwidth() * SCREEN))


def _curtain(whole: Canvas, before: Canvas, frames: int) -> Iterator[Image.Image]:
    """The finished figure left of the present moment, the empty one right of it: two drawings make all frames."""
    done, empty = pixels(whole, FRAME_SCALE), pixels(before, FRAME_SCALE)
    (axes,) = whole.axes
    width, height = done.size
    place = axes.get_position()
    top, bottom = round(height * (1 - place.y1)), round(height * (1 - place.y0))
    for k in range(1, frames + 1):
        now = round(width * (place.x0 + place.width / AIR * k / frames))
        image = done.copy()
        right = (now, top, round(width * place.x1) + 1, bottom)
        image.paste(empty.crop(right), right)
        ImageDraw.Draw(image).line([(now, top), (now, bottom)], fill=INK, width=1)
        yield image


def _chart(run: Any, title: str | None, compare: Any, labels: tuple[str, str] | None) -> tuple[Chart, str]:
    traces = [_trace(run)] + ([] if compare is None else [_trace(compare)])
    worlds = [WORLDS.get(trace.world, trace.world) for trace in traces]
    if labels is None:
        labels = ("first", "second") if len(set(worlds)) < len(worlds) else tuple(worlds)
    if len(labels) < len(traces):
        raise ValueError(f"labels is {labels!r}, for {len(traces)} timelines: give one name for each.")
    world = worlds[0] if len(set(worlds)) == 1 else " against ".join(worlds)
    heading = f"{title or 'Timeline'} ({world})"
    names = list(labels) if len(traces) > 1 else [""]
    used = [usage(trace) for trace in traces]
    notes = [_note(*one) for one in zip(traces, names, used, strict=False)]
    chart = plan(traces, names, heading, notes, used)
    alt = " ".join([f"{heading}.", *(_words(*one) for one in zip(traces, names, used, strict=False))])
    return chart, alt


def _trace(run: Any) -> Trace:
    trace = getattr(run, "trace", run)
    if not isinstance(trace, Trace):
        raise TypeError(f"timeline() draws a Run or a Trace, not a {type(run).__name__}.")
    return trace


def _span_of_time(trace: Trace) -> float:
    first, last = trace.window
    return last - first


def _note(trace: Trace, name: str, parts: Sequence[Usage]) -> str:
    """The line under the title."""
    counted = len(trace.messages)
    note = [f"{name}: {show_seconds(_span_of_time(trace))}" if name else show_seconds(_span_of_time(trace))]
    if parts and _span_of_time(trace) > 0:
        for what, part in (("computing", "computing"), ("exposed communication", "exposed"), ("idle", "idle")):
            note.append(f"{what} {show_share(sum(u.share(part) for u in parts) / len(parts))}")
    if counted:
        hidden = "" if counted <= LINES else " (too many to draw)"
        noun = "message" if counted == 1 else "messages"
        note.append(f"{counted:,} {noun}{hidden}, {show_bytes(sum(m.bytes for m in trace.messages))}")
    return "  ·  ".join(note)


def _words(trace: Trace, name: str, parts: Sequence[Usage]) -> str:
    """The trace in words, with its numbers."""
    ranks = f"{trace.ranks} rank{'s' * (trace.ranks != 1)}"
    lead = f"{name}: {ranks}" if name else ranks
    if _span_of_time(trace) == 0:
        return f"{lead}; nothing that was recorded took any time."
    said = [f"{lead} over {show_seconds(_span_of_time(trace))}."]
    if len(parts) <= LISTED:
        for u in parts:
            shares = ", ".join(
                f"{what} {show_share(u.share(part))}"
                for what, part in (("computes", "computing"), ("exposed communication", "exposed"), ("idle", "idle"))
            )
            said.append(f"Rank {u.rank}: {shares}.")
    else:
        for what, part in (("Computing", "computing"), ("Exposed communication", "exposed"), ("Idle", "idle")):
            low, high = min(parts, key=lambda u: u.share(part)), max(parts, key=lambda u: u.share(part))
            least, most = show_share(low.share(part)), show_share(high.share(part))
            mean = show_share(sum(u.share(part) for u in parts) / len(parts))
            spread = f" on average, from {least} (rank {low.rank}) to {most} (rank {high.rank})"
            said.append(f"{what}: {mean}{' on every rank' if least == most else spread}.")
    if trace.messages:
        said.append(f"{len(trace.messages):,} messages, {show_bytes(sum(m.bytes for m in trace.messages))} in all.")
    names = Counter(s.name if s.kind in ("compute", "collective", "other") else s.kind for s in trace.spans)
    if names:
        said.append("Spans: " + ", ".join(f"{count} {label}" for label, count in names.most_common(6)) + ".")
    return " ".join(said)


def _at(chart: Chart, time: float) -> str:
    """What each row shows at `time`, in words."""
    doing = []
    for band in chart.bands:
        box = next((b for b in band.boxes if b.start < time <= b.end), None)
        if box is not None or band.stream == 0:
            doing.append(f"{band.name} {box.said if box else 'idle'}")
    return ", ".join(doing[:LISTED]) + (f" and {len(doing) - LISTED} more rows" if len(doing) > LISTED else "")
