"""A ring collective step by step: which chunk goes to whom, and whose numbers are in it.

Floor 3. `ring` is the figure of one step, `ring_player` all steps with a slider; both draw a `Recording` of a run of
the given function in the simulated world. Chunks are one element long, so the tensor has as many elements as there
are ranks; the numbers are chosen so that a message tells whose numbers it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import FancyArrowPatch, Patch, Rectangle
from matplotlib.patheffects import withStroke
from torch import Tensor

from lockstep.comm import Communicator
from lockstep.viz.figure import GREEN, INK, QUIET, SCREEN, SKY, Figure, our_style, pixels, small_png
from lockstep.viz.player import Frame, Frames, Player
from lockstep.world import simulate

MOST = 7  # ranks: more do not fit into the bits of an element
OWN, PARTIAL, DONE = ("white", ""), (SKY, "//"), (GREEN, "xx")
FRAME_SCALE, FRAME_COLORS = 0.9, 24

Holdings = tuple[tuple[frozenset[int], ...], ...]  # [rank][chunk]: the ranks whose numbers are in it


@dataclass(frozen=True)
class Move:
    """A message of a step: `whose[chunk]` are the ranks whose numbers are in what it carries of that chunk."""

    src: int
    dst: int
    whose: dict[int, frozenset[int]]


@dataclass(frozen=True)
class Recording:
    """steps[s]: the messages of step s. holdings[s]: what every rank holds before it; one more for the end."""

    ranks: int
    steps: tuple[tuple[Move, ...], ...]
    holdings: tuple[Holdings, ...]


def ring(algorithm: Callable[..., Any], ranks: int = 4, step: int = 1, title: str = "Ring all-reduce") -> Figure:
    """Draw one step of `algorithm(comm, tensor)`: what every rank holds before it, and what moves.

    A row is a rank and a column a chunk; a cell names the ranks whose numbers are in it. step: counted from 1; one more
    than there are shows the end. Raises ValueError for fewer than 2 or more than 7 ranks, for a step that does not
    exist, and whatever the run of `algorithm` raises.
    """
    recording = record(algorithm, ranks)
    if not 1 <= step <= len(recording.steps) + 1:
        raise ValueError(f"step is {step}; this run has {len(recording.steps)} steps.")
    return Figure(_draw(recording, step - 1, title), _words(recording, step - 1, title))


def ring_player(algorithm: Callable[..., Any], ranks: int = 4, title: str = "Ring all-reduce") -> Player:
    """The same figure for every step, with a slider; the last frame is the end. Raises as `ring`."""
    recording = record(algorithm, ranks)
    last = len(recording.steps)

    def draw(at: int) -> Frame:
        image = small_png(pixels(_draw(recording, at, title), FRAME_SCALE), FRAME_COLORS)
        return Frame(image, _words(recording, at, title), _when(recording, at))

    alt = f"{title} (simulated), {ranks} ranks, {last} steps. " + _words(recording, last, title)
    return Player(Frames(draw, last + 1), alt, round(_width(ranks) * SCREEN))


def record(algorithm: Callable[..., Any], ranks: int) -> Recording:
    """Run `algorithm(comm, tensor)` on `ranks` simulated ranks and note what it sends."""
    if not isinstance(ranks, int) or not 2 <= ranks <= MOST:
        raise ValueError(f"ranks is {ranks!r}; the figure shows 2 to {MOST}.")
    sent = simulate(_Watched(algorithm), ranks).values
    holdings = [tuple(tuple(frozenset({r}) for _ in range(ranks)) for r in range(ranks))]
    steps = []
    for s in range(max(map(len, sent))):
        moves = tuple(_move(r, *own[s], ranks) for r, own in enumerate(sent) if s < len(own))
        steps.append(moves)
        holdings.append(_after(holdings[-1], moves))
    return Recording(ranks, tuple(steps), tuple(holdings))


@dataclass(frozen=True)
class _Watched:
    """The rank function: runs the algorithm on telling numbers, gives (destination, numbers) of each message.

    Element c of rank r is 2^r at the c-th group of `size` bits, so that any sum says which ranks are in it, and of
    which chunk.
    """

    algorithm: Callable[..., Any]

    def __call__(self, comm: Communicator) -> list[tuple[int, list[int]]]:
        p, noted = comm.size, []
        send, isend, exchange = comm.send, comm.isend, comm.exchange

        def note(tensor: Tensor, dst: int) -> None:
            noted.append((dst, tensor.reshape(-1).tolist()))

        def noting_send(tensor: Tensor, dst: int) -> None:
            note(tensor, dst)
            send(tensor, dst)

        def noting_isend(tensor: Tensor, dst: int) -> Any:
            note(tensor, dst)
            return isend(tensor, dst)

        def noting_exchange(sends: Sequence, recvs: Sequence) -> None:
            for tensor, dst in sends:
                note(tensor, dst)
            exchange(sends, recvs)

        comm.send, comm.isend, comm.exchange = noting_send, noting_isend, noting_exchange
        self.algorithm(comm, torch.tensor([1 << (comm.rank + p * c) for c in range(p)]))
        return noted


def _move(src: int, dst: int, numbers: Sequence[int], p: int) -> Move:
    whose: dict[int, frozenset[int]] = {}
    for number in numbers:
        for c in range(p):
            bits = number >> (p * c) & ((1 << p) - 1)
            if bits:
                whose[c] = frozenset(r for r in range(p) if bits >> r & 1)
    return Move(src, dst, whose)


def _after(before: Holdings, moves: Sequence[Move]) -> Holdings:
    """A partial sum is added to; numbers that are in it already can only be a finished chunk, which replaces it."""
    after = [list(row) for row in before]
    for move in moves:
        for c, ranks in move.whose.items():
            own = before[move.dst][c]
            after[move.dst][c] = ranks if ranks & own else ranks | own
    return tuple(map(tuple, after))


def _when(recording: Recording, at: int) -> str:
    total = len(recording.steps)
    return f"step {at + 1} of {total}" if at < total else f"after {total} steps"


def _names(ranks: frozenset[int]) -> str:
    return " ".join(map(str, sorted(ranks)))


def _words(recording: Recording, at: int, title: str) -> str:
    held = recording.holdings[at]
    rows = [
        f"Rank {r} holds " + ", ".join(f"chunk {c} of {_names(ranks)}" for c, ranks in enumerate(row)) + "."
        for r, row in enumerate(held)
    ]
    moves = recording.steps[at] if at < len(recording.steps) else ()
    sends = [f"rank {m.src} sends {', '.join(f'chunk {c}' for c in m.whose)} to rank {m.dst}" for m in moves]
    said = [f"{title} (simulated), {_when(recording, at)}: whose numbers are in which chunk.", *rows]
    return " ".join([*said, *([f"Then {'; '.join(sends)}."] if sends else [])])


def _width(p: int) -> float:
    """Of the figure of p ranks, in inches."""
    return max(1.3 + 1.15 * p, 6.2)


def _draw(recording: Recording, at: int, title: str) -> Canvas:
    p, held = recording.ranks, recording.holdings[at]
    with our_style():
        width, tall = _width(p), 1.35 + 0.62 * p
        canvas = Canvas(figsize=(width, tall))
        axes = canvas.add_axes((0.75 / width, 0.22 / tall, 1.15 * p / width, 0.62 * p / tall))
        axes.set(xlim=(0, p), ylim=(p, 0))
        axes.set_axis_off()
        for r in range(p):
            axes.text(-0.08, r + 0.5, f"rank {r}", ha="right", va="center")
            axes.text(r + 0.5, -0.22, f"chunk {r}", ha="center", va="bottom", color=QUIET)
            for c in range(p):
                _draw_cell(axes, r, c, held[r][c], p)
        moves = recording.steps[at] if at < len(recording.steps) else ()
        for move in moves:
            for c in move.whose:
                _draw_arrow(axes, move, c, p)
        head = f"{title} (simulated), {_when(recording, at)}"
        canvas.text(0.1 / width, 1 - 0.1 / tall, head, va="top", fontsize=11.5, fontweight="bold")
        looks = (OWN, "only its own numbers"), (PARTIAL, "a partial sum of these ranks"), (DONE, "finished")
        handles = [Patch(facecolor=f, hatch=h, edgecolor=QUIET, label=label) for (f, h), label in looks]
        canvas.legend(
            handles=handles, loc="upper left", bbox_to_anchor=(0.02 / width, 1 - 0.33 / tall), ncols=3, frameon=False,
            fontsize=8.5, columnspacing=1.2, handlelength=1.8, borderaxespad=0.2,
        )  # fmt: skip
        return canvas


def _draw_cell(axes: Axes, r: int, c: int, ranks: frozenset[int], p: int) -> None:
    face, hatch = OWN if len(ranks) == 1 else DONE if len(ranks) == p else PARTIAL
    axes.add_patch(
        Rectangle((c + 0.06, r + 0.12), 0.88, 0.76, facecolor=face, hatch=hatch, edgecolor=QUIET, linewidth=0.8)
    )
    said = "all" if len(ranks) == p else _names(ranks)
    behind = {"facecolor": face, "edgecolor": "none", "pad": 1.2}
    axes.text(c + 0.5, r + 0.5, said, ha="center", va="center", color=INK, bbox=behind, fontsize=9.5)


def _draw_arrow(axes: Axes, move: Move, c: int, p: int) -> None:
    """From the chunk's cell to the same column of the receiver; one that wraps around leaves the grid and enters it."""
    x = c + 0.8
    ends = [((x, move.src + 0.62), (x, move.dst + 0.38))]
    if move.src == p - 1 and move.dst == 0:
        ends = [((x, p - 0.38), (x, p + 0.28)), ((x, -0.28), (x, 0.38))]
    elif move.src == 0 and move.dst == p - 1 and p > 2:
        ends = [((x, 0.38), (x, -0.28)), ((x, p + 0.28), (x, p - 0.38))]
    for start, end in ends:
        arrow = FancyArrowPatch(
            start, end, arrowstyle="-|>", mutation_scale=12, color=INK, linewidth=1.6, shrinkA=0, shrinkB=0,
            clip_on=False, zorder=5,
        )  # fmt: skip
        arrow.set_path_effects([withStroke(linewidth=3.5, foreground="white")])
        axes.add_patch(arrow)
