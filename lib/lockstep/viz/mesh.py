"""Ranks of a mesh in their nodes, and what a plan sends over which links.

Floor 3, room `viz`. `mesh_plan` is the figure for one mesh; `mesh_explorer` the same figure with a slider for each axis.
Bytes are counted by a function that is given, so that a reader's own one can be shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Rectangle

from lockstep.comm import MeshShape
from lockstep.hardware import Cluster
from lockstep.trace.units import show_bytes, show_seconds
from lockstep.viz.figure import INK, QUIET, VERMILLION, Figure, our_style
from lockstep.viz.split import LOOKS
from lockstep.viz.with_widget import WithWidget

WIDTH, LOW, HIGH = 9.4, 3.3, 4.6  # inches; low for at most three nodes
MOST = 64  # ranks that can be read
AXIS_LOOKS = {"data": LOOKS[0], "pipeline": LOOKS[4], "tensor": LOOKS[1]}
CLEAR = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}

Count = Callable[[Mapping[str, int], int, float, float, float], Mapping[str, float]]
"""count(axes, per_node, gradients, activations, boundary): bytes "within" and "between" nodes, of all ranks together."""


@dataclass(frozen=True)
class PlanSizes:
    """Of a whole model and batch, in bytes, before anything is shared out.

    gradients: of all parameters. activations: what tensor groups add up in a step. boundary: the activation at a cut
    of the pipeline. state: parameters, gradients and optimizer state.
    """

    gradients: float
    activations: float
    boundary: float
    state: float

    def on_a_rank(self, axes: Mapping[str, int]) -> tuple[float, float, float]:
        """Gradients, activations and boundary of one rank, when the three axes share them out."""
        d, p, t = (axes.get(name, 1) for name in ("data", "pipeline", "tensor"))
        return self.gradients / (p * t), self.activations / (d * p), self.boundary / d


def mesh_plan(
    axes: Mapping[str, int], cluster: Cluster, sizes: PlanSizes, count: Count, title: str = "A mesh on its nodes"
) -> Figure:
    """Left, ranks in their nodes, with the groups of rank 0; right, bytes by axis and link, and memory of a rank.

    axes: sizes of data, pipeline and tensor, the last one varying fastest; one that is left out counts as 1. Raises
    ValueError for other axes, and for more ranks than can be read, 64.
    """
    axes = _complete(axes)
    shape = MeshShape(axes)
    if shape.ranks > MOST:
        raise ValueError(f"{shape} has {shape.ranks} ranks; the figure has room for {MOST}.")
    sent = _bytes(axes, cluster, sizes, count)
    state, said = sizes.state / (axes["pipeline"] * axes["tensor"]), _sentence(axes, cluster, sizes)
    nodes = math.ceil(shape.ranks / cluster.per_node)
    with our_style():
        canvas = Canvas(figsize=(WIDTH, LOW if nodes <= 3 else HIGH))
        canvas.text(0.01, 0.95, title, fontsize=12, fontweight="bold")
        canvas.text(
            0.01,
            0.895,
            f"{shape}, the last axis varying fastest. {said}".replace("the mesh ", "", 1),
            fontsize=8.5,
            color=QUIET,
        )
        tall = min(0.05 + 0.24 * nodes, 0.84)
        _draw_nodes(canvas.add_axes((0.01, 0.86 - tall, 0.49, tall)), shape, cluster.per_node)
        _draw_bytes(canvas.add_axes((0.625, 0.40, 0.365, 0.40)), sent)
        _draw_memory(canvas.add_axes((0.625, 0.10, 0.365, 0.13)), state, cluster.device.memory)
    return Figure(canvas, f"{title}. {said} {_in_words(shape, cluster, sent, state)}")


def _complete(axes: Mapping[str, int]) -> dict[str, int]:
    strange = [name for name in axes if name not in AXIS_LOOKS]
    if strange:
        raise ValueError(f"axis {strange[0]!r} is none of {', '.join(AXIS_LOOKS)}.")
    return {name: 1 for name in AXIS_LOOKS if name not in axes} | dict(axes)


def _bytes(axes: Mapping[str, int], cluster: Cluster, sizes: PlanSizes, count: Count) -> dict[str, dict[str, float]]:
    """By axis, then by link; a count is a sum over axes, so each axis is what is left when the others send nothing."""
    gradients, activations, boundary = sizes.on_a_rank(axes)
    alone = {"data": (gradients, 0, 0), "pipeline": (0, 0, boundary), "tensor": (0, activations, 0)}
    return {name: dict(count(dict(axes), cluster.per_node, *alone[name])) for name in alone}


def _sentence(axes: Mapping[str, int], cluster: Cluster, sizes: PlanSizes) -> str:
    seconds = seconds_of_axes(axes, cluster, sizes)
    parts = ", ".join(f"{name} {show_seconds(time)}" for name, time in seconds.items() if axes[name] > 1)
    return f"Sending takes {show_seconds(sum(seconds.values()))}" + (f": {parts}." if parts else ".")


def seconds_of_axes(axes: Mapping[str, int], cluster: Cluster, sizes: PlanSizes) -> dict[str, float]:
    """Seconds that a rank's messages take along each axis, by bandwidth alone, when nothing else uses its link.

    A ring, and a line of stages, is as slow as the slowest of its links.
    """
    axes = _complete(axes)
    shape, found = MeshShape(axes), {}
    gradients, activations, boundary = sizes.on_a_rank(axes)
    for name, size in (("data", gradients), ("pipeline", boundary), ("tensor", activations)):
        k = axes[name]
        groups = {shape.group(rank, name) for rank in range(shape.ranks)}
        crosses = any(cluster.node(group[0]) != cluster.node(member) for group in groups for member in group)
        moved = (2 * size if k > 1 else 0.0) if name == "pipeline" else 2 * (k - 1) / k * size
        found[name] = moved / (cluster.between if crosses else cluster.within).bandwidth
    return found


def _in_words(shape: MeshShape, cluster: Cluster, sent: Mapping[str, Mapping[str, float]], state: float) -> str:
    groups = "; ".join(
        f"{name} {', '.join(map(str, shape.group(0, name)))}" for name, size in shape.axes.items() if size > 1
    )
    moved = "; ".join(
        f"{name} {show_bytes(links['within'])} inside nodes and {show_bytes(links['between'])} between them"
        for name, links in sent.items()
        if shape.axes[name] > 1
    )
    return (
        f"{shape.ranks} ranks, {cluster.per_node} in a node. Groups of rank 0: "
        f"{groups or 'none'}. Bytes of all ranks: {moved or 'none'}. Memory of a rank's state: {show_bytes(state)} of "
        f"{show_bytes(cluster.device.memory)}."
    )


def _draw_nodes(axes: Axes, shape: MeshShape, per_node: int) -> None:
    """A row of boxes for each node; colour and hatch by pipeline stage, letters on the groups of rank 0."""
    nodes = math.ceil(shape.ranks / per_node)
    for rank in range(shape.ranks):
        column, row = rank % per_node, rank // per_node
        at, place = shape.coordinates(rank), (rank % per_node + 0.06, -row)
        color, hatch = LOOKS[at["pipeline"] % len(LOOKS)]
        look = {"facecolor": color, "hatch": hatch, "edgecolor": INK, "linewidth": 0.5, "alpha": 0.75}
        axes.add_patch(Rectangle(place, 0.88, 0.8, **look))
        letters = "".join(name[0].upper() for name in shape.axes if rank in shape.group(0, name)[1:])
        if letters or rank == 0:
            axes.add_patch(Rectangle(place, 0.88, 0.8, facecolor="none", edgecolor=VERMILLION, linewidth=2.2))
        words = f"{rank} {letters}\n" + " ".join(f"{name[0]}{at[name]}" for name in shape.axes)
        size = 7.5 if per_node <= 4 else 6
        axes.text(column + 0.5, 0.4 - row, words, ha="center", va="center", fontsize=size, linespacing=1.25, bbox=CLEAR)
    for row in range(nodes):
        axes.text(-0.01 * per_node, 0.4 - row, f"node {row}", ha="right", va="center", fontsize=7.5, color=QUIET)
    axes.set_xlim(-0.13 * per_node, per_node)
    axes.set_ylim(0.95 - nodes, 0.95 + 0.05 * nodes)
    words = "pattern: pipeline stage; D, P, T: in a group with rank 0"
    axes.text(0.06, 0.95 + 0.05 * nodes, words, fontsize=7.5, color=QUIET, va="top")
    axes.axis("off")


def _draw_bytes(axes: Axes, sent: Mapping[str, Mapping[str, float]]) -> None:
    """Two stacked bars, by axis: what stays inside nodes and what goes between them."""
    most = max(max(sum(links[link] for links in sent.values()) for link in ("within", "between")), 1.0)
    for row, link in enumerate(("within", "between")):
        left = 0.0
        for name, links in sent.items():
            color, hatch = AXIS_LOOKS[name]
            label = name if row == 0 else None
            axes.barh(
                row, links[link], 0.6, left=left, color=color, hatch=hatch, edgecolor=INK, linewidth=0.6, label=label
            )
            left += links[link]
        axes.text(left + 0.015 * most, row, f" {show_bytes(left)}", va="center", fontsize=8.5)
    axes.set_yticks((0, 1), ("inside nodes", "between nodes"), fontsize=8.5)
    axes.set_ylim(1.5, -0.5)
    axes.set_xlim(0, 1.3 * most)
    axes.set_xticks([])
    axes.set_title("bytes of all ranks in a step", fontsize=9, loc="left")
    axes.legend(loc="upper center", bbox_to_anchor=(0.42, -0.02), ncols=3, frameon=False, fontsize=8.5)
    _open(axes)


def _draw_memory(axes: Axes, state: float, memory: float) -> None:
    color, hatch = LOOKS[3]
    axes.barh(0, state, 0.6, color=color, hatch=hatch, edgecolor=INK, linewidth=0.6)
    axes.axvline(memory, color=VERMILLION, linewidth=1.8, linestyle="--")
    words = f"{show_bytes(state)}, {'more than' if state > memory else 'of'} {show_bytes(memory)}"
    axes.set_title(f"state of a rank: {words} (- - -)", fontsize=9, loc="left")
    axes.set_yticks([])
    axes.set_xticks([])
    axes.set_xlim(0, 1.15 * max(state, memory))
    _open(axes)


def _open(axes: Axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


@dataclass(frozen=True, repr=False)
class MeshExplorer(WithWidget):
    """`mesh_plan` behind a slider for each axis and a menu for their order; it begins with `axes`."""

    axes: Mapping[str, int]
    cluster: Cluster
    sizes: PlanSizes
    count: Count
    title: str
    most: int = 16

    def figure(self, axes: Mapping[str, int]) -> Figure | str:
        """The plan of `axes`; where it cannot be drawn, the sentence why."""
        try:
            return mesh_plan(axes, self.cluster, self.sizes, self.count, self.title)
        except ValueError as error:
            return str(error)

    @cached_property
    def _shown(self) -> dict[str, str]:
        """The first figure, drawn once for widget and stand-in."""
        return self.figure(self.axes)._repr_mimebundle_()

    def widget(self) -> Any:
        """Sliders and menu above the figure; it is drawn again when one is let go."""
        import ipywidgets as w

        powers = [2**i for i in range(self.most.bit_length())]
        sliders = {
            name: w.SelectionSlider(options=powers, value=size, description=name, continuous_update=False)
            for name, size in self.axes.items()
        }
        orders: Sequence[str] = [" x ".join(order) for order in permutations(self.axes)]
        menu = w.Dropdown(options=orders, value=" x ".join(self.axes), description="order")
        picture = w.HTML(self._shown["text/html"])

        def draw(_: object) -> None:
            made = self.figure({name: sliders[name].value for name in menu.value.split(" x ")})
            picture.value = made if isinstance(made, str) else made._repr_html_()

        for control in (*sliders.values(), menu):
            control.observe(draw, names="value")
        return w.VBox([w.HBox([*sliders.values(), menu], layout={"flex_flow": "row wrap"}), picture])


def mesh_explorer(
    axes: Mapping[str, int], cluster: Cluster, sizes: PlanSizes, count: Count, title: str = "A mesh on its nodes"
) -> MeshExplorer:
    """`mesh_plan` with a slider for each axis, powers of two up to 16, and a menu for their order.

    Raises what `mesh_plan` raises, and ValueError for sizes that no slider has.
    """
    axes = _complete(axes)
    mesh_plan(axes, cluster, sizes, count, title)
    for name, size in axes.items():
        if size & (size - 1) or size > MeshExplorer.most:
            raise ValueError(f"{name}={size}: a slider has powers of two, up to {MeshExplorer.most}.")
    return MeshExplorer(axes, cluster, sizes, count, title)
