"""What the figures of lab 02 say, read from their text alternatives and from the runs they record."""

import pytest
import torch

from lockstep.nn import functional as F
from lockstep.viz import curves, numbers, window, window_player
from lockstep.viz.windows import record


def test_a_window_is_recorded_from_the_function_itself():
    reading = record(F.conv2d, 5, 3, 2, 1, 1)
    assert reading.outputs == (3, 3) and len(reading.weight) == 9
    assert reading.weight[1, 1] == {(1 + a, 1 + b): (a, b) for a in range(3) for b in range(3)}
    assert reading.weight[0, 0] == {(a, b): (a + 1, b + 1) for a in range(2) for b in range(2)}
    turned = record(lambda x, weight, *rest: F.conv2d(x, weight.flip(2, 3), *rest), 4, 2, 1, 0, 1)
    assert turned.weight[0, 0] == {(0, 0): (1, 1), (0, 1): (1, 0), (1, 0): (0, 1), (1, 1): (0, 0)}


def test_the_figure_says_it_in_words_and_fits_into_a_notebook():
    figure = window(F.conv2d, size=7, padding=1, stride=2, dilation=2, output=(0, 2), title="Mine")
    assert figure.alt.startswith("Mine: stride 2, padding 1, dilation 2. Output (0, 2) of 3x3 reads 4 of 49 pixels:")
    assert figure.alt.endswith("The other 5 weights meet the frame of zeros.")
    assert figure.png()[:4] == b"\x89PNG" and len(figure.png()) < 45_000
    player = window_player(F.conv2d, size=3, kernel=2, title="Mine")
    assert player._repr_html_().startswith("<img") and list(player.frames.drawn) == [0], "the others when looked at"
    assert [frame.label for frame in player.frames] == [f"output ({p}, {q})" for p in range(2) for q in range(2)]


@pytest.mark.parametrize(
    "how, words",
    [
        ({"size": 10}, "size is 10; the figure shows images of 1 to 9"),
        ({"output": (3, 0)}, "there are 3 rows and 3 columns"),
        ({"conv": lambda *given: F.conv2d(*given) / 2}, "no single weight of the kernel"),
    ],
)
def test_what_cannot_be_drawn_is_a_sentence(how, words):
    with pytest.raises(ValueError, match=words):
        window(**{"conv": F.conv2d, **how})


def test_tables_and_curves_carry_their_numbers():
    figure = numbers({"a": torch.tensor([[1.0, 2.5]]), "b": torch.zeros(2, 2)}, "Two tables")
    assert figure.alt == "Two tables. a, row by row: 1 2.5. b, row by row: 0 0; 0 0."
    with pytest.raises(ValueError, match=r"b has the shape \[13, 1\]"):
        numbers({"b": torch.zeros(13, 1)}, "")
    figure = curves({"loss": {"mine": [1.0, 0.25]}, "accuracy": {"mine": [0.5, 0.875]}}, "T", shares=("accuracy",))
    assert figure.alt == "T. Loss: mine 1, 0.25. Accuracy: mine 50.0%, 87.5%."
    assert figure.png()[:4] == b"\x89PNG"
    with pytest.raises(ValueError, match="there are 6 runs"):
        curves({"loss": {str(i): [1.0] for i in range(6)}}, "")
