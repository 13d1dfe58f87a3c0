"""Many short labels in the boxes of a chart, such as the micro-batch in each: those alike are drawn at once.

Floor 3, room `viz`. A text of matplotlib's own takes milliseconds, and a pipeline's chart has hundreds of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.textpath import TextPath
from matplotlib.transforms import Affine2D

from lockstep.viz.figure import INK, STYLE

Places = Mapping[tuple[str, float], Sequence[tuple[float, float]]]


def write_labels(axes: Axes, places: Places, zorder: float = 4, color: str = INK, behind: str | None = None) -> None:
    """Write each label at its places; by label and size in points, the middles of the boxes, in data coordinates.

    behind: the colour of a plain place around each, where its box is hatched.
    """
    for (label, size), middles in places.items():
        outline = _outline(label, size)
        if behind is not None:
            _stamp(axes, _around(outline), middles, facecolor=behind, zorder=zorder)
        _stamp(axes, outline, middles, facecolor=color, zorder=zorder, gid=label)


def _stamp(axes: Axes, shape: Path, middles: Sequence[tuple[float, float]], **look: Any) -> None:
    """One shape in points, at each of these places."""
    drawn = PathCollection([shape], offsets=middles, offset_transform=axes.transData)
    drawn.set(linewidth=0, **look)
    drawn.set_transform(Affine2D().scale(1 / 72) + axes.figure.dpi_scale_trans)
    axes.add_collection(drawn, autolim=False)


@cache
def _around(outline: Path) -> Path:
    box = outline.get_extents().padded(1.2)
    return Path([(box.x0, box.y0), (box.x1, box.y0), (box.x1, box.y1), (box.x0, box.y1)])


@cache
def _outline(label: str, size: float) -> Path:
    """The label's shape in points, its middle at (0, 0); up and down, that of a digit."""
    font = FontProperties(family=STYLE["font.sans-serif"])
    shape, digit = (TextPath((0, 0), text, size=size, prop=font) for text in (label, "0"))
    across, up = shape.get_extents(), digit.get_extents()
    return shape.transformed(Affine2D().translate(-(across.x0 + across.x1) / 2, -(up.y0 + up.y1) / 2))
