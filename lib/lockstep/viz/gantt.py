"""The Gantt chart of a pipeline schedule: who does what when, with the bubble and what is in flight beside each rank.

Floor 3, room `viz`. `gantt` draws one schedule or several under one another on one time axis; `predicted` and
`pipeline_explorer` draw with its boxes. A box carries its micro-batch. Where a rank has several chunks, later ones are
paler.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch, Rectangle

from lockstep.parallel.pipeline import Schedule, Timing
from lockstep.parallel.pipeline.schedule import NAMES, Action
from lockstep.parallel.pipeline.timing import Costs, Event
from lockstep.trace.units import show_share
from lockstep.viz.figure import BLUE, GREEN, PURPLE, QUIET, SKY, YELLOW, Figure, our_style
from lockstep.viz.labels import write_labels

WIDTH = 9.4  # inches
LOOKS = {"F": (SKY, ""), "B": (GREEN, "//"), "I": (YELLOW, ".."), "W": (PURPLE, "\\\\")}
ROW = (0.13, 0.3)  # inches of a rank, at least and at most
TALL = 5.5  # inches that all ranks together should fill
HEAD = 0.3  # inches above each schedule
HEAD_ROOM = 0.62  # inches for title and legend
LEFT, RIGHT = 0.62, 2.0  # inches for names, and for the numbers beside a rank
Color = tuple[float, ...]
Corners = tuple[tuple[float, float], ...]
LISTED = 16  # ranks whose numbers the text alternative gives one by one


def gantt(
    schedules: Schedule | Mapping[str, Schedule],
    title: str = "Schedules",
    forward: Costs = 1,
    backward: Costs = 2,
    input_gradient: Costs = 1,
    weight_gradient: Costs = 1,
    transfer: Costs = 0,
) -> Figure:
    """Draw when each rank does what if actions take these times; schedules share one time axis.

    schedules: one by itself, or by the name to show, to be compared. Beside each rank stand its idle share of the
    makespan and the most that it has in flight. By name, one of v chunks a rank is drawn with costs divided by v, and a
    chunk in flight counts a v-th of a stage, so that models are equal whatever the schedule; by itself, costs are those
    of a chunk. Raises InvalidSchedule for a schedule that cannot be run, ValueError for none.
    """
    alone = isinstance(schedules, Schedule)
    known = {schedules.name: schedules} if alone else dict(schedules)
    costs = forward, backward, input_gradient, weight_gradient
    timings = {
        name: each.simulate(*(cost if alone else _share(cost, each) for cost in costs), transfer)
        for name, each in known.items()
    }
    held = {name: [n / (1 if alone else _chunks(known[name])) for n in t.in_flight] for name, t in timings.items()}
    if not known:
        raise ValueError("there is no schedule to draw: give one, or several by name")
    with our_style():
        canvas = _draw(known, timings, held, f"{title} (simulated)", "most in flight" if alone else "stages in flight")
    said = " ".join(_words(name, known[name], timings[name]) for name in known)
    return Figure(canvas, f"{title} (simulated). {said}")


def _share(cost: Costs, schedule: Schedule) -> Costs:
    """The cost of a chunk, where one number is for what a rank has in all."""
    return cost / _chunks(schedule) if isinstance(cost, (int, float)) else cost


def _chunks(schedule: Schedule) -> float:
    """Chunks a rank, on average."""
    return schedule.chunks / schedule.ranks


def _draw(
    known: Mapping[str, Schedule],
    timings: Mapping[str, Timing],
    held: Mapping[str, Sequence[float]],
    title: str,
    unit: str,
) -> Canvas:
    ranks = sum(schedule.ranks for schedule in known.values())
    row = min(ROW[1], max(ROW[0], TALL / ranks))
    tall = HEAD_ROOM + sum(HEAD + row * schedule.ranks for schedule in known.values()) + 0.45
    canvas = Canvas(figsize=(WIDTH, tall))
    canvas.text(0.1 / WIDTH, 1 - 0.1 / tall, title, va="top", fontsize=12, fontweight="bold")
    kinds = [kind for kind in LOOKS if any(part.kind == kind for s in known.values() for part in s.parts())]
    several = any(schedule.chunks > schedule.ranks for schedule in known.values())
    legend(canvas, kinds, 1 - 0.32 / tall, several)
    longest = max(timing.makespan for timing in timings.values())
    most, unit = max(map(max, held.values())), unit if several else "most in flight"
    top = HEAD_ROOM
    for place, (name, schedule) in enumerate(known.items()):
        top += HEAD
        height = row * schedule.ranks
        box = (LEFT / WIDTH, 1 - (top + height) / tall, (WIDTH - LEFT - RIGHT) / WIDTH, height / tall)
        axes = canvas.add_axes(box)
        inches = (WIDTH - LEFT - RIGHT) / longest
        draw_events(axes, timings[name].events, schedule, inches, row)
        frame(axes, schedule.ranks, longest, last=place == len(known) - 1)
        axes.text(0, -0.2, _head(name, timings[name]), fontsize=9, va="bottom", fontweight="bold")
        _beside(axes, timings[name].bubble, held[name], most, row, unit if place == 0 else "")
        top += height
    return canvas


def legend(canvas: Canvas, kinds: Sequence[str], top: float, several: bool = False) -> None:
    """What the boxes are; `top` as a share of the figure's height."""
    handles = [
        Patch(facecolor=LOOKS[k][0], hatch=LOOKS[k][1], edgecolor=_darker(LOOKS[k][0]), linewidth=0, label=NAMES[k])
        for k in kinds
    ]
    if several:
        handles.append(Patch(facecolor=_pale(SKY, 1, 2), edgecolor=QUIET, linewidth=0.5, label="paler: a later chunk"))
    canvas.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(0.02 / WIDTH, top), ncols=5, frameon=False, fontsize=8.5,
        handlelength=1.9, columnspacing=1.4, borderaxespad=0.2,
    )  # fmt: skip


def frame(axes: Axes, rows: int, longest: float, last: bool) -> None:
    """Rank names, a light grid, and numbers on the time axis of the lowest panel only."""
    axes.set_xlim(0, longest)
    axes.set_ylim(rows, 0)
    axes.set_yticks([r + 0.5 for r in range(rows)], [f"rank {r}" for r in range(rows)], fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", length=3 if last else 0, labelbottom=last, labelsize=8.5)
    axes.grid(axis="x", color="#D9D9D9", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    if last:
        axes.set_xlabel("time (units)", fontsize=8.5, labelpad=2)


def draw_events(
    axes: Axes,
    events: Sequence[Event],
    schedule: Schedule,
    inches: float,
    row: float,
    top: float = 0.06,
    height: float = 0.88,
    faded: bool = False,
) -> None:
    """A box for each event in its rank's row, from `top` in shares of the row; an overlap's parts lie one over the other.

    inches: of a unit of time; row: of a rank's height. faded: as pale as a later chunk.
    """
    boxes: dict[tuple[Color, str], list[Corners]] = defaultdict(list)  # those of one look are drawn at once
    plain: dict[Color, list[Corners]] = defaultdict(list)  # places for numbers on hatches
    labels: dict[tuple[str, float], list[tuple[float, float]]] = defaultdict(list)
    digits = len(str(schedule.micro_batches - 1))
    for event in events:
        parts = event.item.parts
        for at, part in enumerate(parts):
            low, high = (event.rank + top + k * height / len(parts) for k in (at, at + 1))
            number, of = _chunk_on_rank(part, schedule)
            color, hatch = LOOKS[part.kind]
            face = _pale(color, number + faded, of + faded)
            boxes[face, hatch].append(_corners(event.start, event.end, low, high))
            wide = ((event.end - event.start) * inches * 72 - 1.5) / (0.7 * digits)  # points, for the longest label
            size = min(8.5, 62 * row * (high - low), wide)
            if size >= 5:
                x, y, label = (event.start + event.end) / 2, (low + high) / 2, str(part.micro_batch)
                labels[label, round(size, 1)].append((x, y))
                across, up = 0.36 * size * len(label) / 72 / inches, 0.5 * size / 72 / row
                plain[face] += [_corners(x - across, x + across, y - up, y + up)] if hatch else []
    for (face, hatch), corners in boxes.items():
        dark = _darker(face)
        axes.add_collection(PolyCollection(corners, facecolor=face, edgecolor=dark, hatch=hatch, linewidth=0, zorder=2))
        axes.add_collection(PolyCollection(corners, facecolor="none", edgecolor="white", linewidth=0.7, zorder=2.2))
    for face, corners in plain.items():
        axes.add_collection(PolyCollection(corners, facecolor=face, linewidth=0, zorder=2.4))
    write_labels(axes, labels)


def _corners(left: float, right: float, low: float, high: float) -> Corners:
    return ((left, low), (right, low), (right, high), (left, high))


def _chunk_on_rank(part: Action, schedule: Schedule) -> tuple[int, int]:
    """Which of its rank's chunks it works on, and how many those are."""
    if schedule.chunks == schedule.ranks:
        return 0, 1
    rank = schedule.placement[part.chunk]
    own = [chunk for chunk, at in schedule.placement.items() if at == rank]
    return own.index(part.chunk), len(own)


def _beside(
    axes: Axes, bubble: Sequence[float], in_flight: Sequence[float], most: float, row: float, unit: str
) -> None:
    """Idle share as a number, in flight as a bar with its number; `unit` heads the column, "" for no heads."""
    beside, size = axes.get_yaxis_transform(), max(6.5, min(8.5, 60 * row))
    for rank, (idle, held) in enumerate(zip(bubble, in_flight, strict=True)):
        axes.text(1.075, rank + 0.5, show_share(idle), transform=beside, ha="right", va="center", fontsize=size)
        width = 0.13 * held / most
        axes.add_patch(
            Rectangle((1.11, rank + 0.2), width, 0.6, transform=beside, facecolor=BLUE, edgecolor="none", clip_on=False)
        )
        axes.text(1.115 + width, rank + 0.5, f"{held:g}", transform=beside, ha="left", va="center", fontsize=size)
    if unit:
        for x, said, side in ((1.075, "idle", "right"), (1.11, unit, "left")):
            axes.text(x, -0.2, said, transform=beside, ha=side, va="bottom", fontsize=8, color=QUIET)


def _head(name: str, timing: Timing) -> str:
    mean = sum(timing.bubble) / len(timing.bubble)
    return f"{name}: makespan {timing.makespan:g}, bubble {show_share(mean)}"


def _words(name: str, schedule: Schedule, timing: Timing) -> str:
    said = f"{_head(name, timing)}; {schedule.ranks} ranks, {schedule.micro_batches} micro-batches"
    if schedule.chunks > schedule.ranks:
        said += f", {schedule.chunks} chunks"
    if schedule.ranks > LISTED:
        return f"{said}; at most {max(timing.in_flight)} in flight."
    held, unit = ", ".join(map(str, timing.in_flight)), "chunks " * (schedule.chunks > schedule.ranks)
    idle = ", ".join(map(show_share, timing.bubble))
    return f"{said}; most {unit}in flight by rank {held}; idle by rank {idle}."


def _pale(color: str | Color, number: int, of: int) -> Color:
    """The colour of chunk `number` of `of`: the first is full."""
    white = 0.55 * number / max(1, of - 1)
    return tuple(c + (1 - c) * white for c in to_rgb(color))


def _darker(color: str | Color) -> Color:
    """For hatches: the same colour, visible on itself."""
    return tuple(0.72 * c for c in to_rgb(color))
