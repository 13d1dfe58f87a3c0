"""The memory figures say in words what they draw, and the menus draw the same figure."""

import pytest
from torch import nn

from lockstep.cost import StepMemory, TrainingMemory, memory_by_batch, profile
from lockstep.viz.memory import memory_bars, memory_curve, memory_explorer

GIB = 2**30
BARS = {"sgd": TrainingMemory(GIB, GIB, 0, 0, 2 * GIB, 0), "measured": {"parameters": GIB, "activations": 3 * GIB // 2}}


def test_the_bars_carry_their_numbers():
    figure = memory_bars(BARS, 3 * GIB, "Two bars", "a small GPU")
    assert figure.alt == (
        "Two bars. sgd: 4 GiB in all (parameters 1, gradients 1, activations 2), which is more than a small GPU of 3 GiB. "
        "measured: 2.5 GiB in all (parameters 1, activations 1.5), which fits into a small GPU of 3 GiB."
    )
    (axes,) = figure.matplotlib.axes
    assert [text.get_text() for text in axes.texts] == ["4 GiB", "2.5 GiB"]
    looks = {(bar.get_facecolor(), bar.get_hatch()) for bar in axes.patches}
    assert len(looks) == 3, "parts differ by colour and by hatch"


def test_the_curve_names_where_its_peak_lies():
    step = StepMemory(
        9_000_000, 1, 1, 1, 1, (1_000_000, 5_000_000, 9_000_000, 2_000_000), (("forward", 1), ("backward", 2))
    )
    figure = memory_curve({"predicted": step, "on a GPU": StepMemory(8_000_000, 1, 1, 1, 1)}, "One step")
    assert figure.alt == "One step. predicted: begins at 1.0 MB, peak 9.0 MB in the backward, ends at 2.0 MB."


def test_the_menus_show_the_static_figure():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 2))
    few, more = profile(model, (3, 8, 8), 2), profile(model, (3, 8, 8), 4)
    pairs = [("small", memory_by_batch(few, more, one, kind)) for one in ("sgd", "adam") for kind in ("fp32", "mixed")]
    explorer = memory_explorer(pairs, (8, 64), {"T4": 16 * GIB, "toy": 10_000})
    menus, picture = explorer.widget().children
    assert "small, batch 8, against T4 (predicted). sgd, fp32:" in picture.value
    by_name = {menu.description: menu for menu in menus.children}
    by_name["GPU"].value, by_name["batch"].value, by_name["optimizer"].value = "toy", 64, "adam"
    assert "small, batch 64, against toy (predicted). adam, fp32:" in picture.value
    assert "is more than toy" in picture.value
    assert "text/html" in explorer._repr_mimebundle_()


def test_nothing_to_draw_is_said():
    with pytest.raises(ValueError, match=r"not \['heads'\]"):
        memory_bars({"a": {"heads": 3}})
    with pytest.raises(ValueError, match="needs bars"):
        memory_bars({})
    with pytest.raises(ValueError, match="none of the steps has a curve"):
        memory_curve({"on a GPU": StepMemory(1, 1, 1, 1, 1)})
    with pytest.raises(ValueError, match="0 memories"):
        memory_explorer([], (1,), {"T4": GIB})
