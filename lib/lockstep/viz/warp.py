"""One warp's accesses, instruction by instruction: which sectors of global memory and which banks its lanes touch.

Floor 3. `warp` is the figure of one request, `warp_player` the same for several requests and warps with a slider. Both
are drawn from a launch in the simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure as Canvas

from lockstep.simt.compile.source import text_of
from lockstep.simt.kernel import simulated
from lockstep.simt.report import warp_requests
from lockstep.simt.run.patterns import BANKS, SECTOR
from lockstep.simt.run.recording import Request
from lockstep.viz.figure import INK, ORANGE, QUIET, SCREEN, SKY, VERMILLION, Figure, our_style, pixels, small_png
from lockstep.viz.player import Frame, Frames, Player

WIDE, LANES = 9.4, 32  # inches; lanes of a warp
TOP = 5.6  # of the row of sectors, counted down from the lanes
FRAME_SCALE, FRAME_COLORS, MOST_FRAMES = 0.9, 24, 200
DOES = {"r": "reads", "w": "writes", "a": "adds atomically to"}
FEW = 6  # sectors or lanes named one by one


@dataclass(frozen=True)
class Seen:
    """A request with the warp that makes it and the text of its line; `at` of `of` kinds of requests of that warp."""

    request: Request
    code: str
    warp: int
    at: int
    of: int

    @property
    def sentence(self) -> str:
        """ "warp 0, line 7 reads source (global): 32 sectors"."""
        one, unit = self.request, "sector" if self.request.space == "global" else "pass"
        many = f"{one.cost} {unit}{'' if one.cost == 1 else 's' if unit == 'sector' else 'es'}"
        return f"warp {self.warp}, line {one.line} {DOES[one.kind]} {one.array} ({one.space}): {many}"


def warp(
    kernel: Callable,
    grid: int | tuple[int, ...],
    block: int | tuple[int, ...],
    *arguments: object,
    of_block: int = 0,
    number: int = 0,
    step: int = 1,
    title: str = "One warp's requests",
) -> Figure:
    """Draw request `step` (from 1) of warp `number` of block `of_block`: 32 lanes above, what they touch below.

    Requests that repeat an instruction with the same cost are left out. ValueError for a step, a warp or a block that
    there is not, and whatever the launch raises.
    """
    seen = distinct(kernel, grid, block, *arguments, of_block=of_block, number=number)
    if not 1 <= step <= len(seen):
        raise ValueError(f"step is {step}; this warp has {len(seen)} different requests.")
    return Figure(_draw(seen[step - 1], title), _words(seen[step - 1], title))


def warp_player(
    kernel: Callable,
    grid: int | tuple[int, ...],
    block: int | tuple[int, ...],
    *arguments: object,
    of_block: int = 0,
    numbers: Sequence[int] = (0,),
    title: str = "One warp's requests",
) -> Player:
    """The same figure for each request of each warp of `numbers`, with a slider. Raises as `warp`.

    ValueError when there are more than 200 frames.
    """
    seen = [one for n in numbers for one in distinct(kernel, grid, block, *arguments, of_block=of_block, number=n)]
    if not 1 <= len(seen) <= MOST_FRAMES:
        raise ValueError(
            f"{len(seen)} different requests; the figure moves through 1 to {MOST_FRAMES}: name fewer warps."
        )
    alt = f"{title}, {len(seen)} requests: " + "; ".join(one.sentence for one in seen) + "."

    def draw(at: int) -> Frame:
        one = seen[at]
        image = small_png(pixels(_draw(one, title), FRAME_SCALE), FRAME_COLORS)
        return Frame(image, _words(one, title), f"warp {one.warp}, request {one.at} of {one.of}")

    return Player(Frames(draw, len(seen)), alt, round(WIDE * SCREEN))


def distinct(
    kernel: Callable,
    grid: int | tuple[int, ...],
    block: int | tuple[int, ...],
    *arguments: object,
    of_block: int = 0,
    number: int = 0,
) -> list[Seen]:
    """A warp's requests in order, one for each line, array, direction and cost."""
    requests = warp_requests(kernel, grid, block, *arguments, of_block=of_block, warp=number)
    kinds = {(one.line, one.array, one.kind, one.cost): one for one in reversed(requests)}
    found = [one for one in requests if kinds[one.line, one.array, one.kind, one.cost] is one]
    text, first = text_of(simulated(kernel).py_func) or ([], 0)
    codes = {first + i: line.strip() for i, line in enumerate(text)}
    return [Seen(one, codes.get(one.line, ""), number, i + 1, len(found)) for i, one in enumerate(found)]


def _words(seen: Seen, title: str) -> str:
    one = seen.request
    lanes = [lane for lane, cell in enumerate(one.cells) if cell is not None]
    touched = one.sectors if one.space == "global" else one.banks
    what = "sector" if one.space == "global" else "bank"
    groups: dict[int, list[int]] = {}
    for lane in lanes:
        groups.setdefault(touched[lane], []).append(lane)
    named = [f"{what} {place} lanes {_ranges(who)}" for place, who in list(groups.items())[:FEW]]
    more = f" and {len(groups) - FEW} more" if len(groups) > FEW else ""
    return (
        f"{title}: {seen.sentence}. {len(lanes)} of 32 lanes take part and touch {len(groups)} {what}s: "
        f"{'; '.join(named)}{more}. Line {one.line}: {seen.code}"
    )


def _ranges(lanes: Sequence[int]) -> str:
    """ "0 to 7", "3", "0, 5"."""
    if len(lanes) > 2 and lanes[-1] - lanes[0] == len(lanes) - 1:
        return f"{lanes[0]} to {lanes[-1]}"
    return ", ".join(map(str, lanes[:FEW])) + (", …" if len(lanes) > FEW else "")


def _draw(seen: Seen, title: str) -> Canvas:
    with our_style():
        canvas = Canvas(figsize=(WIDE, 3.5))
        canvas.text(0.012, 0.975, title, va="top", fontsize=11.5, fontweight="bold")
        canvas.text(0.012, 0.885, seen.sentence, va="top", fontsize=9.5)
        code = seen.code if len(seen.code) <= 110 else seen.code[:109] + "…"
        canvas.text(0.012, 0.815, code, va="top", fontsize=8.5, color=QUIET, family="monospace")
        axes = canvas.add_axes((0.07, 0.03, 0.92, 0.7))
        axes.set(xlim=(0, LANES), ylim=(9.6, 0))
        axes.set_axis_off()
        axes.text(-0.2, 0.5, "lane", ha="right", va="center", fontsize=8.5)
        active = [lane for lane, cell in enumerate(seen.request.cells) if cell is not None]
        _boxes(axes, [(lane + 0.06, 0.05, 0.88, 0.9) for lane in active], SKY)
        _boxes(axes, [(lane + 0.06, 0.05, 0.88, 0.9) for lane in range(LANES) if lane not in active], "#E3E3E3", "xx")
        for lane in active:
            axes.text(lane + 0.5, 0.5, str(lane), ha="center", va="center", fontsize=8, color=INK)
        (_draw_sectors if seen.request.space == "global" else _draw_banks)(axes, seen.request)
        return canvas


def _boxes(
    axes: Axes, boxes: Sequence[tuple], face: str, hatch: str = "", edge: str = QUIET, line: float = 0.5
) -> None:
    """Boxes (left, top, width, height) of one look."""
    corners = [[(x, y), (x + w, y), (x + w, y + h), (x, y + h)] for x, y, w, h in boxes]
    axes.add_collection(PolyCollection(corners, facecolor=face, hatch=hatch, edgecolor=edge, linewidth=line, zorder=2))


def _draw_sectors(axes: Axes, one: Request) -> None:
    """The touched sectors side by side in the order of their addresses, each with its elements; lines to the lanes."""
    touched = sorted({sector for sector in one.sectors if sector is not None})
    elements = max(1, SECTOR // one.itemsize)
    width = LANES / max(len(touched), 4)
    small = (width - 0.1) / elements
    used = {cell for cell in one.cells if cell is not None}
    left = {
        sector * elements + k: i * width + 0.05 + k * small for i, sector in enumerate(touched) for k in range(elements)
    }
    _boxes(axes, [(x, TOP, small, 1.3) for cell, x in left.items() if cell not in used], "white", line=0.4)
    _boxes(axes, [(left[cell], TOP, small, 1.3) for cell in used], ORANGE, "//", line=0.4)
    _boxes(axes, [(i * width + 0.05, TOP, width - 0.1, 1.3) for i in range(len(touched))], "none", edge=INK, line=1.3)
    for i, sector in enumerate(touched):
        size = 8 if len(touched) < 20 else 6.5
        axes.text((i + 0.5) * width, TOP + 1.8, str(sector), ha="center", va="center", fontsize=size)
    lines = [
        [(lane + 0.5, 0.95), (left[cell] + small / 2, TOP)] for lane, cell in enumerate(one.cells) if cell is not None
    ]
    axes.add_collection(LineCollection(lines, colors=VERMILLION, linewidths=0.9, zorder=1))
    axes.text(-0.2, TOP + 0.65, "sector", ha="right", va="center", fontsize=8.5)
    share = 100 * len(used) * one.itemsize / (len(touched) * SECTOR)
    many = f"{len(touched)} sectors of 32 bytes move" if len(touched) > 1 else "1 sector of 32 bytes moves"
    axes.text(
        0, 8.8, f"{many}, {share:.3g} % of what moves is used (orange, hatched); the number below a sector counts from the "
        "start of the array", fontsize=8.5, va="center", color=QUIET,
    )  # fmt: skip


def _draw_banks(axes: Axes, one: Request) -> None:
    """The 32 banks side by side; the words that are wanted from a bank stand on one another, one for each pass."""
    words: list[dict[int, list[int]]] = [{} for _ in range(BANKS)]
    for lane, (cell, bank) in enumerate(zip(one.cells, one.banks, strict=True)):
        if cell is not None:
            words[bank].setdefault(cell, []).append(lane)
    tallest = max(map(len, words))
    high = min(1.1, 4.2 / tallest)
    tops = [7.4 - len(wanted) * high for wanted in words]
    _boxes(axes, [(bank + 0.06, 3.0, 0.88, 4.4) for bank in range(BANKS)], "none", edge="#C9C9C9", line=0.8)
    for level, look in ((0, (SKY, "")), *((level, (ORANGE, "//")) for level in range(1, tallest))):
        there = [bank for bank in range(BANKS) if len(words[bank]) > level]
        _boxes(axes, [(bank + 0.1, 7.4 - (level + 1) * high, 0.8, high * 0.94) for bank in there], *look)
    lines = []
    for bank, wanted in enumerate(words):
        axes.text(bank + 0.5, 7.9, str(bank), ha="center", va="center", fontsize=8)
        for level, lanes in enumerate(wanted.values()):
            lines += [[(lane + 0.5, 0.95), (bank + 0.5, tops[bank])] for lane in lanes]
            if high >= 0.55:
                said, behind = f"{lanes[0]}+" if len(lanes) > 1 else str(lanes[0]), ORANGE if level else SKY
                place = bank + 0.5, 7.4 - (level + 0.5) * high
                shown = {"facecolor": behind, "edgecolor": "none", "pad": 0.4}
                axes.text(*place, said, ha="center", va="center", fontsize=7.5, bbox=shown if level else None, zorder=3)
        if wanted and len(wanted) == tallest and high < 0.55:
            _name_tower(axes, bank, [lane for lanes in wanted.values() for lane in lanes], tallest)
    axes.add_collection(LineCollection(lines, colors=VERMILLION, linewidths=0.7 if high >= 0.55 else 0.3, zorder=1))
    axes.text(-0.2, 7.9, "bank", ha="right", va="center", fontsize=8.5)
    passes = f"{tallest} passes: words of one bank are served one after the other (hatched: they wait)"
    passes = "1 pass: no bank has to serve more than one word" if tallest == 1 else passes
    shared = any(len(lanes) > 1 for wanted in words for lanes in wanted.values())
    boxes = "in a box its lane" + (", with + when several lanes share the word" if shared else "")
    axes.text(
        0, 9.0, f"{passes}; {boxes if high >= 0.55 else 'a box for each word'}", fontsize=8.5, va="center", color=QUIET
    )


def _name_tower(axes: Axes, bank: int, lanes: Sequence[int], passes: int) -> None:
    """Beside the boxes of a bank that are too thin for numbers: whose they are."""
    right = bank < BANKS // 2
    said = f"{passes} words: lanes {_ranges(sorted(lanes))},\none pass after the other"
    axes.text(
        bank + (1.3 if right else -0.3), 5.2, said, ha="left" if right else "right", va="center", fontsize=8.5, color=INK,
        bbox={"facecolor": "white", "edgecolor": QUIET, "pad": 2.5, "linewidth": 0.6}, zorder=4,
    )  # fmt: skip
