"""One step several times, one above the other: what a rank computes, what it sends, and what the step had to wait for.

Floor 3, room `viz`; read `lockstep.trace.measures` first, which says what counts as hidden.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from lockstep.trace import Message, Span, Trace, critical_path, overlap_share
from lockstep.trace.intervals import Intervals, intersect, length, subtract
from lockstep.trace.measures import computing, transfers
from lockstep.trace.units import show_number, show_share
from lockstep.viz.figure import INK, ORANGE, QUIET, SKY, VERMILLION, Figure, our_style

WIDTH = 9.4  # inches
LEFT, RIGHT = 2.0, 2.05  # inches for names, and for the numbers beside a run
ROW, GAP, TOP, BOTTOM = 0.2, 0.2, 0.78, 0.45  # inches
ROWS = ("rank {rank} computes", "rank {rank} sends", "critical path")
WORLDS = {"processes": "measured"}
UNITS = {"ms": 1e3, "s": 1.0}  # in a second; one of them for all numbers of a figure, so that they can be compared
LOOKS = {
    "computing": {"color": SKY},
    "communication, hidden": {"color": ORANGE, "hatch": "xx"},
    "communication, exposed": {"color": VERMILLION, "hatch": "//"},
}


@dataclass(frozen=True)
class _Step:
    """One run's rows, as intervals in seconds since its first event."""

    name: str
    rank: int
    seconds: float
    rows: tuple[dict[str, Intervals], ...]
    share: float | None
    exposed: float
    on_path: float
    predicted: float | None


def step_timelines(
    runs: Mapping[str, Any], title: str = "A step", predicted: Mapping[str, float] | None = None, rank: int = 0
) -> Figure:
    """Draw runs of one step (`Run` or `Trace`) by name, each with three rows of `rank`; all share one time axis.

    The third row is the critical path of the whole run, whoever is on it. predicted: seconds by name, drawn as a dashed
    line. Raises ValueError when there is no run, a name in `predicted` is none, or a run took no time.
    """
    if not runs or set(predicted or ()) - set(runs):
        raise ValueError(f"there are the runs {list(runs)} and predictions for {list(predicted or ())}")
    steps = [_step(name, getattr(run, "trace", run), rank, (predicted or {}).get(name)) for name, run in runs.items()]
    worlds = {WORLDS.get(world, world) for world in (getattr(run, "trace", run).world for run in runs.values())}
    heading = f"{title} ({' and '.join(sorted(worlds))})"
    longest = max(max(step.seconds, step.predicted or 0.0) for step in steps)
    unit = "ms" if longest < 1 else "s"
    by = UNITS[unit]
    block = ROW * len(ROWS) + GAP
    tall = TOP + block * len(steps) + BOTTOM
    with our_style():
        canvas = Canvas(figsize=(WIDTH, tall))
        canvas.text(0.1 / WIDTH, 1 - 0.1 / tall, heading, va="top", fontsize=12, fontweight="bold")
        handles = [
            Patch(facecolor=look["color"], hatch=look.get("hatch"), edgecolor=INK, linewidth=0.6, label=label)
            for label, look in LOOKS.items()
        ]
        if predicted:
            handles.append(Line2D([], [], color=INK, linestyle="--", linewidth=1.2, label="predicted end"))
        canvas.legend(
            handles=handles, loc="upper left", bbox_to_anchor=(0.02 / WIDTH, 1 - 0.36 / tall), ncols=4, frameon=False,
            fontsize=8.5, borderaxespad=0.2,
        )  # fmt: skip
        size = ((WIDTH - LEFT - RIGHT) / WIDTH, block * len(steps) / tall)
        axes = canvas.add_axes((LEFT / WIDTH, BOTTOM / tall, *size))
        for place, step in enumerate(steps):
            _draw(axes, step, place * block, unit)
        axes.set_xlim(0, longest * by * 1.01)
        axes.set_ylim(block * len(steps) - GAP / 2, -GAP / 2)
        axes.set_yticks([])
        axes.grid(axis="x", color="#D9D9D9", linewidth=0.6)
        axes.set_axisbelow(True)
        for side in ("top", "left", "right"):
            axes.spines[side].set_visible(False)
        axes.set_xlabel(f"time since the step began ({unit})", fontsize=8.5, labelpad=2)
    return Figure(canvas, " ".join([f"{heading}.", *(_words(step, unit) for step in steps)]))


def _step(name: str, trace: Trace, rank: int, predicted: float | None) -> _Step:
    first, last = trace.window
    if not 0 <= rank < trace.ranks or last <= first:
        raise ValueError(
            f"{name!r} is a run of {trace.ranks} ranks over {last - first:g} s: there is no step of rank {rank}"
        )
    work, moving = computing(trace)[rank], transfers(trace)[rank]
    path: dict[str, Intervals] = {"computing": [], "communication, hidden": [], "communication, exposed": []}
    for event in critical_path(trace):
        computes = isinstance(event, Span) and event.kind != "collective"
        when = (event.sent, event.received) if isinstance(event, Message) else (event.start, event.end)
        path["computing" if computes else "communication, exposed"].append(when)
    begins = sorted(span.start for span in trace.spans if span.rank == rank and span.kind == "collective")
    hidden, exposed = (_cut(times, begins) for times in (intersect(moving, work), subtract(moving, work)))
    rows = ({"computing": work}, {"communication, hidden": hidden, "communication, exposed": exposed}, path)
    moved = tuple({look: [(a - first, b - first) for a, b in times] for look, times in row.items()} for row in rows)
    on_path = length(path["communication, exposed"])
    return _Step(name, rank, last - first, moved, overlap_share(trace), length(exposed), on_path, predicted)


def _cut(times: Intervals, at: list[float]) -> Intervals:
    """The intervals, divided where another collective begins, so that each bucket has a box."""
    found: Intervals = []
    for begin, end in times:
        points = [begin, *(time for time in at if begin < time < end), end]
        found += zip(points, points[1:], strict=False)
    return found


def _draw(axes: Axes, step: _Step, top: float, unit: str) -> None:
    """`top`: inches from the upper edge. Names on the left, numbers on the right."""
    by = UNITS[unit]
    for place, (label, row) in enumerate(zip(ROWS, step.rows, strict=True)):
        y = top + ROW * (place + 0.5)
        for look, times in row.items():
            for begin, end in times:
                axes.barh(
                    y, by * (end - begin), left=by * begin, height=ROW * (0.55 if place == 2 else 0.85),
                    edgecolor=INK, linewidth=0.5, **LOOKS[look],
                )  # fmt: skip
        axes.text(
            -0.01,
            y,
            label.format(rank=step.rank),
            transform=axes.get_yaxis_transform(),
            ha="right",
            va="center",
            fontsize=8,
            color=QUIET,
        )
    axes.text(
        -0.215, top + ROW * 1.5, step.name.replace(" ", "\n", 1), transform=axes.get_yaxis_transform(), ha="right",
        va="center", fontsize=9, fontweight="bold",
    )  # fmt: skip
    said = [_shown(step.seconds, unit), "", f"{_shown(step.exposed, unit)} exposed"]
    said[2] += "" if step.share is None else f", {show_share(step.share)} hidden"
    if step.predicted is not None:
        axes.plot(
            [by * step.predicted] * 2, [top - 0.04, top + ROW * 3 + 0.04], color=INK, linestyle="--", linewidth=1.2
        )
        said[1] = f"predicted {_shown(step.predicted, unit)}"
    for place, text in enumerate(said):
        weight = "bold" if place == 0 else "normal"
        axes.text(
            1.015, top + ROW * (place + 0.5), text, transform=axes.get_yaxis_transform(), va="center", fontsize=8.5,
            fontweight=weight,
        )  # fmt: skip


def _shown(seconds: float, unit: str) -> str:
    """(0.0823, "ms") -> "82.3 ms"."""
    return f"{show_number(UNITS[unit] * seconds)} {unit}"


def _words(step: _Step, unit: str) -> str:
    """One run in words, with its numbers."""
    said = f"{step.name}: {_shown(step.seconds, unit)}"
    if step.predicted is not None:
        said += f" (predicted {_shown(step.predicted, unit)})"
    if step.share is None:
        return f"{said}, nothing sent."
    return (
        f"{said}, {show_share(step.share)} of the communication hidden, {_shown(step.exposed, unit)} exposed; "
        f"{_shown(step.on_path, unit)} of the critical path is communication."
    )
