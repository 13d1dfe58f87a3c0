"""Draws a `Chart` with matplotlib: rows of boxes on one time axis, arrows between them, legend and numbers above.

Floor 3, under `timeline`; read `chart` first.
"""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import FancyArrowPatch, Patch
from matplotlib.patheffects import withStroke

from lockstep.trace.units import show_share
from lockstep.viz.chart import BLOCKED, COLLECTIVE, COMPUTE, OTHER, RECEIVE, SEND, WAIT, Band, Box, Chart, Look
from lockstep.viz.figure import INK, QUIET, our_style
from lockstep.viz.labels import write_labels

ARROWS = 60  # more messages than this are a tangle of arrows
LINES = 250  # so many thin lines still show a pattern
WIDTH = 9.4  # inches, as wide as a notebook's output
POINTS = 72  # per inch
TALL = 5.0  # inches that the rows should fill together
ROW = (0.095, 0.42)  # inches of a row, at least and at most
AIR = 1.01  # the time axis is a little longer than the run
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def draw(chart: Chart, rows_only: bool = False) -> Canvas:
    """The chart as a matplotlib figure; with `rows_only`, as it looks before anything has happened."""
    with our_style():
        row = min(ROW[1], max(ROW[0], TALL / chart.rows))  # inches
        looks = _used(chart)
        heading = textwrap.wrap(chart.heading, 92, max_lines=2, placeholder=" …")
        legend_rows = -(-len(looks) // 6)
        above = 0.1 + 0.24 * len(heading) + 0.19 * len(chart.notes) + 0.24 * legend_rows + 0.22
        height, below = row * chart.rows, 0.52
        tall = above + height + below
        left = 0.2 + 0.068 * max((len(_row_name(chart, b)) for b in chart.bands), default=0)
        right = 0.74

        canvas = Canvas(figsize=(WIDTH, tall))
        axes = canvas.add_axes((left / WIDTH, below / tall, (WIDTH - left - right) / WIDTH, height / tall))
        scale, unit = next((u for u in UNITS if chart.seconds >= u[0]), UNITS[-1] if chart.seconds else UNITS[0])
        _frame(axes, chart, scale, unit)
        _write_top(canvas, heading, chart.notes, looks, tall)
        points = (WIDTH - left - right) * POINTS / (chart.seconds / scale * AIR or 1.0)  # per unit of time
        _write_rows(axes, chart, row * POINTS)
        if not rows_only:
            _draw_boxes(axes, chart, scale, points, row * POINTS)
            _draw_messages(axes, chart, scale)
        if chart.seconds == 0:
            axes.set_xticks([])
            said = "Nothing that was recorded took any time."
            axes.text(0.5, 0.5, said, transform=axes.transAxes, ha="center", va="center", color=QUIET, fontsize=10)
        return canvas


def _used(chart: Chart) -> list[Look]:
    """Looks in the order of the legend: computation, communication, waiting."""
    used = {box.look.label: box.look for band in chart.bands for box in band.boxes}
    last = [COLLECTIVE, SEND, RECEIVE, WAIT, OTHER, BLOCKED]
    compute = [look for look in used.values() if look not in last]
    order = [color for color, *_ in COMPUTE]
    return sorted(compute, key=lambda look: order.index(look.color)) + [look for look in last if look in used.values()]


def _frame(axes: Axes, chart: Chart, scale: float, unit: str) -> None:
    axes.set_xlim(0, chart.seconds / scale * AIR or 1.0)
    axes.set_ylim(chart.rows, -0.1)
    axes.set_yticks([])
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(axis="x", color="#D9D9D9", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(axis="x", length=3, labelsize=8.5)
    axes.set_xlabel(f"time since the first event ({unit})", fontsize=8.5, labelpad=3)


def _write_top(
    canvas: Canvas, heading: Sequence[str], notes: Sequence[str], looks: Sequence[Look], tall: float
) -> None:
    """Title, one line of numbers per trace, legend; `tall` is the figure's height in inches."""
    at = 0.1
    for line in heading:
        canvas.text(0.1 / WIDTH, 1 - at / tall, line, va="top", fontsize=12, fontweight="bold")
        at += 0.24
    for note in notes:
        canvas.text(0.1 / WIDTH, 1 - at / tall, note, va="top", fontsize=8.5, color=QUIET)
        at += 0.19
    if looks:
        handles = [
            Patch(facecolor=k.color, edgecolor=_darker(k.color), hatch=k.hatch, linewidth=0, label=k.label)
            for k in looks
        ]
        canvas.legend(
            handles=handles,
            loc="upper left",
            bbox_to_anchor=(0.02 / WIDTH, 1 - at / tall),
            ncols=min(6, len(looks)),
            frameon=False,
            fontsize=8.5,
            handlelength=1.9,
            handleheight=1.0,
            columnspacing=1.4,
            borderaxespad=0.2,
        )


def _row_name(chart: Chart, band: Band) -> str:
    """In front of a row: the rank once, and which trace if there are two."""
    if band.stream == 1:
        return ""
    return band.name if band.trace == 0 else band.name.removeprefix(f"rank {band.rank} ")


def _write_rows(axes: Axes, chart: Chart, row_points: float) -> None:
    """Names on the left, the share of time spent computing on the right; every second rank's when rows are thin."""
    size = max(6.5, min(9.0, 0.8 * row_points))
    every = 1 if row_points >= size else 2
    beside = axes.get_yaxis_transform()  # x as a share of the axes, y in rows
    place = {"transform": beside, "va": "center", "ha": "right"}
    for band in chart.bands:
        middle = band.top + band.height / 2
        if band.stream == 1:
            if band.height * row_points >= 9:
                axes.text(-0.008, middle, "beside it", fontsize=7, color=QUIET, **place)
        elif band.rank % every == 0:
            axes.text(-0.008, middle, _row_name(chart, band), fontsize=size, **place)
            if chart.seconds > 0:
                axes.text(1.055, middle, show_share(chart.computing[band.trace, band.rank]), fontsize=size, **place)
    if chart.seconds > 0:
        axes.text(1.0, -0.16, "computing", transform=beside, ha="left", va="bottom", fontsize=7.5, color=QUIET)


def _draw_boxes(axes: Axes, chart: Chart, scale: float, points: float, row_points: float) -> None:
    """Boxes of one look in one collection; those too narrow for a hatch are plain, but never vanish."""
    wide: dict[Look, list] = defaultdict(list)
    narrow: dict[Look, list] = defaultdict(list)
    labels: dict[Look, dict[tuple[str, float], list]] = defaultdict(lambda: defaultdict(list))
    for band in chart.bands:
        for box in band.boxes:
            start, end = box.start / scale, box.end / scale
            low, high = band.top, band.top + band.height
            corners = [(start, low), (end, low), (end, high), (start, high)]
            (wide if (end - start) * points >= 2.5 else narrow)[box.look].append(corners)
            if size := _label_size(box, band, (end - start) * points, row_points):
                labels[box.look][box.label, size].append(((start + end) / 2, band.top + band.height / 2))
    for look, corners in narrow.items():
        axes.add_collection(
            PolyCollection(corners, facecolor=look.color, edgecolor=look.color, linewidth=0.4, zorder=2)
        )
    for look, corners in wide.items():
        dark, wide_enough = _darker(look.color), [c for c in corners if (c[1][0] - c[0][0]) * points >= 6]
        axes.add_collection(
            PolyCollection(corners, facecolor=look.color, edgecolor=dark, hatch=look.hatch, linewidth=0, zorder=2)
        )
        axes.add_collection(PolyCollection(corners, facecolor="none", edgecolor="white", linewidth=0.3, zorder=3))
        axes.add_collection(PolyCollection(wide_enough, facecolor="none", edgecolor="white", linewidth=0.8, zorder=3))
    for look, places in labels.items():
        write_labels(axes, places, zorder=6, color=look.ink, behind=look.color if look.hatch else None)


def _label_size(box: Box, band: Band, across: float, row_points: float) -> float:
    """In points, of the label of a box that is `across` points wide; 0 where it does not fit."""
    size = min(9.0, 0.7 * band.height * row_points)
    fits = size >= 5 and box.label and across >= 0.62 * size * len(box.label) + 4
    return round(size, 1) if fits else 0.0


def _draw_messages(axes: Axes, chart: Chart, scale: float) -> None:
    rows = {b.rank: b for b in chart.bands if b.stream == 0}
    if len(chart.messages) > LINES:
        return
    lines = []
    for m in chart.messages:
        src, dst = rows[m.src], rows[m.dst]
        down = dst.top > src.top
        start = (m.sent / scale, src.top + (0.8 if down else 0.2))
        end = (m.received / scale, dst.top + (0.2 if down else 0.8))
        lines.append((start, end))
    if len(chart.messages) <= ARROWS:
        for start, end in lines:
            arrow = FancyArrowPatch(
                start, end, arrowstyle="-|>", mutation_scale=8, color=INK, linewidth=0.9, shrinkA=0, shrinkB=0, zorder=5
            )
            arrow.set_path_effects([withStroke(linewidth=2.4, foreground="white")])
            axes.add_patch(arrow)
    else:
        axes.add_collection(LineCollection(lines, colors=INK, linewidths=0.5, alpha=0.6, zorder=4))


def _darker(color: str) -> tuple[float, float, float]:
    """For hatches: the same colour, visible on itself."""
    red, green, blue = to_rgb(color)
    return red * 0.72, green * 0.72, blue * 0.72
