"""The memory of training: stacked bars by part against a GPU's memory, and what is alive during a step.

Floor 3, room `viz`. `memory_bars` is the static figure, `memory_explorer` the same figure behind menus for network,
batch, optimizer and precision; `memory_curve` draws predicted and measured steps on one axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from lockstep.cost import MemoryByBatch, StepMemory, TrainingMemory
from lockstep.viz.figure import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    QUIET,
    SKY,
    VERMILLION,
    YELLOW,
    Figure,
    our_style,
)
from lockstep.viz.with_widget import WithWidget

WIDTH = 9.4  # inches
GIB = 2**30
LOOKS = {
    "parameters": (BLUE, ""),
    "gradients": (SKY, "//"),
    "master_weights": (PURPLE, "\\\\"),
    "optimizer_state": (ORANGE, "xx"),
    "activations": (GREEN, ".."),
    "workspace": (YELLOW, "||"),
}
CLEAR = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}  # behind words that may lie on a line
LINES = ((BLUE, "-", 3.4), (VERMILLION, "--", 1.6), (GREEN, ":", 2.4), (PURPLE, "-.", 2.0))


def memory_bars(
    bars: Mapping[str, TrainingMemory | Mapping[str, int]],
    limit: int | None = None,
    title: str = "Memory of a training step",
    limit_name: str = "the GPU's memory",
) -> Figure:
    """One stacked bar for each name, in GiB, with its total beside it; a line where the memory ends.

    bars: `TrainingMemory`, or bytes by the names of its parts. limit: bytes. Raises ValueError without bars, and for a
    part of another name.
    """
    parts = {name: dict(bar.parts if isinstance(bar, TrainingMemory) else bar) for name, bar in bars.items()}
    unknown = {part for bar in parts.values() for part in bar} - set(LOOKS)
    if not parts or unknown:
        raise ValueError(f"a memory figure needs bars with the parts {', '.join(LOOKS)}, not {sorted(unknown)}")
    with our_style():
        canvas = Canvas(figsize=(WIDTH, 1.45 + 0.42 * len(parts)))
        axes = canvas.add_axes(_box(canvas, parts))
        canvas.text(0.01, 1 - 0.22 / canvas.get_figheight(), title, fontsize=12, fontweight="bold")
        _stack(axes, parts, limit)
        if limit is not None:
            axes.axvline(limit / GIB, color=VERMILLION, linewidth=2, linestyle="--", label=limit_name)
        shown = axes.get_legend_handles_labels()
        canvas.legend(*shown, loc="lower center", ncols=len(shown[0]), frameon=False, fontsize=8.5, columnspacing=1.2)
    return Figure(
        canvas, f"{title}. {' '.join(_sentence(name, bar, limit, limit_name) for name, bar in parts.items())}"
    )


def _box(canvas: Canvas, parts: Mapping[str, object]) -> tuple[float, float, float, float]:
    height, left = canvas.get_figheight(), 0.02 + 0.0085 * max(map(len, parts))
    return (left, 0.82 / height, 0.98 - left, 1 - 1.2 / height)


def _stack(axes: Axes, parts: Mapping[str, Mapping[str, int]], limit: int | None) -> None:
    names = list(parts)
    left = [0.0] * len(names)
    for part, (color, hatch) in LOOKS.items():
        sizes = [parts[name].get(part, 0) / GIB for name in names]
        if any(sizes):
            label = part.replace("_", " ")
            axes.barh(names, sizes, 0.62, left, color=color, hatch=hatch, edgecolor=INK, linewidth=0.6, label=label)
            left = [at + size for at, size in zip(left, sizes, strict=True)]
    most = max(*left, (limit or 0) / GIB)
    for place, total in enumerate(left):
        axes.text(total + 0.008 * most, place, f"{total:.3g} GiB", va="center", fontsize=8.5, bbox=CLEAR, zorder=3)
    axes.set_xlim(0, 1.12 * most)
    axes.set_xlabel("GiB", fontsize=8.5, labelpad=1)
    axes.invert_yaxis()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _sentence(name: str, bar: Mapping[str, int], limit: int | None, limit_name: str) -> str:
    total = sum(bar.values())
    listed = ", ".join(f"{part.replace('_', ' ')} {size / GIB:.3g}" for part, size in bar.items() if size)
    end = ""
    if limit is not None:
        end = f", which {'fits into' if total <= limit else 'is more than'} {limit_name} of {limit / GIB:.3g} GiB"
    return f"{name}: {total / GIB:.3g} GiB in all ({listed}){end}."


def memory_curve(steps: Mapping[str, StepMemory], title: str = "Memory alive during a step") -> Figure:
    """Bytes alive after each operation of a step, one line for each name; its peak, forward, backward and update are marked.

    The marks are those of the first step. Raises ValueError without a step that has a curve.
    """
    drawn = {name: step for name, step in steps.items() if step.curve}
    if not drawn:
        raise ValueError("none of the steps has a curve; on CUDA only the peak is known")
    first = next(iter(drawn.values()))
    with our_style():
        canvas = Canvas(figsize=(WIDTH, 3.4))
        axes = canvas.add_axes((0.075, 0.135, 0.905, 0.7))
        canvas.text(0.01, 0.935, title, fontsize=12, fontweight="bold")
        for (name, step), (color, style, width) in zip(drawn.items(), LINES * len(drawn), strict=False):
            label = f"{name}: peak {step.peak / 1e6:,.1f} MB"
            axes.plot([size / 1e6 for size in step.curve], style, color=color, linewidth=width, label=label)
            axes.plot(step.curve.index(step.peak), step.peak / 1e6, "o", color=color, markeredgecolor=INK, zorder=3)
        top = 1.16 * max(step.peak for step in drawn.values()) / 1e6
        for part, place in first.marks:
            axes.axvline(place, color=QUIET, linewidth=0.8, linestyle=(0, (2, 2)))
            axes.text(place, 0.985 * top, f" {part}", va="top", fontsize=8.5, color=QUIET)
        axes.set_ylim(0, top)
        longest = max(len(step.curve) for step in drawn.values())
        axes.set_xlim(-0.02 * longest, longest)  # room for what happens before forward
        axes.set_xlabel("operations of the step, one after the other", fontsize=8.5, labelpad=2)
        axes.set_ylabel("MB alive")
        axes.legend(loc="lower right", frameon=True, fontsize=8.5)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    said = " ".join(_peak_sentence(name, step) for name, step in drawn.items())
    return Figure(canvas, f"{title}. {said}")


def _peak_sentence(name: str, step: StepMemory) -> str:
    at = step.curve.index(step.peak)
    part = next((part for part, place in reversed(step.marks) if place <= at), "forward")
    return (
        f"{name}: begins at {step.curve[0] / 1e6:,.1f} MB, peak {step.peak / 1e6:,.1f} MB in the {part}, ends at "
        f"{step.curve[-1] / 1e6:,.1f} MB."
    )


@dataclass(frozen=True, repr=False)
class MemoryExplorer(WithWidget):
    """`memory_bars` behind menus. memories: by (network, optimizer, precision). gpus: name to bytes."""

    memories: Mapping[tuple[str, str, str], MemoryByBatch]
    batches: Sequence[int]
    gpus: Mapping[str, int]

    def figure(self, network: str, batch: int, gpu: str, chosen: tuple[str, str]) -> Figure:
        """Every optimizer and precision for one network and batch; the chosen pair comes first."""
        pairs = [key[1:] for key in self.memories if key[0] == network]
        pairs.sort(key=lambda pair: pair != chosen)
        bars = {f"{one}, {kind}": self.memories[network, one, kind](batch) for one, kind in pairs}
        return memory_bars(
            bars, self.gpus[gpu], f"{network}, batch {batch}, against {gpu} (predicted)", gpu.split(",")[0]
        )

    @cached_property
    def _shown(self) -> dict[str, str]:
        """The first figure, drawn once for widget and stand-in."""
        network, optimizer, precision = next(iter(self.memories))
        first = self.figure(network, self.batches[0], next(iter(self.gpus)), (optimizer, precision))
        return first._repr_mimebundle_()

    def widget(self) -> Any:
        """Menus above the figure; it is drawn again when one is changed."""
        import ipywidgets as w

        networks, optimizers, precisions = (list(dict.fromkeys(key[i] for key in self.memories)) for i in range(3))
        menus = [
            w.Dropdown(options=options, value=options[0], description=name, layout={"width": "220px"})
            for name, options in (
                ("network", networks), ("batch", list(self.batches)), ("optimizer", optimizers),
                ("precision", precisions), ("GPU", list(self.gpus)),
            )
        ]  # fmt: skip
        picture = w.HTML(self._shown["text/html"])

        def draw(_: object) -> None:
            network, batch, optimizer, precision, gpu = (menu.value for menu in menus)
            picture.value = self.figure(network, batch, gpu, (optimizer, precision))._repr_html_()

        for menu in menus:
            menu.observe(draw, names="value")
        return w.VBox([w.HBox(menus, layout={"flex_flow": "row wrap"}), picture])


def memory_explorer(
    memories: Sequence[tuple[str, MemoryByBatch]], batches: Sequence[int], gpus: Mapping[str, int]
) -> MemoryExplorer:
    """The figure of `memory_bars` with menus for network, batch, optimizer, precision and GPU.

    memories: (network, `memory_by_batch(...)`) pairs. gpus: name to bytes. Raises ValueError when one of them is empty.
    """
    if not memories or not batches or not gpus:
        raise ValueError(f"{len(memories)} memories, {len(batches)} batches, {len(gpus)} GPUs: at least one of each")
    by_key = {(network, one.optimizer, one.precision): one for network, one in memories}
    return MemoryExplorer(by_key, tuple(batches), dict(gpus))
