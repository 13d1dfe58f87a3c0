"""Kernels under a device's roof, by their counters."""

import numpy as np
import pytest

from lockstep.simt import profile
from lockstep.simt.kernels.convolution import BLUR, conv2d_naive, conv2d_tiled
from lockstep.simt.kernels.transpose import transpose_naive
from lockstep.viz import kernel_roofline

IMAGE = np.zeros((32, 32), np.float32)
GIVEN = (2, 2), (16, 16), IMAGE, BLUR, np.zeros_like(IMAGE)


@pytest.fixture(scope="module")
def reports():
    return {"naive": profile(conv2d_naive, *GIVEN), "tiled": profile(conv2d_tiled, *GIVEN)}


def test_marks_lie_on_the_roof_and_the_words_say_where(reports):
    figure = kernel_roofline(reports, title="Mine")
    axes = figure.matplotlib.axes[0]
    marks = {line.get_label(): line.get_xydata()[0] for line in axes.lines if " FLOP a byte" in str(line.get_label())}
    for name, report in reports.items():
        x, y = next(at for label, at in marks.items() if label.startswith(name))
        assert x == pytest.approx(report.flops / report.bytes_moved)
        assert y == pytest.approx(x * 2039, rel=1e-3), "below the ridge the roof is the memory's bandwidth, in GFLOP/s"
        assert f"{name}: {x:.2f} FLOP a byte" in figure.alt
    assert "they meet at 9.6 FLOP a byte" in figure.alt
    assert any("on the roof by construction; no caches" in text.get_text() for text in figure.matplotlib.texts)


def test_measured_milliseconds_are_marked_apart(reports):
    figure = kernel_roofline(reports, milliseconds={"naive": 0.01, "tiled": None})
    assert "measured 10 µs" in figure.alt and figure.alt.count("measured") == 1
    assert any("open: measured" in text.get_text() for text in figure.matplotlib.texts)


def test_what_has_no_place_under_the_roof_is_a_sentence(reports):
    with pytest.raises(ValueError, match="turn computes 0 FLOP and moves"):
        kernel_roofline({"turn": profile(transpose_naive, (1, 1), (32, 8), IMAGE, np.zeros_like(IMAGE))})
    with pytest.raises(ValueError, match="no figures are known for 'A1'"):
        kernel_roofline(reports, device="A1")
    with pytest.raises(ValueError, match="0 kernels"):
        kernel_roofline({})
