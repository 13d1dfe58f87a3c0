"""A pipeline step as it was predicted and as it was measured, one above the other in each rank's row.

Floor 3, room `viz`; read `gantt` first, whose boxes these are. `measured_step` finds a step of a pipeline in a run's
trace.
"""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure as Canvas

from lockstep.parallel.pipeline import Schedule, Timing
from lockstep.parallel.pipeline.schedule import NAMES
from lockstep.parallel.pipeline.timing import Event
from lockstep.trace import Trace
from lockstep.trace.units import show_seconds, show_share
from lockstep.viz.figure import QUIET, Figure, our_style
from lockstep.viz.gantt import WIDTH, draw_events, frame, legend

LEFT, RIGHT = 0.62, 1.9  # inches for names, and for the shares beside a rank
ROW = 0.62  # inches of a rank: predicted above, measured below


def measured_step(schedule: Schedule, run: Any) -> tuple[Event, ...]:
    """The step of median length among those that a run has recorded: every action with its times, from 0.

    run: a `Run` of `Pipeline.step`, or its `Trace`. Raises ValueError when it holds no whole step of `schedule`.
    """
    trace = getattr(run, "trace", run)
    steps = [_events(schedule, trace, number) for number in range(_steps(schedule, trace))]
    if not steps:
        raise ValueError(f"this run holds no step of {schedule.name}: did `Pipeline.step` run, with this schedule?")
    steps.sort(key=_length)
    chosen = steps[(len(steps) - 1) // 2]
    origin = min(event.start for event in chosen)
    return tuple(Event(e.rank, e.item, e.start - origin, e.end - origin) for e in chosen)


def idle_shares(events: tuple[Event, ...], ranks: int) -> list[float]:
    """By rank, the share of the time from the first start to the last end in which it does none of `events`."""
    busy = [sum(e.end - e.start for e in events if e.rank == rank) for rank in range(ranks)]
    return [1 - time / _length(events) for time in busy]


def predicted_and_measured(schedule: Schedule, timing: Timing, run: Any, title: str = "A step") -> Figure:
    """Draw `timing`, a simulation of `schedule` in seconds, above what was measured in `run`, rank by rank.

    Of the run it is the step of median length. Raises as `measured_step`.
    """
    measured, world = measured_step(schedule, run), getattr(run, "trace", run).world
    word = {"processes": "measured"}.get(world, world)
    longest = max(timing.makespan, _length(measured))
    unit, by = ("ms", 1e3) if longest < 1 else ("s", 1.0)
    predicted = [Event(e.rank, e.item, e.start * by, e.end * by) for e in timing.events]
    shown = [Event(e.rank, e.item, e.start * by, e.end * by) for e in measured]
    shares = list(timing.bubble), idle_shares(measured, schedule.ranks)
    lead = f"predicted {show_seconds(timing.makespan)}, {word} {show_seconds(_length(measured))}"
    with our_style():
        tall = 1.1 + ROW * schedule.ranks
        canvas = Canvas(figsize=(WIDTH, tall))
        canvas.text(0.1 / WIDTH, 1 - 0.1 / tall, f"{title}: {lead}", va="top", fontsize=12, fontweight="bold")
        kinds = [kind for kind in NAMES if any(part.kind == kind for part in schedule.parts())]
        legend(canvas, kinds, 1 - 0.32 / tall)
        box = (LEFT / WIDTH, 0.42 / tall, (WIDTH - LEFT - RIGHT) / WIDTH, ROW * schedule.ranks / tall)
        axes = canvas.add_axes(box)
        inches = (WIDTH - LEFT - RIGHT) / (longest * by)
        draw_events(axes, predicted, schedule, inches, ROW, top=0.08, height=0.4, faded=True)
        draw_events(axes, shown, schedule, inches, ROW, top=0.5, height=0.4)
        frame(axes, schedule.ranks, longest * by, last=True)
        axes.set_xlabel(f"time since the first action ({unit})", fontsize=8.5, labelpad=2)
        for rank in range(schedule.ranks):
            for y, name, share in ((0.28, "predicted", shares[0]), (0.7, word, shares[1])):
                said = f"{name}: idle {show_share(share[rank])}"
                color = QUIET if name == "predicted" else "black"
                axes.text(
                    1.015, rank + y, said, transform=axes.get_yaxis_transform(), va="center", fontsize=8.5, color=color
                )
    idle = "; ".join(
        f"rank {r} idle {show_share(shares[0][r])} predicted, {show_share(shares[1][r])} {word}"
        for r in range(schedule.ranks)
    )
    return Figure(canvas, f"{title}: {lead}. {idle}.")


def _steps(schedule: Schedule, trace: Trace) -> int:
    """How many whole steps the trace holds."""
    if trace.ranks != schedule.ranks:
        return 0
    counts = [len(_own(trace, rank)) // len(schedule.parts(rank)) for rank in range(schedule.ranks)]
    return min(counts)


def _events(schedule: Schedule, trace: Trace, number: int) -> tuple[Event, ...]:
    events = []
    for rank in range(schedule.ranks):
        row = schedule.parts(rank)
        spans = _own(trace, rank)[number * len(row) :]
        events += [Event(rank, part, span.start, span.end) for part, span in zip(row, spans, strict=False)]
    return tuple(events)


def _own(trace: Trace, rank: int) -> list[Any]:
    names = set(NAMES.values())
    return [span for span in trace.spans if span.rank == rank and span.kind == "compute" and span.name in names]


def _length(events: tuple[Event, ...]) -> float:
    return max(event.end for event in events) - min(event.start for event in events)
