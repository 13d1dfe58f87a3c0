"""Bytes that a rank sends in a step, layer by layer, for several ways to split a network.

Floor 3, room `viz`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure as Canvas

from lockstep.trace.units import show_bytes
from lockstep.viz.curves import LOOKS
from lockstep.viz.figure import QUIET, Figure, our_style


def split_traffic(
    names: Sequence[str], splits: Mapping[str, Sequence[float]], title: str = "Bytes that a rank sends in a step"
) -> Figure:
    """A mark for each layer and split, on a logarithmic axis; the lines only join what belongs together.

    names: of the layers. splits: way to split -> bytes of each layer, all above 0. Raises ValueError for more ways than
    there are looks, five, or for bytes of another number of layers.
    """
    if len(splits) > len(LOOKS) or any(len(sizes) != len(names) or min(sizes) <= 0 for sizes in splits.values()):
        raise ValueError(f"at most {len(LOOKS)} splits, each with {len(names)} numbers above 0, can be drawn")
    with our_style():
        canvas = Canvas(figsize=(9.4, 3.4))
        axes = canvas.add_axes((0.085, 0.17, 0.905, 0.63))
        canvas.text(0.01, 0.94, title, fontsize=12, fontweight="bold")
        for look, (split, sizes) in zip(LOOKS, splits.items(), strict=False):
            axes.plot(sizes, label=split, linewidth=1.3, **look)
        axes.set_yscale("log")
        axes.set_xticks(range(len(names)), names, rotation=35, ha="right", rotation_mode="anchor", fontsize=7.5)
        axes.yaxis.set_major_formatter(lambda size, _: show_bytes(size))
        axes.grid(axis="y", color="#D9D9D9", linewidth=0.6)
        axes.tick_params(axis="y", labelsize=8.5, labelcolor=QUIET)
        canvas.legend(loc="upper left", bbox_to_anchor=(0.0, 0.93), ncols=len(splits), frameon=False, fontsize=8.5)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    said = " ".join(_words(split, names, sizes) for split, sizes in splits.items())
    return Figure(canvas, f"{title}. {said}")


def _words(split: str, names: Sequence[str], sizes: Sequence[float]) -> str:
    listed = ", ".join(f"{name} {show_bytes(size)}" for name, size in zip(names, sizes, strict=True))
    return f"{split}: {listed}; {show_bytes(sum(sizes))} in all."
