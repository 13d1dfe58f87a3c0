"""Bytes by stage: the figures carry the numbers they were given, and the menus draw the same figure."""

import pytest

from lockstep.viz.zero import stage_explorer, stage_table, state_bars

GPU = 32 * 2**30


def test_measured_stands_beside_the_formula():
    measured = {"stage 1": {"parameters": 4000, "gradients": 4000, "optimizer": 2000, "copy of the shard": 1000}}
    formula = {"stage 1": {"parameters": 4000, "gradients": 4000, "optimizer": 2000}}
    figure = state_bars(measured, formula, "A run")
    assert "measured 11 kB (parameters 4 kB, gradients 4 kB, optimizer 2 kB, copy of the shard 1 kB)" in figure.alt
    assert "formula 10 kB (parameters 4 kB, gradients 4 kB, optimizer 2 kB)." in figure.alt
    looks = {(bar.get_facecolor(), bar.get_hatch()) for bar in figure.matplotlib.axes[0].patches}
    assert len(looks) == 4, "parts differ by colour and by hatch"


@pytest.mark.parametrize("formula", [{"stage 2": {"parameters": 1}}, {"stage 1": {"activations": 1}}])
def test_bars_that_do_not_belong_together_are_refused(formula):
    with pytest.raises(ValueError, match="equal names"):
        state_bars({"stage 1": {"parameters": 1}}, formula)


def test_the_table_is_the_papers_and_says_what_fits():
    figure = stage_table(7_500_000_000, 64, GPU, "V100, 32 GB")
    assert "data parallel: 120 GB (parameters 15 GB, gradients 15 GB, optimizer 90 GB)" in figure.alt
    assert "4 ranks 52.5 (does not fit), 41.3 (does not fit), 30;" in figure.alt
    assert "64 ranks 31.4, 16.6, 1.88;" in figure.alt
    shown = [text.get_text() for text in figure.matplotlib.axes[1].texts]
    assert {"52.5", "41.3", "30", "1.88", "0.117", "1,024"} <= set(shown)


def test_another_number_of_ranks_gets_a_row_and_another_function_its_numbers():
    figure = stage_table(1000, 3, 10**6, state_bytes=lambda p, n, stage, *_: {"parameters": 10**9 * n * (stage + 1)})
    assert "3 ranks 6 (does not fit), 9 (does not fit), 12 (does not fit)" in figure.alt


def test_the_menus_draw_the_same_figure():
    explorer = stage_explorer({"7.5 billion": 7_500_000_000, "small": 10**6}, {"V100": GPU, "T4": GPU // 2})
    bundle = explorer._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain", "application/vnd.jupyter.widget-view+json"}
    assert "64 ranks 31.4, 16.6, 1.88" in bundle["text/plain"] == repr(explorer)
    menus, picture = explorer.widget().children
    menus.children[1].value = 4
    assert picture.value == explorer.figure("7.5 billion", 4, "adam", "mixed", "V100")._repr_html_()
    with pytest.raises(ValueError, match="0 models"):
        stage_explorer({}, {"V100": GPU})
