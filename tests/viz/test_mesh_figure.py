"""A mesh on its nodes: the figure's numbers are those of the plan, and the sliders draw the same figure."""

import pytest

from lockstep.comm import MeshShape
from lockstep.hardware import Cluster, Link, device
from lockstep.viz.link_bytes import link_bytes
from lockstep.viz.mesh import PlanSizes, mesh_explorer, mesh_plan, seconds_of_axes

TWO = Cluster(device("A100"), 2, Link(0.0, 1e9), Link(0.0, 1e8))
SIZES = PlanSizes(gradients=8e6, activations=4e6, boundary=1e6, state=24e6)


def count(axes, per_node, gradients, activations, boundary):
    """By rings and a line, written for these tests."""
    shape, found = MeshShape(axes), {"within": 0.0, "between": 0.0}
    for rank in range(shape.ranks):
        here = shape.coordinates(rank)
        for name, size in axes.items():
            if name == "pipeline":
                targets, moved = [to for to in (here[name] - 1, here[name] + 1) if 0 <= to < size], boundary
            else:
                whole = gradients if name == "data" else activations
                targets, moved = [(here[name] + 1) % size], 2 * (size - 1) / size * whole
            for to in targets:
                same = shape.rank(here | {name: to}) // per_node == rank // per_node
                found["within" if same else "between"] += moved
    return found


def test_the_figure_says_who_is_where_and_what_goes_where():
    figure = mesh_plan({"data": 2, "tensor": 2}, TWO, SIZES, count, "Four ranks")
    # gradients 4 MB a rank over 2 data ranks, 4 ranks: 16 MB, all between nodes; activations 2 MB: 8 MB, all inside
    assert figure.alt.startswith("Four ranks. Sending takes 42 ms: data 40 ms, tensor 2 ms.")
    assert "Groups of rank 0: data 0, 2; tensor 0, 1." in figure.alt
    assert "data 0 B inside nodes and 16 MB between them; tensor 8 MB inside nodes and 0 B between them" in figure.alt
    assert "12 MB of 85.9 GB" in figure.alt


def test_order_decides_which_axis_is_slow():
    assert seconds_of_axes({"tensor": 2, "data": 2}, TWO, SIZES) == {"data": 0.004, "pipeline": 0.0, "tensor": 0.02}
    line = seconds_of_axes({"pipeline": 2, "data": 2}, TWO, SIZES)
    assert line == {"data": 0.004, "pipeline": 0.01, "tensor": 0.0}


def test_what_cannot_be_drawn_is_named():
    for axes, words in (({"expert": 2}, "none of data, pipeline, tensor"), ({"data": 128}, "room for 64")):
        with pytest.raises(ValueError, match=words):
            mesh_plan(axes, TWO, SIZES, count)
    with pytest.raises(ValueError, match="powers of two"):
        mesh_explorer({"data": 3}, TWO, SIZES, count)
    with pytest.raises(ValueError, match="within"):
        link_bytes({"ring": {"inside": 1}})


def test_the_sliders_and_the_menu_draw_the_same_figure():
    explorer = mesh_explorer({"data": 2, "tensor": 2}, TWO, SIZES, count, "Four ranks")
    controls, picture = explorer.widget().children
    *sliders, menu = controls.children
    by_name = {slider.description: slider for slider in sliders}
    assert menu.value == "pipeline x data x tensor" and "Sending takes 42 ms" in picture.value
    menu.value = "pipeline x tensor x data"
    assert "Sending takes 24 ms" in picture.value
    by_name["data"].value = 16
    by_name["tensor"].value = 16
    assert "256 ranks; the figure has room for 64" in picture.value
    bundle = explorer._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain", "application/vnd.jupyter.widget-view+json"}
    assert (
        bundle["text/plain"] == mesh_plan({"pipeline": 1, "data": 2, "tensor": 2}, TWO, SIZES, count, "Four ranks").alt
    )


def test_bytes_by_link_carry_their_numbers():
    figure = link_bytes(
        {"flat": {"within": 3e6, "between": 2e6}, "on two levels": {"within": 4e6, "between": 0}}, "Ways"
    )
    assert figure.alt == (
        "Ways. flat: 3 MB inside nodes, 2 MB between them; on two levels: 4 MB inside nodes, 0 B between them."
    )
    (axes,) = figure.matplotlib.axes
    assert len({bar.get_hatch() for bar in axes.patches}) == 2
