"""A grid of blocks and threads over the array that a kernel writes: who is responsible for which cell.

Floor 3. Drawn from a launch in the simulator: what the given kernel does, not what it should do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from lockstep.simt.places import Places, name, places
from lockstep.simt.writers import writers
from lockstep.viz.figure import INK, ORANGE, QUIET, SKY, VERMILLION, Figure, our_style

MOST = 400  # cells: more cannot be told apart
READABLE = 0.3  # inches of a cell that holds an index
BROAD, NARROW = 0.75, 0.3  # inches of a block that "block 1,0" fits, and "1,0"
EVEN, ODD, NOBODY, PAST = (SKY, ""), (ORANGE, "//"), ("white", "xx"), ("#E3E3E3", "..")


@dataclass(frozen=True)
class Picture:
    """`thread` (rows, columns): the number of the thread that writes a cell, -1 for nobody; `shape`: the launch."""

    thread: np.ndarray
    shape: Places

    @property
    def covered(self) -> tuple[int, int]:
        """Rows and columns of threads, of which some may have no cell."""
        sizes = [g * b for g, b in zip(self.shape.grid, self.shape.block, strict=True)]
        return (sizes[1] if len(sizes) > 1 else 1), sizes[0]


def threads(
    kernel: Callable,
    grid: int | tuple[int, ...],
    block: int | tuple[int, ...],
    *arguments: object,
    array: str = "out",
    title: str = "Blocks and threads",
) -> Figure:
    """Launch `kernel` in the simulator and draw which thread writes each cell of its parameter `array` (1-D or 2-D).

    A cell holds the thread's index within its block, x first; a block's name stands where it begins to write, a dashed
    frame where its threads would stand by the usual formula. ValueError for an array of more than 400 cells or two
    dimensions, and whatever the launch raises.
    """
    found = writers(kernel, grid, block, *arguments, array=array)
    if found.ndim > 2 or found.size > MOST:
        raise ValueError(f"{array} has shape {found.shape}; the figure shows at most {MOST} cells in two dimensions.")
    picture = Picture(np.atleast_2d(found), places(grid, block))
    return Figure(_draw(picture, array, title), _words(picture, array, title))


def _words(picture: Picture, array: str, title: str) -> str:
    shape, found = picture.shape, picture.thread
    sizes = " x ".join(map(str, found.shape))
    threads = shape.threads * shape.blocks
    written = int((found >= 0).sum())
    said = [
        f"{title}. {array} has {sizes} cells. The launch has {shape.blocks} blocks, grid {name(shape.grid)}, of "
        f"{shape.threads} threads, block {name(shape.block)}: {threads} threads.",
        f"{written} cells are written, {found.size - written} by nobody; {threads - len(set(found[found >= 0]))} threads "
        "write nothing.",
    ]
    for row, column in ((0, 0), (found.shape[0] - 1, found.shape[1] - 1)):
        if found[row, column] >= 0:
            block, thread = divmod(int(found[row, column]), shape.threads)
            said.append(
                f"Cell [{row}, {column}] is written by thread {name(shape.thread(thread))} of block "
                f"{name(shape.block_index(block))}."
            )
    return " ".join(said)


def _draw(picture: Picture, array: str, title: str) -> Canvas:
    found = picture.thread
    rows, columns = (max(pair) for pair in zip(found.shape, picture.covered, strict=True))
    cell = min(0.46, 8.6 / columns)
    with our_style():
        high = 0.46 * rows * min(1, cell / 0.3)
        wide, tall = max(0.5 + cell * columns, 6.4), 1.05 + high
        canvas = Canvas(figsize=(wide, tall))
        axes = canvas.add_axes((0.3 / wide, 0.25 / tall, cell * columns / wide, high / tall))
        axes.set(xlim=(0, columns), ylim=(rows, 0))
        axes.set_axis_off()
        _draw_cells(axes, picture, (rows, columns), cell)
        _outline_blocks(axes, picture)
        _name_blocks(axes, picture, cell)
        axes.plot([0, found.shape[1], found.shape[1], 0, 0], [0, 0, found.shape[0], found.shape[0], 0], **EDGE)
        canvas.text(0.1 / wide, 1 - 0.1 / tall, title, va="top", fontsize=11.5, fontweight="bold")
        looks = [(EVEN, "a block writes"), (ODD, "the next one")]
        looks += [(NOBODY, "nobody writes")] if (found < 0).any() else []
        looks += [(PAST, f"no cell of {array}")] if (rows, columns) != found.shape else []
        handles = [Patch(facecolor=f, hatch=h, edgecolor=QUIET, label=label) for (f, h), label in looks]
        handles += [Line2D([], [], **PLACE, label="a block's place"), Line2D([], [], color=INK, lw=2.2, label=array)]
        canvas.legend(
            handles=handles, loc="upper left", bbox_to_anchor=(0.02 / wide, 1 - 0.33 / tall), ncols=len(handles),
            frameon=False, fontsize=8.5, columnspacing=1.2, handlelength=1.8, borderaxespad=0.2,
        )  # fmt: skip
        said = (
            f"a cell of {array}: index of the thread in its block, x first" if cell >= READABLE else f"cells of {array}"
        )
        canvas.text(0.1 / wide, 0.06 / tall, said, va="bottom", fontsize=8.5, color=QUIET)
        return canvas


PLACE = {"color": VERMILLION, "linewidth": 1.6, "linestyle": "--"}
EDGE = {"color": INK, "linewidth": 2.2, "clip_on": False, "zorder": 4, "solid_joinstyle": "miter"}


def _draw_cells(axes: Axes, picture: Picture, size: tuple[int, int], cell: float) -> None:
    """All boxes of one look together; an index only where it can be read, on a plain ground where the box is hatched."""
    found, shape = picture.thread, picture.shape
    boxes: dict[tuple[str, str], list] = {look: [] for look in (EVEN, ODD, NOBODY, PAST)}
    for row, column in np.ndindex(size):
        inside = row < found.shape[0] and column < found.shape[1]
        if not inside and (row >= picture.covered[0] or column >= picture.covered[1]):
            continue
        block, thread = divmod(int(found[row, column]) if inside else -1, shape.threads)
        look = NOBODY if inside else PAST
        if block >= 0:
            look = ODD if sum(shape.block_index(block)) % 2 else EVEN
        x, y = column + 0.05, row + 0.05
        boxes[look].append([(x, y), (x + 0.9, y), (x + 0.9, y + 0.9), (x, y + 0.9)])
        if block >= 0 and cell >= READABLE:
            said = ",".join(map(str, shape.thread(thread)))
            behind = {"facecolor": look[0], "edgecolor": "none", "pad": 0.8} if look[1] else None
            axes.text(column + 0.5, row + 0.5, said, ha="center", va="center", fontsize=8, bbox=behind, color=INK)
    for (face, hatch), corners in boxes.items():
        axes.add_collection(PolyCollection(corners, facecolor=face, hatch=hatch, edgecolor=QUIET, linewidth=0.5))


def _outline_blocks(axes: Axes, picture: Picture) -> None:
    """Where each block's threads stand by the usual formula, whatever they write."""
    grid, block = (*picture.shape.grid, 1)[:2], (*picture.shape.block, 1)[:2]
    for bx in range(grid[0]):
        for by in range(grid[1]):
            corner = bx * block[0], by * block[1]
            axes.add_patch(Rectangle(corner, *block, facecolor="none", zorder=3, **_edge(PLACE)))


def _edge(line: dict) -> dict:
    return {f"edge{name}" if name == "color" else name: value for name, value in line.items()}


def _name_blocks(axes: Axes, picture: Picture, cell: float) -> None:
    """Each block's index at the first cell that it writes, or at its place when it writes none and nobody else does."""
    found, shape = picture.thread, picture.shape
    sizes = (*shape.block, 1)[:2]
    word = "block " if sizes[0] * cell >= BROAD else ""
    if sizes[0] * cell < NARROW:
        return
    for number in range(shape.blocks):
        index = shape.block_index(number)
        written = np.argwhere((found >= 0) & (found // shape.threads == number))
        row, column = written[0] if len(written) else ((*index, 0)[1] * sizes[1], index[0] * sizes[0])
        if not len(written) and row < found.shape[0] and column < found.shape[1] and found[row, column] >= 0:
            continue
        said = ",".join(map(str, index))
        behind = {"facecolor": "white", "edgecolor": VERMILLION, "pad": 1.0, "linewidth": 0.8}
        place = {"ha": "left", "va": "center", "fontsize": 7.5, "zorder": 5}
        axes.text(column + 0.08, row, f"{word}{said}", bbox=behind, color=INK, **place)
