"""The figure of a warp's requests shows the sectors and banks that its lanes touch."""

import numpy as np
import pytest

from lockstep.simt.kernels.transpose import transpose_naive, transpose_padded, transpose_tiled
from lockstep.viz import warp, warp_player
from lockstep.viz.warp import distinct

MATRIX = np.zeros((64, 64), np.float32)
LAUNCH = (2, 2), (32, 8), MATRIX, np.zeros_like(MATRIX)


def test_requests_in_order_each_instruction_once():
    seen = distinct(transpose_tiled, *LAUNCH, number=3)
    assert [(one.request.array, one.request.kind, one.request.cost) for one in seen] == [
        ("source", "r", 4),
        ("tile", "w", 1),
        ("tile", "r", 32),
        ("out", "w", 4),
    ]
    assert [(one.at, one.of, one.warp) for one in seen] == [(at, 4, 3) for at in (1, 2, 3, 4)]
    assert seen[2].code == "out[left + row, top + tx] = tile[tx, row]"


def test_the_alternative_carries_the_numbers():
    column = warp(transpose_naive, *LAUNCH, step=2, title="Mine").alt
    assert column.startswith("Mine: warp 0, line") and "writes out (global): 32 sectors." in column
    assert "sector 0 lanes 0; sector 8 lanes 1;" in column and "and 26 more" in column
    conflict = warp(transpose_tiled, *LAUNCH, step=3)
    assert "32 passes" in conflict.alt and "bank 0 lanes 0 to 31" in conflict.alt
    assert "1 pass." in warp(transpose_padded, *LAUNCH, step=3).alt
    said = [text.get_text() for text in conflict.matplotlib.axes[0].texts]
    assert any(text.startswith("32 passes") for text in said)
    assert "32 words: lanes 0 to 31,\none pass after the other" in said, "boxes too thin for numbers"
    single = warp(transpose_padded, *LAUNCH, step=3).matplotlib.axes[0].texts
    assert not any("they wait" in text.get_text() for text in single), "nobody does"


def test_lanes_without_a_thread_stand_apart():
    part = warp(transpose_naive, (1, 1), (32, 8), MATRIX[:, :20], np.zeros((20, 64), np.float32)).alt
    assert "20 of 32 lanes take part" in part


def test_the_player_draws_a_frame_when_it_is_looked_at():
    player = warp_player(transpose_tiled, *LAUNCH, numbers=(0, 7), title="Mine")
    assert len(player.frames) == 8 and not player.frames.drawn
    last = player.frames[-1]
    assert last.label == "warp 7, request 4 of 4" and last.png.startswith(b"\x89PNG")
    assert list(player.frames.drawn) == [7] and "8 requests" in player.alt


def test_what_cannot_be_shown_is_a_sentence():
    with pytest.raises(ValueError, match="step is 5; this warp has 4"):
        warp(transpose_tiled, *LAUNCH, step=5)
    with pytest.raises(ValueError, match="no warp 8"):
        warp(transpose_tiled, *LAUNCH, number=8)
    with pytest.raises(ValueError, match="0 different requests"):
        warp_player(transpose_tiled, *LAUNCH, numbers=())
