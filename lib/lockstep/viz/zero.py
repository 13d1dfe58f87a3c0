"""What a rank holds under ZeRO: measured beside the formula, and the formula against a GPU's memory.

Floor 3, room `viz`. `state_bars` draws a run; `stage_table` the table of the paper for one model, with bars for one number
of ranks; `stage_explorer` is the same figure behind menus.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch, Rectangle

from lockstep.cost import zero_memory
from lockstep.trace.units import show_bytes
from lockstep.viz.figure import BLUE, INK, ORANGE, QUIET, SKY, VERMILLION, YELLOW, Figure, our_style
from lockstep.viz.with_widget import WithWidget

WIDTH = 9.4  # inches
LOOKS = {
    "parameters": (BLUE, ""),
    "gradients": (SKY, "//"),
    "optimizer": (ORANGE, "xx"),
    "copy of the shard": (YELLOW, ".."),
}
STAGES = ("data parallel", "stage 1", "stage 2", "stage 3")
RANKS = (1, 4, 16, 64, 256, 1024)
CLEAR = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}  # behind words that may lie on a line
FITS = "#CFE8F7"

StateBytes = Callable[[int, int, int, str, str], Mapping[str, float]]


def state_bars(
    measured: Mapping[str, Mapping[str, int]], formula: Mapping[str, Mapping[str, int]], title: str = "Bytes of a rank"
) -> Figure:
    """For each name two stacked bars: what was measured, and below it, thin, what the formula says.

    Both map names to the bytes of parts. Raises ValueError for a part that has no look, and for names that differ.
    """
    unknown = {part for bars in (measured, formula) for bar in bars.values() for part in bar} - set(LOOKS)
    if unknown or list(measured) != list(formula) or not measured:
        raise ValueError(f"measured {list(measured)} and formula {list(formula)} need equal names; unknown: {unknown}")
    most = max(sum(bar.values()) for bars in (measured, formula) for bar in bars.values())
    with our_style():
        tall = 1.15 + 0.62 * len(measured)
        canvas = Canvas(figsize=(WIDTH, tall))
        canvas.text(0.01, 1 - 0.22 / tall, title, fontsize=12, fontweight="bold")
        axes = canvas.add_axes((0.13, 0.42 / tall, 0.86, 1 - 0.85 / tall))
        for row, name in enumerate(measured):
            _stack(axes, row - 0.16, 0.42, measured[name])
            _stack(axes, row + 0.2, 0.16, formula[name])
            for place, bar, words in ((row - 0.16, measured[name], "measured"), (row + 0.2, formula[name], "formula")):
                size = sum(bar.values())
                axes.text(size + 0.008 * most, place, f"{show_bytes(size)} {words}", va="center", fontsize=8)
        axes.set_yticks(range(len(measured)), list(measured))
        axes.set_ylim(len(measured) - 0.5, -0.5)
        axes.set_xlim(0, 1.2 * most)
        axes.set_xticks([])
        _open(axes)
        used = [part for part in LOOKS if any(bar.get(part) for bar in measured.values())]
        _legend(canvas, used)
    said = " ".join(f"{name}: measured {_parts(measured[name])}; formula {_parts(formula[name])}." for name in measured)
    return Figure(canvas, f"{title}. {said}")


def stage_table(
    parameters: int,
    ranks: int,
    memory: int,
    memory_name: str = "the GPU's memory",
    optimizer: str = "adam",
    precision: str = "mixed",
    state_bytes: StateBytes = zero_memory,
    title: str = "",
) -> Figure:
    """Left, the bytes of a rank in each stage on `ranks` ranks; right, those of stages 1 to 3 on 1 to 1,024 ranks.

    memory: bytes of a GPU, a line on the left; on the right what fits is filled and bold, what does not is hatched.
    state_bytes: called with parameters, ranks, stage, optimizer, precision; gives the bytes of parts.
    """

    def held(n: int, stage: int) -> dict[str, float]:
        return dict(state_bytes(parameters, n, stage, optimizer, precision))

    bars = [held(ranks, stage) for stage in range(4)]
    rows = sorted({*RANKS, ranks})
    table = {n: [sum(held(n, stage).values()) for stage in (1, 2, 3)] for n in rows}
    title = title or f"{_many(parameters)} parameters, {optimizer}, {precision}, {ranks} ranks"
    with our_style():
        canvas = Canvas(figsize=(WIDTH, 3.5))
        canvas.text(0.01, 0.935, title, fontsize=12, fontweight="bold")
        left = canvas.add_axes((0.105, 0.2, 0.43, 0.62))
        most = max(*(sum(bar.values()) for bar in bars), memory)
        for row, bar in enumerate(bars):
            _stack(left, row, 0.62, bar)
            size = sum(bar.values())
            left.text(size + 0.01 * most, row, show_bytes(size), va="center", fontsize=8.5, bbox=CLEAR, zorder=3)
        left.axvline(memory, color=VERMILLION, linewidth=2, linestyle="--")
        left.set_yticks(range(4), STAGES, fontsize=8.5)
        left.set_ylim(3.5, -0.5)
        left.set_xlim(0, 1.2 * most)
        left.set_xticks([])
        left.set_title(f"on {ranks} ranks; - - {memory_name}", fontsize=9, loc="left")
        _open(left)
        _legend(canvas, ["parameters", "gradients", "optimizer"])
        _draw_table(canvas.add_axes((0.6, 0.03, 0.39, 0.87)), table, ranks, memory, memory_name)
    return Figure(canvas, f"{title}. {_told(bars, table, ranks, memory, memory_name)}")


def _stack(axes: Axes, place: float, height: float, bar: Mapping[str, float]) -> None:
    left = 0.0
    for part, (color, hatch) in LOOKS.items():
        if bar.get(part):
            axes.barh(place, bar[part], height, left, color=color, hatch=hatch, edgecolor=INK, linewidth=0.6)
            left += bar[part]


def _legend(canvas: Canvas, parts: Sequence[str]) -> None:
    handles = [
        Patch(facecolor=color, hatch=hatch, edgecolor=INK, linewidth=0.6, label=part)
        for part, (color, hatch) in LOOKS.items()
        if part in parts
    ]
    canvas.legend(handles=handles, loc="lower left", ncols=len(handles), frameon=False, fontsize=8.5)


def _draw_table(axes: Axes, table: Mapping[int, Sequence[float]], ranks: int, memory: int, memory_name: str) -> None:
    axes.set_xlim(-0.05, 4.05)
    axes.set_ylim(len(table) + 1.5, 0)
    axes.axis("off")
    for column, words in enumerate(("ranks", *STAGES[1:])):
        axes.text(column + 0.5, 0.55, words, ha="center", va="center", fontsize=8.5, color=QUIET)
    for row, (n, sizes) in enumerate(table.items(), 1):
        axes.text(0.5, row + 0.5, f"{n:,}", ha="center", va="center", fontweight="bold" if n == ranks else "normal")
        for column, size in enumerate(sizes, 1):
            fits = size <= memory
            look = {"facecolor": FITS} if fits else {"facecolor": "white", "hatch": "///", "edgecolor": "#BBBBBB"}
            axes.add_patch(Rectangle((column + 0.03, row + 0.06), 0.94, 0.88, linewidth=0, **look))
            weight = "bold" if fits else "normal"
            axes.text(
                column + 0.5, row + 0.5, _gigabytes(size), ha="center", va="center", fontsize=8.5, fontweight=weight,
                bbox=None if fits else CLEAR,
            )  # fmt: skip
        if n == ranks:
            axes.add_patch(Rectangle((0, row), 4, 1, fill=False, edgecolor=INK, linewidth=1.6))
    words = f"GB; bold on blue fits into {memory_name}, hatched does not"
    axes.text(2, len(table) + 1.25, words, ha="center", va="center", fontsize=8.5, color=QUIET)


def _open(axes: Axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _many(parameters: int) -> str:
    for scale, words in ((10**12, "trillion"), (10**9, "billion"), (10**6, "million")):
        if parameters >= scale:
            return f"{parameters / scale:.3g} {words}"
    return f"{parameters:,}"


def _gigabytes(size: float) -> str:
    """As the paper rounds: 41.25 is 41.3."""
    return f"{size / 1e9 + 1e-9:.3g}"


def _parts(bar: Mapping[str, float]) -> str:
    listed = ", ".join(f"{part} {show_bytes(size)}" for part, size in bar.items() if size)
    return f"{show_bytes(sum(bar.values()))} ({listed})"


def _told(
    bars: Sequence[Mapping[str, float]], table: Mapping[int, Sequence[float]], ranks: int, memory: int, name: str
) -> str:
    now = " ".join(f"{stage}: {_parts(bar)}." for stage, bar in zip(STAGES, bars, strict=True))
    rows = "; ".join(
        f"{n:,} rank{'s' * (n > 1)} {', '.join(_gigabytes(size) + ('' if size <= memory else ' (does not fit)') for size in sizes)}"
        for n, sizes in table.items()
    )
    return f"A rank of {ranks} holds: {now} Stages 1, 2 and 3 in GB, against {name}: {rows}."


@dataclass(frozen=True, repr=False)
class StageExplorer(WithWidget):
    """`stage_table` behind menus. models: name to parameters. gpus: name to bytes."""

    models: Mapping[str, int]
    gpus: Mapping[str, int]
    state_bytes: StateBytes
    note: str

    def figure(self, model: str, ranks: int, optimizer: str, precision: str, gpu: str) -> Figure:
        title = f"{model}, {optimizer}, {precision}, {ranks:,} ranks {self.note}".strip()
        return stage_table(
            self.models[model], ranks, self.gpus[gpu], gpu, optimizer, precision, self.state_bytes, title
        )

    @cached_property
    def _shown(self) -> dict[str, str]:
        """The first figure, drawn once for widget and stand-in."""
        return self.figure(next(iter(self.models)), 64, "adam", "mixed", next(iter(self.gpus)))._repr_mimebundle_()

    def widget(self) -> Any:
        """Menus above the figure; it is drawn again when one is changed."""
        import ipywidgets as w

        narrow = {"width": "230px"}
        menus = [
            w.Dropdown(options=options, value=value, description=name, layout=narrow)
            for name, options, value in (
                ("model", list(self.models), next(iter(self.models))),
                ("ranks", [2**k for k in range(11)], 64),
                ("optimizer", ["adam", "momentum", "sgd"], "adam"),
                ("precision", ["mixed", "fp32"], "mixed"),
                ("GPU", list(self.gpus), next(iter(self.gpus))),
            )
        ]
        picture = w.HTML(self._shown["text/html"])

        def draw(_: object) -> None:
            picture.value = self.figure(*(menu.value for menu in menus))._repr_html_()

        for menu in menus:
            menu.observe(draw, names="value")
        return w.VBox([w.HBox(menus, layout={"flex_flow": "row wrap"}), picture])


def stage_explorer(
    models: Mapping[str, int], gpus: Mapping[str, int], state_bytes: StateBytes = zero_memory, note: str = ""
) -> StageExplorer:
    """`stage_table` behind menus of models (name to parameters), ranks, optimizer, precision and GPUs (name to bytes).

    note: stands at the end of the title. Raises ValueError without a model or a GPU.
    """
    if not models or not gpus:
        raise ValueError(f"{len(models)} models and {len(gpus)} GPUs: at least one of each is needed")
    return StageExplorer(dict(models), dict(gpus), state_bytes, note)
