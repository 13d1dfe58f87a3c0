"""Bytes inside nodes and between them, for several ways to do one thing.

Floor 3, room `viz`.
"""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure as Canvas

from lockstep.trace.units import show_bytes
from lockstep.viz.figure import INK, Figure, our_style
from lockstep.viz.split import LOOKS

LINKS = {"within": "inside nodes", "between": "between nodes"}


def link_bytes(ways: Mapping[str, Mapping[str, float]], title: str = "Bytes by link") -> Figure:
    """Two bars for each way, what is sent "within" nodes and what "between" them, one below the other.

    Raises ValueError without a way, and for one that lacks one of the two.
    """
    if not ways or any(set(sent) != set(LINKS) for sent in ways.values()):
        raise ValueError(f'give at least one way, each with "within" and "between"; these are {dict(ways)!r:.200}')
    most = max(max(sent.values()) for sent in ways.values()) or 1.0
    with our_style():
        canvas = Canvas(figsize=(9.4, 0.95 + 0.52 * len(ways)))
        canvas.text(0.01, 1 - 0.24 / canvas.get_figheight(), title, fontsize=12, fontweight="bold")
        axes = canvas.add_axes((0.36, 0.03, 0.62, 1 - 0.75 / canvas.get_figheight()))
        for i, (link, words) in enumerate(LINKS.items()):
            color, hatch = LOOKS[(1, 4)[i]]
            rows = [row + 0.4 * i for row in range(len(ways))]
            sizes = [sent[link] for sent in ways.values()]
            axes.barh(rows, sizes, 0.36, color=color, hatch=hatch, edgecolor=INK, linewidth=0.6, label=words)
            for row, size in zip(rows, sizes, strict=True):
                axes.text(size + 0.01 * most, row, show_bytes(size), va="center", fontsize=8.5)
        axes.set_yticks([row + 0.2 for row in range(len(ways))], list(ways), fontsize=8.5)
        axes.set_ylim(len(ways) - 0.3, -0.35)
        axes.set_xlim(0, 1.14 * most)
        axes.set_xticks([])
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, frameon=False, fontsize=8.5)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    said = "; ".join(
        f"{way}: {show_bytes(sent['within'])} inside nodes, {show_bytes(sent['between'])} between them"
        for way, sent in ways.items()
    )
    return Figure(canvas, f"{title}. {said}.")
