"""Numbers that develop over epochs, one line for each run.

Floor 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator, PercentFormatter

from lockstep.viz.figure import BLUE, GREEN, ORANGE, PURPLE, VERMILLION, Figure, our_style

LOOKS = (  # colour, mark, line; the first marks are hollow and large, so that a line on top of it hides nothing
    {"color": BLUE, "marker": "o", "linestyle": "-", "markersize": 11, "fillstyle": "none", "markeredgewidth": 1.8},
    {"color": VERMILLION, "marker": "s", "linestyle": "--", "markersize": 5},
    {"color": GREEN, "marker": "^", "linestyle": ":", "markersize": 7},
    {"color": ORANGE, "marker": "D", "linestyle": "-.", "markersize": 6},
    {"color": PURPLE, "marker": "v", "linestyle": "-", "markersize": 7},
)
FEW, APART = 12, 0.05  # points that are set apart, by that share of a step, so that no mark hides another


def curves(
    panels: Mapping[str, Mapping[str, Sequence[float]]], title: str, along: str = "epoch", shares: Sequence[str] = ()
) -> Figure:
    """Draw a panel for each quantity, in it a line for each run, from 1 on along the axis.

    panels: quantity -> run -> its numbers. shares: the quantities that are shown in percent. Raises ValueError for
    more runs than there are looks, five.
    """
    runs = list(dict.fromkeys(run for lines in panels.values() for run in lines))
    if len(runs) > len(LOOKS):
        raise ValueError(f"there are {len(runs)} runs; the figure can tell {len(LOOKS)} apart.")
    looks = dict(zip(runs, LOOKS, strict=False))
    with our_style():
        canvas = Canvas(figsize=(9.4, 3.6))
        canvas.text(0.01, 0.98, title, va="top", fontsize=11.5, fontweight="bold")
        axes = canvas.subplots(1, len(panels), squeeze=False)[0]
        canvas.subplots_adjust(left=0.07, right=0.99, top=0.78, bottom=0.13, wspace=0.2)
        for axis, (quantity, lines) in zip(axes, panels.items(), strict=True):
            for number, (run, values) in enumerate(lines.items()):
                aside = APART * (number - (len(lines) - 1) / 2) if len(values) <= FEW else 0.0
                axis.plot([at + aside for at in range(1, len(values) + 1)], values, label=run, **looks[run])
            axis.set(xlabel=along, ylabel=quantity)
            _begin_at_zero(axis, quantity)
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
            if quantity in shares:
                axis.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
            axis.grid(alpha=0.4)
        handles, labels = axes[0].get_legend_handles_labels()
        canvas.legend(handles, labels, loc="upper left", bbox_to_anchor=(0.005, 0.92), ncols=len(runs), frameon=False)
    return Figure(
        canvas, f"{title}. " + " ".join(_words(name, lines, name in shares) for name, lines in panels.items())
    )


def _begin_at_zero(axis: Axes, quantity: str) -> None:
    """Where what is not shown would be more than half of the axis, the label says that it does not begin at 0."""
    lowest, highest = axis.dataLim.intervaly
    if 0 <= lowest < highest / 2:
        axis.set_ylim(bottom=0)
    elif lowest > 0:
        axis.set_ylabel(f"{quantity} (axis not from 0)")


def _words(quantity: str, lines: Mapping[str, Sequence[float]], share: bool) -> str:
    def one(value: float) -> str:
        return f"{value:.1%}" if share else f"{value:.3g}"

    said = (f"{run} {', '.join(map(one, values))}" for run, values in lines.items())
    return f"{quantity.capitalize()}: {'; '.join(said)}."
