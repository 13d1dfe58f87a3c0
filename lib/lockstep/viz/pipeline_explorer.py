"""Stages, micro-batches and schedule behind a menu and two sliders: the figure of `gantt`, with its bubble and memory.

The model is the same whatever the schedule: a chunk of two on a rank costs half of what a stage costs.
Floor 3, room `viz`. Core ipywidgets only; without them, or where they are not shown, the first figure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lockstep.parallel.pipeline import Schedule
from lockstep.viz.figure import Figure
from lockstep.viz.gantt import gantt
from lockstep.viz.with_widget import WithWidget

Maker = Callable[[int, int], Schedule]


@dataclass(frozen=True, repr=False)
class PipelineExplorer(WithWidget):
    """makers: schedules by name, each a function of stages and micro-batches. first: what is shown at the start."""

    makers: Mapping[str, Maker]
    first: tuple[str, int, int]
    most: tuple[int, int] = (8, 24)

    def figure(self, name: str, stages: int, micro_batches: int) -> Figure | str:
        """The chosen schedule; where it does not exist for these numbers, the sentence why."""
        try:
            schedule = self.makers[name](stages, micro_batches)
        except ValueError as error:
            return str(error)
        said = f"{stages} stage{'s' * (stages != 1)}, {micro_batches} micro-batch{'es' * (micro_batches != 1)}"
        return gantt({name: schedule}, f"{name}, {said}")

    @cached_property
    def _shown(self) -> dict[str, str]:
        """The first figure, drawn once for widget and stand-in."""
        return self.figure(*self.first)._repr_mimebundle_()

    def widget(self) -> Any:
        """Menu and sliders above the figure; it is drawn again when one is let go."""
        import ipywidgets as w

        name, stages, micro_batches = self.first
        menu = w.Dropdown(options=list(self.makers), value=name, description="schedule")
        slider = {"continuous_update": False, "layout": {"width": "300px"}}
        many = w.IntSlider(stages, 1, self.most[0], description="stages", **slider)
        cut = w.IntSlider(micro_batches, 1, self.most[1], description="micro-batches", **slider)
        picture = w.HTML()

        def draw(_: object) -> None:
            made = self.figure(menu.value, many.value, cut.value)
            picture.value = made if isinstance(made, str) else made._repr_html_()

        for control in (menu, many, cut):
            control.observe(draw, names="value")
        picture.value = self._shown["text/html"]
        return w.VBox([w.HBox([menu, many, cut], layout={"flex_flow": "row wrap"}), picture])


def pipeline_explorer(
    makers: Mapping[str, Maker], schedule: str | None = None, stages: int = 4, micro_batches: int = 8
) -> PipelineExplorer:
    """`gantt` behind a menu of `makers` (functions of stages and micro-batches) and sliders for both numbers.

    schedule: the name shown first. Raises ValueError without makers, for a name that is not among them, and for numbers
    with which that schedule does not exist.
    """
    if not makers or (schedule is not None and schedule not in makers):
        raise ValueError(f"there is no schedule {schedule!r}; there are: {', '.join(makers) or 'none'}")
    explorer = PipelineExplorer(dict(makers), (schedule or next(iter(makers)), stages, micro_batches))
    explorer.makers[explorer.first[0]](stages, micro_batches)
    return explorer
