"""A chain in parts: the figure's numbers are those of the cuts, and the sliders draw the same figure."""

import pytest

from lockstep.viz.split import ChainLayer, layer_split, pushed, split_explorer
from lockstep.viz.split_traffic import split_traffic

CHAIN = [
    ChainLayer(f"layer{i}", 0.001 * s, 1_000_000 * b, 10_000_000)
    for i, (s, b) in enumerate([(1, 4), (2, 2), (4, 1), (1, 1)])
]


def test_the_figure_says_what_the_cuts_make():
    figure = layer_split(CHAIN, [2], 1e9, "Four layers")
    # the cut after layer 1 carries 2 MB each way: 4 ms at 1 GB/s, for both parts
    assert "Four layers. Slowest: part 1 with 9 ms, messages included" in figure.alt
    # ... but one batch waits for it once: 8 ms of layers and 4 ms; it once said 16, and the simulation another number
    assert "one batch through all parts: 12 ms" in figure.alt
    assert "part 0 has layer0 to layer1, 7 ms, 20 MB" in figure.alt
    assert "4 MB over the cut before layer2, both ways together" in figure.alt
    looks = {(bar.get_facecolor(), bar.get_hatch()) for bar in figure.matplotlib.axes[0].patches}
    assert len(looks) == 2, "parts differ by colour and by hatch"


def test_a_chain_without_cuts_is_one_part():
    assert "part 0 has layer0 to layer3, 8 ms, 40 MB" in layer_split(CHAIN, [], 1e9).alt


@pytest.mark.parametrize(
    "cuts, words", [([2, 2], "must rise"), ([0], "must rise"), ([1, 2, 3, 4, 5, 6], "can tell 6 apart")]
)
def test_cuts_that_make_no_sense_are_named(cuts, words):
    for draw in (layer_split, split_explorer):
        with pytest.raises(ValueError, match=words):
            draw(CHAIN, cuts, 1e9)


def test_the_sliders_push_each_other_and_draw_the_same_figure():
    assert pushed([3, 2, 5], 0) == [3, 4, 5] and pushed([1, 5, 4], 2) == [1, 3, 4] and pushed([1, 3], 1) == [1, 3]
    explorer = split_explorer(CHAIN, [1, 2], 1e9, "Four layers")
    figure = explorer.figure([1, 2])
    sliders, picture = explorer.widget().children
    first, second = sliders.children
    assert (first.min, first.max, second.min, second.max) == (1, 2, 2, 3)
    assert picture.value == figure._repr_html_()
    first.value = 2
    assert second.value == 3 and "over the cut before layer3" in picture.value and "before layer1" not in picture.value


def test_the_sliders_have_a_figure_in_their_place():
    bundle = split_explorer(CHAIN, [], 1e9, "Four layers")._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain", "application/vnd.jupyter.widget-view+json"}
    assert bundle["text/plain"].startswith("Four layers. Slowest: part 0")


def test_traffic_by_layer_carries_its_numbers():
    figure = split_traffic(["conv", "fc"], {"data": [2e3, 3e6], "column": [5e6, 1e3]}, "Two layers")
    assert figure.alt.startswith("Two layers. data: conv 2 kB, fc 3 MB; 3 MB in all.")
    (axes,) = figure.matplotlib.axes
    assert len({(line.get_marker(), line.get_linestyle()) for line in axes.lines}) == 2
    for wrong in ({"data": [1.0]}, {"data": [0.0, 1.0]}):
        with pytest.raises(ValueError, match="2 numbers above 0"):
            split_traffic(["conv", "fc"], wrong)
