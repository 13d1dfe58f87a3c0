"""A chain of layers cut into parts: what each layer costs, and what the cuts make of it.

Floor 3, room `viz`. `layer_split` is the figure for one list of cuts; `split_explorer` the same figure with a slider for
each cut. Times of parts are those of `plan.part_times`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from lockstep.plan import part_times, spans_of
from lockstep.trace.units import show_bytes, show_seconds
from lockstep.viz.figure import BLUE, GREEN, INK, ORANGE, PURPLE, QUIET, SKY, VERMILLION, YELLOW, Figure, our_style
from lockstep.viz.with_widget import WithWidget

WIDTH, HEIGHT = 9.4, 4.5  # inches
LOOKS = ((SKY, ""), (GREEN, "//"), (YELLOW, ".."), (PURPLE, "\\\\"), (ORANGE, "xx"), (BLUE, "||"))
MOST = len(LOOKS)  # parts that can be told apart
CLEAR = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}  # behind words that may lie on a line


@dataclass(frozen=True)
class ChainLayer:
    """seconds: forward and backward. output_bytes: of its activation. memory: bytes that it keeps while training."""

    name: str
    seconds: float
    output_bytes: int
    memory: int


def message_seconds(layers: Sequence[ChainLayer], bandwidth: float) -> list[float]:
    """Seconds that a cut after each layer but the last costs: its activation one way, the gradient the other."""
    return [2 * layer.output_bytes / bandwidth for layer in layers[:-1]]


def layer_split(
    layers: Sequence[ChainLayer], cuts: Sequence[int], bandwidth: float, title: str = "A chain of layers in parts"
) -> Figure:
    """Above, the seconds of every layer, by part; below, each part's seconds and memory, and the bytes of each cut.

    cuts: index of the first layer of each part but the first. bandwidth: bytes per second of a link between parts.
    Raises ValueError for cuts that do not rise, or for more parts than the figure can tell apart, six.
    """
    spans = _spans(layers, cuts)
    work = [sum(layers[i].seconds for i in span) for span in spans]
    times = part_times([layer.seconds for layer in layers], cuts, message_seconds(layers, bandwidth))
    memory = [sum(layers[i].memory for i in span) for span in spans]
    sent = [2 * layers[cut - 1].output_bytes for cut in cuts]
    said = _sentence(times, (sum(work) + sum(times)) / 2)
    with our_style():
        canvas = Canvas(figsize=(WIDTH, HEIGHT))
        canvas.text(0.01, 0.955, title, fontsize=12, fontweight="bold")
        canvas.text(0.01, 0.9, said, fontsize=8.5, color=QUIET)
        _draw_layers(canvas.add_axes((0.075, 0.545, 0.915, 0.30)), layers, spans, cuts)
        _draw_times(canvas.add_axes((0.075, 0.065, 0.345, 0.265)), work, times)
        _draw_bars(canvas.add_axes((0.505, 0.065, 0.195, 0.265)), "bytes over each cut", sent, _cut_names(cuts))
        parts = [f"part {j}" for j in range(len(spans))]
        _draw_bars(canvas.add_axes((0.795, 0.065, 0.195, 0.265)), "memory of each part", memory, parts, by_part=True)
    return Figure(canvas, f"{title}. {said} {_in_words(layers, spans, times, memory, cuts, sent)}")


def _spans(layers: Sequence[ChainLayer], cuts: Sequence[int]) -> list[range]:
    if len(cuts) >= MOST:
        raise ValueError(f"{len(cuts) + 1} parts are asked; the figure can tell {MOST} apart.")
    return spans_of(cuts, len(layers))


def _sentence(times: Sequence[float], one_pass: float) -> str:
    """one_pass: seconds of a batch through all parts, where each message is waited for once, by both its ends."""
    slowest = max(range(len(times)), key=times.__getitem__)
    return (
        f"Slowest: part {slowest} with {show_seconds(times[slowest])}, messages included; one batch through all parts: "
        f"{show_seconds(one_pass)}."
    )


def _in_words(
    layers: Sequence[ChainLayer],
    spans: Sequence[range],
    times: Sequence[float],
    memory: Sequence[int],
    cuts: Sequence[int],
    sent: Sequence[int],
) -> str:
    parts = "; ".join(
        f"part {j} has {layers[span[0]].name} to {layers[span[-1]].name}, {show_seconds(time)}, {show_bytes(held)}"
        for j, (span, time, held) in enumerate(zip(spans, times, memory, strict=True))
    )
    moved = ", ".join(
        f"{show_bytes(b)} over the cut before {layers[cut].name}" for cut, b in zip(cuts, sent, strict=True)
    )
    every = ", ".join(f"{layer.name} {show_seconds(layer.seconds)}" for layer in layers)
    return f"{parts}. {moved + ', both ways together. ' if moved else ''}Seconds of each layer: {every}."


def _cut_names(cuts: Sequence[int]) -> list[str]:
    return [f"{cut - 1}|{cut}" for cut in cuts]


def _look(part: int) -> Mapping[str, Any]:
    color, hatch = LOOKS[part]
    return {"color": color, "hatch": hatch, "edgecolor": INK, "linewidth": 0.6}


def _draw_layers(axes: Axes, layers: Sequence[ChainLayer], spans: Sequence[range], cuts: Sequence[int]) -> None:
    for part, span in enumerate(spans):
        bars = axes.bar(list(span), [1e3 * layers[i].seconds for i in span], 0.78, label=f"part {part}", **_look(part))
        axes.bar_label(bars, [f"{1e3 * layers[i].seconds:.3g}" for i in span], fontsize=7.5, padding=1)
    for cut in cuts:
        axes.axvline(cut - 0.5, color=VERMILLION, linewidth=1.6, linestyle="--")
    names = [f"{i} {layer.name}" for i, layer in enumerate(layers)]
    axes.set_xticks(range(len(layers)), names, rotation=35, ha="right", rotation_mode="anchor", fontsize=7.5)
    axes.set_xlim(-0.6, len(layers) - 0.4)
    axes.set_ylim(0, 1.18e3 * max(layer.seconds for layer in layers))
    axes.set_ylabel("ms, both passes", fontsize=8.5)
    axes.legend(loc="upper right", ncols=len(spans), frameon=True, framealpha=1, fontsize=8.5)
    _open(axes)


def _draw_times(axes: Axes, work: Sequence[float], times: Sequence[float]) -> None:
    """A bar for each part, layers first and messages behind; the slowest one has a line of its own."""
    for part, (own, whole) in enumerate(zip(work, times, strict=True)):
        axes.barh(part, 1e3 * own, 0.66, **_look(part))
        if whole > own:
            axes.barh(
                part, 1e3 * (whole - own), 0.66, left=1e3 * own, color="#F2B48C", hatch="--", edgecolor=INK, lw=0.6
            )
        axes.text(1.015e3 * whole, part, show_seconds(whole), va="center", fontsize=8.5, bbox=CLEAR, zorder=3)
    axes.axvline(1e3 * max(times), color=VERMILLION, linewidth=1.6, linestyle=":")
    axes.set_yticks(range(len(times)), [f"part {part}" for part in range(len(times))], fontsize=8.5)
    axes.set_ylim(len(times) - 0.4, -0.6)
    axes.set_xlim(0, 1.3e3 * max(times))
    axes.set_title("ms of each part, its messages last; dotted: the slowest", fontsize=9, loc="left")
    _open(axes)


def _draw_bars(axes: Axes, title: str, sizes: Sequence[int], names: Sequence[str], by_part: bool = False) -> None:
    for place, size in enumerate(sizes):
        look = _look(place) if by_part else {"color": "#F2B48C", "hatch": "--", "edgecolor": INK, "linewidth": 0.6}
        axes.barh(place, size, 0.66, **look)
        axes.text(size + 0.02 * max(sizes), place, f" {show_bytes(size)}", va="center", fontsize=8.5)
    axes.set_yticks(range(len(names)), names, fontsize=8.5)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0, 1.6 * max([*sizes, 1]))
    axes.set_xticks([])
    axes.set_title(title, fontsize=9, loc="left")
    _open(axes)


def _open(axes: Axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


@dataclass(frozen=True, repr=False)
class SplitExplorer(WithWidget):
    """`layer_split` with a slider for each cut; it begins with `cuts`."""

    layers: Sequence[ChainLayer]
    cuts: Sequence[int]
    bandwidth: float
    title: str

    def figure(self, cuts: Sequence[int]) -> Figure:
        return layer_split(self.layers, cuts, self.bandwidth, self.title)

    @cached_property
    def _shown(self) -> dict[str, str]:
        """The first figure, drawn once for widget and stand-in."""
        return self.figure(self.cuts)._repr_mimebundle_()

    def widget(self) -> Any:
        """Sliders above the figure; a slider that would pass its neighbour pushes it along."""
        import ipywidgets as w

        n, k = len(self.layers), len(self.cuts)
        sliders = [
            w.IntSlider(
                cut, j + 1, n - k + j, description=f"cut {j}", continuous_update=False, layout={"width": "300px"}
            )
            for j, cut in enumerate(self.cuts)
        ]
        picture = w.HTML(self._shown["text/html"])

        def moved(change: dict) -> None:
            j = sliders.index(change["owner"])
            values = pushed([slider.value for slider in sliders], j)
            if values == [slider.value for slider in sliders]:
                picture.value = self.figure(values)._repr_html_()
            for slider, value in zip(sliders, values, strict=True):
                slider.value = value

        for slider in sliders:
            slider.observe(moved, names="value")
        return w.VBox([w.HBox(sliders, layout={"flex_flow": "row wrap"}), picture])


def pushed(cuts: Sequence[int], moved: int) -> list[int]:
    """`cuts` with those beside the `moved` one pushed out of its way, so that they rise."""
    values = list(cuts)
    for j in range(moved + 1, len(values)):
        values[j] = max(values[j], values[j - 1] + 1)
    for j in range(moved - 1, -1, -1):
        values[j] = min(values[j], values[j + 1] - 1)
    return values


def split_explorer(
    layers: Sequence[ChainLayer], cuts: Sequence[int], bandwidth: float, title: str = "A chain of layers in parts"
) -> SplitExplorer:
    """`layer_split` with a slider for each cut. Raises what `layer_split` raises."""
    _spans(layers, cuts)
    return SplitExplorer(tuple(layers), tuple(cuts), bandwidth, title)
