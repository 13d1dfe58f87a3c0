"""Training with compressed gradients: targets, factors of dense and break-evens are those of the numbers given."""

import math

import pytest
import torch

from lockstep.viz.break_even import GIGABIT, Step, break_even, break_even_explorer, show_rate
from lockstep.viz.compression import Training, looks_of, loss_against, recovered

LINKS = {"1 Gbit/s": 0.1, "10 Gbit/s": 0.02}


def falling(by, seconds=LINKS, nbytes=1e6):
    return Training([2.0 - by * step for step in range(40)], nbytes, seconds)


def test_a_target_is_reached_by_the_mean_of_ten_steps():
    way = falling(0.0416)
    assert way.smooth[0] == pytest.approx(2.0 - 0.0416 * 4.5) and len(way.smooth) == 31
    assert way.steps_to(1.0) == 30  # the mean of losses 20 to 29 is 2 - 0.0416 * 24.5 = 0.98, of 19 to 28 it is 1.02
    assert falling(0.0416).steps_to(0.1) is None
    assert Training([3.0, 1.0], 1, LINKS).smooth == [2.0], "a run shorter than ten steps is its own mean"


def test_less_than_dense_is_bold_and_what_only_looks_so_is_not():
    fewer_bytes = falling(0.0416, {"1 Gbit/s": 0.05, "10 Gbit/s": 0.03}, 1e4)
    figure = loss_against(
        {"dense": falling(0.0416), "top-k": fewer_bytes, "top-k, no feedback": falling(0.01)}, 1.0, "Runs"
    )
    assert "dense: 30 steps; bytes 30 MB, 1 x dense's; 1 Gbit/s 3 s, 1 x dense's" in figure.alt
    assert (
        "top-k: 30 steps; bytes 300 kB, 0.01 x dense's; 1 Gbit/s 1.5 s, 0.5 x dense's; 10 Gbit/s 900 ms, 1.5 x"
        in figure.alt
    )
    assert "top-k, no feedback: never" in figure.alt
    weights = {text.get_text(): text.get_fontweight() for text in figure.matplotlib.axes[-1].texts}
    assert weights["1.5 s   0.5 x"] == "bold" and weights["900 ms   1.5 x"] == "normal"
    with_it, without = (figure.matplotlib.axes[0].lines[at] for at in (1, 2))
    assert with_it.get_color() == without.get_color() and with_it.get_linestyle() != without.get_linestyle()


def test_a_dense_run_that_never_arrives_makes_nobody_better():
    figure = loss_against({"dense": falling(0.01), "int8": falling(0.0416, nbytes=10)}, 1.0, "Runs")
    assert "dense: never" in figure.alt
    assert not [text for text in figure.matplotlib.axes[-1].texts if text.get_fontweight() == "bold"]


def test_ways_that_cannot_be_compared_are_refused():
    with pytest.raises(ValueError, match="the same links"):
        loss_against({"dense": falling(0.0416), "int8": falling(0.0416, {"1 Gbit/s": 1.0})}, 1.0, "Runs")
    with pytest.raises(ValueError, match="9 kinds"):
        looks_of([f"way {at}" for at in range(9)])


def test_recovered_values_and_the_error_of_all():
    true = torch.tensor([3.0, 0.0, 4.0])
    figure = recovered({"exact": (true, true), "half": (true, torch.tensor([3.0, 0.0, 0.0]))}, "Sensing")
    assert "exact: error below 0.05 %; 2 of 3 values are not zero, 2 recovered ones are not." in figure.alt
    assert "half: error 80.0% of its length; 2 of 3 values are not zero, 1 recovered ones are not." in figure.alt
    with pytest.raises(ValueError, match="equal lengths"):
        recovered({"short": (true, true[:2])}, "Sensing")


DENSE = Step(0.1, 0, 100e6, 2)


@pytest.mark.parametrize(
    ("step", "end"),
    [
        (Step(0.1, 0.01, 50e6, 2), 50e6 / 0.01),  # saves 50 MB, for 10 ms
        (Step(0.1, 0.01, 50e6, 12), 50e6 / 0.02),  # and ten messages more of 1 ms
        (Step(0.1, 0.01, 200e6, 2), None),  # more bytes
        (Step(0.1, 0, 50e6, 2), math.inf),  # costs nothing
        (Step(0.1, 0, 200e6, 2), None),
    ],
)
def test_break_even_is_where_both_steps_last_equally_long(step, end):
    found = step.break_even(DENSE, 1e-3)
    assert found == end
    if end is not None and end < math.inf:
        assert step.seconds(end, 1e-3) == pytest.approx(DENSE.seconds(end, 1e-3))
        assert step.seconds(end / 2, 1e-3) < DENSE.seconds(end / 2, 1e-3)


def test_the_figure_says_parts_and_break_even():
    steps = {"dense": DENSE, "top-k 1 %": Step(0.1, 0.01, 2e6, 1), "sign": Step(0.1, 0.01, 300e6, 1)}
    figure = break_even(steps, GIGABIT, "A step")
    assert "dense 900 ms (computing 100 ms, compressing 0 s, network 800 ms)" in figure.alt
    assert (
        "top-k 1 % 126 ms (computing 100 ms, compressing 10 ms, network 16 ms), 0.14 times dense; shorter below 78.4 Gbit/s"
        in figure.alt
    )
    assert figure.alt.endswith("2.79 times dense; never shorter.")
    marks = [line for line in figure.matplotlib.axes[0].lines if line.get_marker() == "|"]
    assert [line.get_xdata()[0] for line in marks] == pytest.approx([8 * 98e6 / 0.01])
    with pytest.raises(ValueError, match="at least one other"):
        break_even({"dense": DENSE}, GIGABIT, "A step")
    with pytest.raises(ValueError, match="10 Mbit/s"):
        break_even(steps, 1000.0, "A step")
    assert show_rate(GIGABIT) == "1 Gbit/s" and show_rate(1.25e6) == "10 Mbit/s"


def test_the_menus_draw_the_same_figure():
    def step(way, ranks):
        return DENSE if way == "dense" else Step(0.1, 0.01, 1e6 * ranks, 1)

    explorer = break_even_explorer(["dense", "top-k", "1-bit"], step, note="(predicted)")
    bundle = explorer._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain", "application/vnd.jupyter.widget-view+json"}
    assert "2 ranks, 10 Mbit/s (predicted)" in bundle["text/plain"] == repr(explorer)
    menus, picture = explorer.widget().children
    menus.children[0].value = "1-bit"
    assert picture.value == explorer.figure("1-bit", 2, GIGABIT / 100)._repr_html_()
    assert "never shorter" in explorer.figure("1-bit", 128, GIGABIT).alt
    for options in ({"first": ("zip", 2, GIGABIT)}, {"ranks": (2,), "first": ("all", 4, GIGABIT)}):
        with pytest.raises(ValueError, match="is not among"):
            break_even_explorer(["dense", "top-k"], step, **options)
