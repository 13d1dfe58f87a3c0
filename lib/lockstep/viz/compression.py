"""Training with compressed gradients: the loss against bytes, and against seconds on some links.

Floor 3, room `viz`. A *way* is one manner to exchange gradients; the first one is dense, and all others are compared
with it. `break_even` says beforehand what `loss_against` shows afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from torch import Tensor

from lockstep.trace.units import show_bytes, show_number, show_seconds
from lockstep.viz.figure import BLUE, GREEN, INK, ORANGE, PURPLE, QUIET, SKY, VERMILLION, YELLOW, Figure, our_style

WIDTH = 9.4  # inches
PLAIN = ", no feedback"  # how the name of a way ends that forgets what it did not send
MEAN_OF = 10  # steps that a loss is the mean of
LOOKS = (
    (INK, "o"),
    (BLUE, "s"),
    (VERMILLION, "^"),
    (GREEN, "D"),
    (PURPLE, "v"),
    (ORANGE, "P"),
    (SKY, "X"),
    (YELLOW, "*"),
)
BETTER = "#CFE8F7"
CLEAR = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}  # behind words on hatches


@dataclass(frozen=True)
class Training:
    """losses: of each step. step_bytes: that a rank sends in a step. step_seconds: by the name of a link."""

    losses: Sequence[float]
    step_bytes: float
    step_seconds: Mapping[str, float]

    @property
    def smooth(self) -> list[float]:
        """Of each step from the tenth on the mean loss of the last ten."""
        window = min(MEAN_OF, len(self.losses))
        return [sum(self.losses[end - window : end]) / window for end in range(window, len(self.losses) + 1)]

    def steps_to(self, target: float) -> int | None:
        """After how many steps the mean loss of ten is at most `target`; None if it never is."""
        window = min(MEAN_OF, len(self.losses))
        return next((window + at for at, loss in enumerate(self.smooth) if loss <= target), None)


def looks_of(ways: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour and mark of each way; one without feedback has those of the same way with it, dashed and hollow.

    Raises ValueError for more kinds than there are looks, eight.
    """
    kinds = list(dict.fromkeys(way.removesuffix(PLAIN) for way in ways))
    if len(kinds) > len(LOOKS):
        raise ValueError(f"there are {len(kinds)} kinds of ways; the figure can tell {len(LOOKS)} apart")
    found = {}
    for way in ways:
        color, marker = LOOKS[kinds.index(way.removesuffix(PLAIN))]
        plain = way.endswith(PLAIN)
        found[way] = {
            "color": color,
            "marker": marker,
            "linestyle": "--" if plain else "-",
            "fillstyle": "none" if plain else "full",
            "markeredgecolor": INK if color == YELLOW else color,
            "markersize": 6,
            "linewidth": 1.5,
        }
    return found


def loss_against(ways: Mapping[str, Training], target: float, title: str) -> Figure:
    """Above, the loss against bytes and against seconds on each link; below, what each way took to reach `target`.

    The first of `ways` is dense. Below, factors are those of dense; what is less is filled and bold, what is more is
    hatched. Raises ValueError without a way, or when ways have different links.
    """
    links = list(next(iter(ways.values())).step_seconds) if ways else []
    if not links or any(list(way.step_seconds) != links for way in ways.values()):
        raise ValueError(f"give some ways, each with the seconds of a step on the same links; these are {list(ways)}")
    looks = looks_of(list(ways))
    rows = {name: _row(way, target, links) for name, way in ways.items()}
    with our_style():
        above, line = 2.75, 0.235
        tall = 0.45 + above + 0.42 + line * (len(ways) + 1)
        canvas = Canvas(figsize=(WIDTH, tall))
        canvas.text(0.01, 1 - 0.24 / tall, title, fontsize=12, fontweight="bold")
        count = len(links) + 1
        for at, where in enumerate(("bytes", *links)):
            left, wide = 0.068 + at * 0.94 / count, 0.94 / count - 0.035
            axes = canvas.add_axes((left, 1 - (0.5 + above - 0.3) / tall, wide, (above - 0.42) / tall))
            _draw_panel(axes, ways, looks, None if where == "bytes" else where, target)
            if at == 0:
                axes.set_ylabel(f"training loss, mean of {MEAN_OF} steps", fontsize=8.5)
        table = canvas.add_axes((0.01, 0.005, 0.98, (line * (len(ways) + 1) + 0.28) / tall))
        _draw_table(table, rows, looks, links, target)
    return Figure(canvas, f"{title}. {_told(rows, links, target)}")


def _row(way: Training, target: float, links: Sequence[str]) -> tuple[int | None, list[float]]:
    """Steps to the target, and bytes and seconds until then, or those of the whole run if it was not reached."""
    steps = way.steps_to(target)
    return steps, [
        (steps or len(way.losses)) * each for each in (way.step_bytes, *(way.step_seconds[k] for k in links))
    ]


def _draw_panel(
    axes: Axes, ways: Mapping[str, Training], looks: Mapping[str, Any], link: str | None, target: float
) -> None:
    for name, way in ways.items():
        unit = way.step_bytes / 1e6 if link is None else way.step_seconds[link]
        losses = way.smooth
        first = len(way.losses) - len(losses) + 1
        axes.plot(
            [(first + at) * unit for at in range(len(losses))], losses, markevery=_marks(len(losses)), **looks[name]
        )
    axes.axhline(target, color=QUIET, linewidth=0.9, linestyle=":")
    if link is None:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda size, _: show_bytes(1e6 * size))
    else:
        axes.set_xlim(left=0)
    axes.set_title("bytes a rank has sent" if link is None else f"seconds, {link}", fontsize=9, loc="left")
    axes.set_ylim(bottom=0)
    axes.grid(color="#D9D9D9", linewidth=0.6)
    axes.tick_params(labelsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _marks(points: int) -> list[int]:
    """Where a line has its marks: its ends, and two in between."""
    return sorted({round(share * (points - 1)) for share in (0, 0.33, 0.67, 1)})


def _draw_table(
    axes: Axes,
    rows: Mapping[str, tuple[int | None, list[float]]],
    looks: Mapping[str, Any],
    links: Sequence[str],
    target: float,
) -> None:
    """A row for each way, whose first column is the legend of the panels."""
    axes.axis("off")
    name_wide = 3.6
    axes.set_xlim(0, name_wide + 1.0 + 2 * (len(links) + 1))
    axes.set_ylim(len(rows) + 2.15, 0)
    small = {"va": "center", "fontsize": 8.5}
    for column, words in enumerate(
        (f"steps to {target:g}", "bytes until then", *(f"seconds, {link}" for link in links))
    ):
        place = name_wide + 0.5 if column == 0 else name_wide + 2 * column
        axes.text(place, 0.5, words, ha="center", color=QUIET, **small)
    dense_steps, dense = next(iter(rows.values()))
    for row, (name, (steps, values)) in enumerate(rows.items(), 1):
        axes.add_line(Line2D([0.1, 0.45, 0.8], [row + 0.5] * 3, markevery=[1], **looks[name]))
        axes.text(0.95, row + 0.5, name, ha="left", **small)
        axes.text(name_wide + 0.5, row + 0.5, "never" if steps is None else f"{steps}", ha="center", **small)
        for column, value in enumerate(values):
            left = name_wide + 1 + 2 * column
            better = steps is not None and dense_steps is not None and value < dense[column]
            look = {"facecolor": BETTER} if better else {"facecolor": "white", "hatch": "///", "edgecolor": "#BBBBBB"}
            look = {"facecolor": "#EEEEEE"} if row == 1 else look
            axes.add_patch(Rectangle((left + 0.02, row + 0.06), 1.96, 0.88, linewidth=0, **look))
            words = _cell(steps, value, dense[column], column == 0)
            weight = "bold" if better else "normal"
            axes.text(
                left + 1,
                row + 0.5,
                words,
                ha="center",
                fontweight=weight,
                bbox=None if better or row == 1 else CLEAR,
                **small,
            )
    note = "bold on blue: less than dense; hatched: not less, or the loss was never reached"
    axes.text(0.1, len(rows) + 1.6, note, color=QUIET, **small)


def _cell(steps: int | None, value: float, dense: float, is_bytes: bool) -> str:
    if steps is None:
        return "never"
    return f"{show_bytes(value) if is_bytes else show_seconds(value)}   {show_number(value / dense)} x"


def _told(rows: Mapping[str, tuple[int | None, list[float]]], links: Sequence[str], target: float) -> str:
    _, dense = next(iter(rows.values()))
    said = []
    for name, (steps, values) in rows.items():
        if steps is None:
            said.append(f"{name}: never")
            continue
        cells = [_cell(steps, value, dense[at], at == 0).replace("   ", ", ") for at, value in enumerate(values)]
        listed = "; ".join(f"{where} {cell} dense's" for where, cell in zip(("bytes", *links), cells, strict=True))
        said.append(f"{name}: {steps} steps; {listed}")
    return f"To a loss of {target:g}: " + ". ".join(said) + "."


def recovered(vectors: Mapping[str, tuple[Tensor, Tensor]], title: str) -> Figure:
    """For each name (what was measured, what was recovered): a point for each value; what is exact lies on the line.

    Raises ValueError without a vector, and for two of different lengths.
    """
    if not vectors or any(one.shape != other.shape for one, other in vectors.values()):
        raise ValueError("give at least one pair of vectors, each of two equal lengths")
    said = []
    with our_style():
        canvas = Canvas(figsize=(WIDTH, 3.5))
        canvas.text(0.01, 0.93, title, fontsize=12, fontweight="bold")
        for at, (name, (true, found)) in enumerate(vectors.items()):
            axes = canvas.add_axes((0.075 + 0.95 * at / len(vectors), 0.14, 0.95 / len(vectors) - 0.1, 0.66))
            most = float(true.abs().max()) * 1.08 or 1.0
            axes.plot([-most, most], [-most, most], color=QUIET, linewidth=0.9, linestyle="--")
            axes.plot(
                true.flatten(), found.flatten(), "o", color=BLUE, markersize=3.5, fillstyle="none", rasterized=True
            )
            axes.set(xlim=(-most, most), ylim=(-most, most), xlabel="value", ylabel="recovered")
            error = float((true - found).norm() / true.norm().clamp(min=1e-30))
            words = f"{name}: error {error:.1%} of its length" if error >= 5e-4 else f"{name}: error below 0.05 %"
            axes.set_title(words, fontsize=9, loc="left")
            axes.tick_params(labelsize=8)
            axes.locator_params(nbins=5)
            for side in ("top", "right"):
                axes.spines[side].set_visible(False)
            said.append(
                f"{words}; {int((true != 0).sum()):,} of {true.numel():,} values are not zero, {int((found != 0).sum()):,} recovered ones are not."
            )
    return Figure(canvas, f"{title}. " + " ".join(said))
