"""When compression pays: the seconds of a step against the bandwidth of the link, dense and with compressors.

Floor 3, room `viz`. A step here is computing, then compressing, then sending, one after another: nothing is hidden.
`break_even_explorer` is the figure of `break_even` behind menus.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch

from lockstep.trace.units import show_number, show_seconds
from lockstep.viz.compression import BETTER, WIDTH, looks_of
from lockstep.viz.figure import INK, QUIET, Figure, our_style
from lockstep.viz.with_widget import WithWidget

PARTS = {
    "computing": ("#9A9A9A", ""),
    "compressing": ("#FFFFFF", "xxx"),
    "network": ("#DDDDDD", "//"),
}  # greys: colours are ways
SLOWEST, FASTEST = 1e7, 1e12  # bits a second, the ends of the axis
MOST_SHOWN = 3.0  # times as long as dense
GIGABIT = 1e9 / 8  # bytes a second


@dataclass(frozen=True)
class Step:
    """One rank's step: seconds of computing and compressing; bytes it sends, in messages that follow one another."""

    computing: float
    compressing: float
    nbytes: float
    messages: int = 0

    def parts(self, bandwidth: float, latency: float = 0.0) -> dict[str, float]:
        """Seconds of each part on a link of `bandwidth` bytes a second."""
        network = self.messages * latency + self.nbytes / bandwidth
        return {"computing": self.computing, "compressing": self.compressing, "network": network}

    def seconds(self, bandwidth: float, latency: float = 0.0) -> float:
        """Of the whole step."""
        return sum(self.parts(bandwidth, latency).values())

    def break_even(self, dense: Step, latency: float = 0.0) -> float | None:
        """The bandwidth, in bytes a second, below which this step is shorter than the dense one.

        None when it never is; infinite when it always is.
        """
        lost = self.compressing - dense.compressing + (self.messages - dense.messages) * latency
        saved = dense.nbytes - self.nbytes
        if lost <= 0:
            return float("inf") if saved >= 0 else None
        return saved / lost if saved > 0 else None


def break_even(
    steps: Mapping[str, Step], bandwidth: float, title: str, latency: float = 0.0, ways: Sequence[str] = ()
) -> Figure:
    """Left, a step against dense's by bandwidth, an upright mark where the two are equal; right, the parts at `bandwidth`.

    steps: way -> its step, the first of them dense. bandwidth: bytes a second, marked on the left. latency: seconds of
    a message. ways: all that there are, where `steps` are some of them, so that each keeps its look. Raises ValueError without a second way, and for a bandwidth that is not on the axis, 10 Mbit/s to 1 Tbit/s.
    """
    if len(steps) < 2:
        raise ValueError(f"give dense and at least one other way, not {list(steps)}")
    if not SLOWEST <= 8 * bandwidth <= FASTEST:
        raise ValueError(f"a bandwidth of {bandwidth!r} bytes a second is not between 10 Mbit/s and 1 Tbit/s")
    looks = looks_of(list(ways or steps))
    dense = next(iter(steps.values()))
    ends = {name: step.break_even(dense, latency) for name, step in steps.items() if step is not dense}
    with our_style():
        tall = max(3.3, 1.25 + 0.36 * len(steps))
        canvas = Canvas(figsize=(WIDTH, tall))
        canvas.text(0.01, 1 - 0.24 / tall, title, fontsize=12, fontweight="bold")
        left = canvas.add_axes((0.072, 0.5 / tall, 0.42, 1 - 1.02 / tall))
        right = canvas.add_axes((0.675, 0.5 / tall, 0.315, 1 - 1.02 / tall))
        _draw_factors(left, steps, ends, looks, bandwidth, latency)
        _draw_bars(right, steps, looks, bandwidth, latency)
        handles = [
            Patch(facecolor=c, hatch=h, edgecolor=INK, linewidth=0.6, label=part) for part, (c, h) in PARTS.items()
        ]
        canvas.legend(handles=handles, loc="lower right", bbox_to_anchor=(1, 0), ncols=3, frameon=False, fontsize=8.5)
    return Figure(canvas, f"{title}. {_told(steps, ends, bandwidth, latency)}")


def _draw_factors(
    axes: Axes,
    steps: Mapping[str, Step],
    ends: Mapping[str, float | None],
    looks: Mapping[str, Any],
    bandwidth: float,
    latency: float,
) -> None:
    """How many times as long as dense, against bandwidth: under 1 a way pays."""
    rates = np.geomspace(SLOWEST / 8, FASTEST / 8, 101)
    dense = np.array([next(iter(steps.values())).seconds(rate, latency) for rate in rates])
    most = 1.5
    for name, step in steps.items():
        factors = np.array([step.seconds(rate, latency) for rate in rates]) / dense
        axes.plot(8 * rates, factors, markevery=(10, 20), **looks[name])
        most = max(most, min(1.08 * factors.max(), MOST_SHOWN))
        end = ends.get(name)
        if end is not None and SLOWEST < 8 * end < FASTEST:
            axes.plot(8 * end, 1, "|", color=looks[name]["color"], markersize=17, markeredgewidth=2.2, zorder=5)
    axes.axhspan(0, 1, color=BETTER, linewidth=0, zorder=0)
    axes.axhspan(1, most, facecolor="white", hatch="///", edgecolor="#DDDDDD", linewidth=0, zorder=0)
    axes.axvline(8 * bandwidth, color=QUIET, linewidth=1.2, linestyle=":")
    axes.set(xscale="log", xlim=(SLOWEST, FASTEST), ylim=(0, most))
    axes.set_xticks([10.0**k for k in range(7, 13)], [show_rate(10.0**k / 8) for k in range(7, 13)])
    axes.set_title("seconds of a step, times dense's; blue: shorter; |: break-even", fontsize=9, loc="left")
    axes.tick_params(labelsize=7.5)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _draw_bars(
    axes: Axes, steps: Mapping[str, Step], looks: Mapping[str, Any], bandwidth: float, latency: float
) -> None:
    sizes = {name: step.seconds(bandwidth, latency) for name, step in steps.items()}
    dense, most = next(iter(sizes.values())), max(sizes.values())
    for row, (name, step) in enumerate(steps.items()):
        begin = 0.0
        for part, seconds in step.parts(bandwidth, latency).items():
            color, hatch = PARTS[part]
            axes.barh(row, seconds, 0.62, begin, color=color, hatch=hatch, edgecolor=INK, linewidth=0.6)
            begin += seconds
        words = show_seconds(begin) if row == 0 else f"{show_seconds(begin)}  {show_number(begin / dense)} x"
        bold = "bold" if begin < dense else "normal"
        axes.text(begin + 0.015 * most, row, words, va="center", fontsize=8.5, fontweight=bold)
        axes.plot(-0.04, row, transform=axes.get_yaxis_transform(), clip_on=False, **looks[name])
    axes.set_yticks(range(len(steps)), list(steps), fontsize=8.5)
    axes.tick_params(axis="y", pad=16, length=0)
    axes.set_ylim(max(len(steps), 4) - 0.5, -0.5)
    axes.set_xlim(0, 1.42 * most)
    axes.set_xticks([])
    axes.set_title(f"parts of a step at {show_rate(bandwidth)}; bold: shorter than dense", fontsize=9, loc="right")
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)


def show_rate(bandwidth: float) -> str:
    """Bytes a second as people say it: 125_000_000 -> "1 Gbit/s"."""
    bits = 8 * bandwidth
    for scale, unit in ((1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
        if bits >= scale * 0.9995:
            return f"{show_number(bits / scale)} {unit}"
    return f"{show_number(bits)} bit/s"


def _told(steps: Mapping[str, Step], ends: Mapping[str, float | None], bandwidth: float, latency: float) -> str:
    dense = next(iter(steps.values())).seconds(bandwidth, latency)
    said = []
    for name, step in steps.items():
        parts = step.parts(bandwidth, latency)
        listed = ", ".join(f"{part} {show_seconds(seconds)}" for part, seconds in parts.items())
        whole = sum(parts.values())
        words = f"{name} {show_seconds(whole)} ({listed})"
        if name in ends:
            words += f", {show_number(whole / dense)} times dense; {_pays(ends[name])}"
        said.append(words)
    return f"At {show_rate(bandwidth)}: " + ". ".join(said) + "."


def _pays(end: float | None) -> str:
    if end is None:
        return "never shorter"
    return "always shorter" if end == float("inf") else f"shorter below {show_rate(end)}"


@dataclass(frozen=True, repr=False)
class BreakEvenExplorer(WithWidget):
    """`break_even` behind menus. step: of a way among some ranks."""

    ways: Sequence[str]
    step: Callable[[str, int], Step]
    ranks: Sequence[int]
    bandwidths: Sequence[float]
    latency: float
    note: str
    first: tuple[str, int, float]

    def figure(self, way: str, ranks: int, bandwidth: float) -> Figure:
        """Dense and one other way, or all of them."""
        shown = self.ways if way == "all" else [self.ways[0], way]
        title = f"{ranks} ranks, {show_rate(bandwidth)} {self.note}".strip()
        return break_even({name: self.step(name, ranks) for name in shown}, bandwidth, title, self.latency, self.ways)

    @cached_property
    def _shown(self) -> dict[str, str]:
        """The first figure, drawn once for widget and stand-in."""
        return self.figure(*self.first)._repr_mimebundle_()

    def widget(self) -> Any:
        """Menus and a slider above the figure; it is drawn again when one is changed."""
        import ipywidgets as w

        way, ranks, bandwidth = self.first
        menu = w.Dropdown(
            options=["all", *self.ways[1:]], value=way, description="compressor", layout={"width": "300px"}
        )
        many = w.Dropdown(options=list(self.ranks), value=ranks, description="ranks", layout={"width": "180px"})
        rates = [(show_rate(rate), rate) for rate in self.bandwidths]
        link = w.SelectionSlider(
            options=rates, value=bandwidth, description="bandwidth", continuous_update=False, layout={"width": "380px"}
        )
        picture = w.HTML(self._shown["text/html"])

        def draw(_: object) -> None:
            picture.value = self.figure(menu.value, many.value, link.value)._repr_html_()

        for control in (menu, many, link):
            control.observe(draw, names="value")
        return w.VBox([w.HBox([menu, many, link], layout={"flex_flow": "row wrap"}), picture])


def break_even_explorer(
    ways: Sequence[str],
    step: Callable[[str, int], Step],
    ranks: Sequence[int] = (2, 4, 8, 16, 32, 64, 128),
    bandwidths: Sequence[float] = tuple(GIGABIT * rate for rate in (0.01, 0.1, 0.5, 1, 2.5, 10, 25, 100, 400)),
    latency: float = 0.0,
    note: str = "",
    first: tuple[str, int, float] | None = None,
) -> BreakEvenExplorer:
    """`break_even` behind menus of compressors and ranks and a slider for the bandwidth.

    ways: names, the first of them dense. step(way, ranks): what a rank does. note: stands at the end of the title. first:
    compressor or "all", ranks and bandwidth that are shown at the start. Raises ValueError for a first choice that is
    not offered, and without a second way.
    """
    first = first or ("all", ranks[0], bandwidths[0])
    if len(ways) < 2:
        raise ValueError(f"give dense and at least one other way, not {list(ways)}")
    if first[0] not in ("all", *ways[1:]) or first[1] not in ranks or first[2] not in bandwidths:
        raise ValueError(
            f"{first!r} is not among the ways {list(ways[1:])}, ranks {list(ranks)}, rates {list(bandwidths)}"
        )
    return BreakEvenExplorer(tuple(ways), step, tuple(ranks), tuple(bandwidths), latency, note, first)
