"""Which pixels an output of a convolution reads, and with which weights: recorded from the function itself.

Floor 3. `window` is the figure of one output, `window_player` that of all with a slider. The function sees one image
for each pixel, in which only that pixel is 1, and a kernel whose weights are all different; so its outputs say which
weight met which pixel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle
from torch import Tensor

from lockstep.viz.figure import INK, ORANGE, QUIET, SCREEN, SKY, Figure, our_style, pixels, small_png
from lockstep.viz.player import Frame, Frames, Player

MOST = 9  # pixels a side, so that there is room for a label in each
FRAME_SCALE, FRAME_COLORS = 1.4, 24
CELL, GAP = 0.42, 1.0  # inches


@dataclass(frozen=True)
class Reading:
    """weight[output][pixel]: the place in the kernel of the weight with which that output reads that pixel."""

    size: int
    kernel: int
    padding: int
    outputs: tuple[int, int]
    weight: dict[tuple[int, int], dict[tuple[int, int], tuple[int, int]]]


def window(
    conv: Callable[..., Tensor],
    size: int = 5,
    kernel: int = 3,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    output: tuple[int, int] = (0, 0),
    title: str = "Convolution",
) -> Figure:
    """Draw what `conv(x, weight, bias, stride, padding, dilation, groups)` reads for one output.

    output: its row and column. Raises ValueError for an image of more than 9 pixels a side, for an output that does
    not exist, when an output is no sum of weights of the kernel, and whatever `conv` raises.
    """
    reading = record(conv, size, kernel, stride, padding, dilation)
    if output not in reading.weight:
        raise ValueError(f"output is {output}; there are {reading.outputs[0]} rows and {reading.outputs[1]} columns.")
    title = _headed(title, stride, padding, dilation)
    return Figure(_draw(reading, output, title), _words(reading, output, title))


def window_player(
    conv: Callable[..., Tensor],
    size: int = 5,
    kernel: int = 3,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    title: str = "Convolution",
) -> Player:
    """The same figure for every output, row by row, with a slider. Raises as `window`."""
    reading, title = record(conv, size, kernel, stride, padding, dilation), _headed(title, stride, padding, dilation)
    outputs = list(reading.weight)

    def draw(at: int) -> Frame:
        image = small_png(pixels(_draw(reading, outputs[at], title), FRAME_SCALE), FRAME_COLORS)
        return Frame(image, _words(reading, outputs[at], title), f"output {outputs[at]}")

    told = f"{len(outputs)} outputs, the first of them: {_words(reading, outputs[0], title)}"
    return Player(Frames(draw, len(outputs)), told, round(_size(reading)[0] * SCREEN), along="output", start=0)


def record(conv: Callable[..., Tensor], size: int, kernel: int, stride: int, padding: int, dilation: int) -> Reading:
    """Run `conv` once on an image for each pixel and read off who met whom."""
    if not isinstance(size, int) or not 1 <= size <= MOST:
        raise ValueError(f"size is {size!r}; the figure shows images of 1 to {MOST} pixels a side.")
    x = torch.eye(size * size, dtype=torch.float64).view(-1, 1, size, size)
    weight = torch.arange(1, kernel * kernel + 1, dtype=torch.float64).view(1, 1, kernel, kernel)
    y = conv(x, weight, torch.zeros(1, dtype=torch.float64), stride, padding, dilation, 1)[:, 0]
    if not torch.equal(y, y.round()) or y.min() < 0 or y.max() > kernel * kernel:
        raise ValueError("an output is no single weight of the kernel times the pixel, so there is nothing to draw.")
    read: dict[tuple[int, int], dict[tuple[int, int], tuple[int, int]]] = {}
    for p in range(y.shape[1]):
        for q in range(y.shape[2]):
            met = {divmod(i, size): int(y[i, p, q]) - 1 for i in range(size * size) if y[i, p, q]}
            read[p, q] = {pixel: divmod(place, kernel) for pixel, place in met.items()}
    return Reading(size, kernel, padding, (y.shape[1], y.shape[2]), read)


def _headed(title: str, stride: int, padding: int, dilation: int) -> str:
    return f"{title}: stride {stride}, padding {padding}, dilation {dilation}"


def _words(reading: Reading, output: tuple[int, int], title: str) -> str:
    met = reading.weight[output]
    pairs = ", ".join(f"pixel {pixel} with weight {place}" for pixel, place in met.items())
    rest = reading.kernel**2 - len(met)
    frame = f" The other {rest} weights meet the frame of zeros." if rest else ""
    many = f"{len(met)} of {reading.size**2} pixels"
    return f"{title}. Output {output} of {reading.outputs[0]}x{reading.outputs[1]} reads {many}: {pairs}.{frame}"


def _size(reading: Reading) -> tuple[float, float]:
    """Width and height of the figure in inches."""
    side, (p, q) = reading.size + 2 * reading.padding, reading.outputs
    return max(6.6, 0.3 + CELL * (side + q) + GAP + 0.3), 0.75 + CELL * max(side, p) + 0.3


def _draw(reading: Reading, output: tuple[int, int], title: str) -> Canvas:
    side, (p, q) = reading.size + 2 * reading.padding, reading.outputs
    wide, tall = _size(reading)
    with our_style():
        canvas = Canvas(figsize=(wide, tall))
        canvas.text(0.1 / wide, 1 - 0.1 / tall, title, va="top", fontsize=11.5, fontweight="bold")
        left = _grid(canvas, 0.3, side, side, f"image, {reading.size}x{reading.size}", wide, tall)
        for row in range(side):
            for column in range(side):
                pixel = row - reading.padding, column - reading.padding
                _pixel(left, row, column, pixel, reading, output)
        right = _grid(canvas, 0.3 + CELL * side + GAP, p, q, f"outputs, {p}x{q}", wide, tall)
        for at in reading.weight:
            chosen = at == output
            _cell(right, *at, ORANGE if chosen else "white", "xx" if chosen else "", "this" if chosen else "")
        return canvas


def _pixel(
    axes: Axes, row: int, column: int, pixel: tuple[int, int], reading: Reading, output: tuple[int, int]
) -> None:
    met = reading.weight[output]
    if not all(0 <= at < reading.size for at in pixel):
        _cell(axes, row, column, "#EFEFEF", "", "0", QUIET)
    elif pixel in met:
        place = met[pixel]
        _cell(axes, row, column, SKY, "//", f"w{place[0]}{place[1]}")
    else:
        _cell(axes, row, column, "white", "", "")


def _grid(canvas: Canvas, at: float, rows: int, columns: int, name: str, wide: float, tall: float) -> Axes:
    """Axes for a grid whose left edge is `at` inches from that of the figure."""
    bottom = tall - 0.75 - CELL * rows
    axes = canvas.add_axes((at / wide, bottom / tall, CELL * columns / wide, CELL * rows / tall))
    axes.set(xlim=(0, columns), ylim=(rows, 0))
    axes.set_axis_off()
    axes.text(0, -0.12, name, ha="left", va="bottom", color=QUIET)
    return axes


def _cell(axes: Axes, row: int, column: int, face: str, hatch: str, said: str, color: str = INK) -> None:
    look: dict[str, Any] = {"facecolor": face, "hatch": hatch, "edgecolor": QUIET, "linewidth": 0.8}
    axes.add_patch(Rectangle((column + 0.03, row + 0.03), 0.94, 0.94, **look))
    if said:
        behind = {"facecolor": face, "edgecolor": "none", "pad": 0.8}
        axes.text(column + 0.5, row + 0.5, said, ha="center", va="center", color=color, bbox=behind, fontsize=9.5)
