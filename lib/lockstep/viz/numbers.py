"""A small table of numbers as a picture: the darker a cell, the larger what stands in it.

Floor 3. For gradients and counts on the pixels of an image.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle
from torch import Tensor

from lockstep.viz.figure import INK, QUIET, Figure, our_style

MOST = 12  # rows or columns
CELL, GAP = 0.33, 0.6  # inches


def numbers(tables: Mapping[str, Tensor], title: str) -> Figure:
    """Draw the tables (2-D, at most 12x12) side by side, each under its name, on one scale of greys.

    Raises ValueError for a table of another form.
    """
    for name, table in tables.items():
        if table.dim() != 2 or not 0 < max(table.shape) <= MOST:
            raise ValueError(f"{name} has the shape {list(table.shape)}; the figure shows up to {MOST}x{MOST} numbers.")
    largest = max(float(table.abs().max()) for table in tables.values()) or 1.0
    with our_style():
        wide = 0.3 + sum(max(CELL * table.shape[1], 1.1) + GAP for table in tables.values())
        tall = 0.75 + CELL * max(table.shape[0] for table in tables.values()) + 0.4
        wide = max(wide, 0.3 + 0.095 * len(title))
        canvas, at = Canvas(figsize=(wide, tall)), 0.3
        canvas.text(0.1 / wide, 1 - 0.1 / tall, title, va="top", fontsize=11.5, fontweight="bold")
        canvas.text(0.3 / wide, 0.1 / tall, "the darker, the larger", va="bottom", color=QUIET)
        for name, table in tables.items():
            rows, columns = table.shape
            place = (at / wide, (tall - 0.75 - CELL * rows) / tall, CELL * columns / wide, CELL * rows / tall)
            axes = canvas.add_axes(place, xlim=(0, columns), ylim=(rows, 0))
            axes.set_axis_off()
            axes.text(0, -0.12, name, ha="left", va="bottom", color=QUIET)
            for (row, column), value in np.ndenumerate(table.detach().cpu().numpy()):
                shade = 1 - 0.45 * abs(float(value)) / largest  # the lightest ink stays readable on it
                look = {"facecolor": (shade,) * 3, "edgecolor": QUIET, "linewidth": 0.6, "clip_on": False}
                axes.add_patch(Rectangle((column, row), 1, 1, **look))
                axes.text(column + 0.5, row + 0.5, f"{value:.3g}", ha="center", va="center", color=INK, fontsize=8.5)
            at += max(CELL * columns, 1.1) + GAP
    return Figure(canvas, f"{title}. " + " ".join(_words(name, table) for name, table in tables.items()))


def _words(name: str, table: Tensor) -> str:
    rows = "; ".join(" ".join(f"{value:.3g}" for value in row) for row in table.tolist())
    return f"{name}, row by row: {rows}."
