"""A moving figure: its frames, a slider, a play button that waits to be pressed.

Floor 3. Core ipywidgets only (7.7 or later); without them, or where they are not shown, one frame.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lockstep.viz.figure import image_tag
from lockstep.viz.with_widget import WithWidget


@dataclass(frozen=True)
class Frame:
    """One picture: `alt` says what it shows, `label` what the slider says beside it."""

    png: bytes
    alt: str
    label: str


class Frames(Sequence):
    """`count` frames, each drawn by `draw(number)` when it is first looked at: a reader sees one before the others."""

    def __init__(self, draw: Callable[[int], Frame], count: int) -> None:
        self.draw, self.count = draw, count
        self.drawn: dict[int, Frame] = {}

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, at: int) -> Frame:
        at = range(self.count)[at]
        if at not in self.drawn:
            self.drawn[at] = self.draw(at)
        return self.drawn[at]


@dataclass(frozen=True, repr=False)
class Player(WithWidget):
    """frames: the pictures. alt: the whole, numbers included. width: css pixels.

    along: what the slider moves through. start: the frame that is shown first; the last one by default.
    """

    frames: Sequence[Frame]
    alt: str
    width: int
    along: str = "time"
    start: int = -1

    def widget(self) -> Any:
        """A new ipywidgets box that shows the first view until the reader moves the slider or presses play."""
        import ipywidgets as w

        last = len(self.frames) - 1
        first = self.start % len(self.frames)
        image = w.HTML(self._tag(first))
        slider = w.IntSlider(first, 0, last, description=self.along, readout=False, continuous_update=True)
        said = w.Label(self.frames[first].label)
        play = w.Play(value=0, min=0, max=last, interval=500)

        def show(change: dict) -> None:
            image.value = self._tag(change["new"])
            said.value = self.frames[change["new"]].label

        slider.observe(show, names="value")
        play.observe(lambda change: setattr(slider, "value", change["new"]), names="value")
        return w.VBox([w.HBox([play, slider, said]), image])

    def _tag(self, index: int) -> str:
        frame = self.frames[index]
        return image_tag(frame.png, frame.alt, self.width)

    @property
    def _shown(self) -> dict[str, str]:
        return {"text/html": self._repr_html_(), "text/plain": self.alt}

    def _repr_html_(self) -> str:
        return image_tag(self.frames[self.start].png, self.alt, self.width)
