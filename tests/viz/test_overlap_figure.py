"""The three rows of a step, in words and in boxes."""

import pytest

from lockstep.trace import Message, Span, Trace
from lockstep.viz.overlap import step_timelines

HIDDEN = Trace.of(
    2,
    [Span(0, "compute", "backward", 1.0, 1.04), Span(1, "compute", "backward", 1.0, 1.02)],
    [Message(0, 1, 8, 1.02, 1.05)],
    "simulated",
)
EXPOSED = Trace.of(2, [Span(0, "compute", "backward", 0, 0.04)], [Message(0, 1, 8, 0.04, 0.08)], "simulated")
SILENT = Trace.of(1, [Span(0, "compute", "backward", 0, 0.01)], [], "simulated")


def test_the_text_alternative_carries_the_numbers():
    figure = step_timelines({"some": HIDDEN, "none": EXPOSED, "one rank": SILENT}, "A step", {"some": 0.045})
    assert figure.alt == (
        "A step (simulated). some: 50 ms (predicted 45 ms), 33 % of the communication hidden, 10 ms exposed; 30 ms of the "
        "critical path is communication. none: 80 ms, 0 % of the communication hidden, 40 ms exposed; 40 ms of the critical "
        "path is communication. one rank: 10 ms, nothing sent."
    )
    (axes,) = figure.matplotlib.axes
    words = {text.get_text() for text in axes.texts}
    assert {
        "50 ms",
        "predicted 45 ms",
        "10 ms exposed, 33 % hidden",
        "0 ms exposed",
        "rank 0 computes",
        "rank 0 sends",
    } <= words
    assert len(axes.lines) == 1, "one predicted end"


def test_a_bucket_has_a_box_of_its_own():
    spans = [Span(0, "compute", "backward", 0, 10)]
    spans += [Span(0, "collective", "all_reduce", 2 + i, 3 + i, stream=1, detail={"group": (0,), "sequence": i})
              for i in range(3)]  # fmt: skip
    (axes,) = step_timelines({"a": Trace.of(1, spans, [], "paced")}).matplotlib.axes
    assert sorted(bar.get_width() for bar in axes.patches if bar.get_hatch() == "xx") == pytest.approx([1, 1, 1])


@pytest.mark.parametrize(
    ("runs", "predicted", "rank"), [({}, None, 0), ({"a": HIDDEN}, {"b": 1.0}, 0), ({"a": HIDDEN}, None, 2)]
)
def test_what_cannot_be_drawn_is_said(runs, predicted, rank):
    with pytest.raises(ValueError, match="there"):
        step_timelines(runs, "A step", predicted, rank)
