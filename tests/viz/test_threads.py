"""The grid of threads shows who writes what in the launch of the given kernel, right or wrong."""

import numpy as np
import pytest

from lockstep.simt import OutOfBounds, cuda, writers
from lockstep.viz import threads


@cuda.jit
def numbered(out):
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = 1


@cuda.jit
def mirrored(out):
    i = cuda.grid(1)
    if i < out.size - 2:
        out[out.size - 1 - i] = 1


@cuda.jit
def unguarded(out):
    out[cuda.grid(1)] = 1


def test_each_cell_knows_its_thread():
    found = writers(numbered, (3, 2), (4, 3), np.zeros((5, 11), np.int32), array="out")
    for y in range(5):
        for x in range(11):
            block, thread = (x // 4) + 3 * (y // 3), (x % 4) + 4 * (y % 3)
            assert found[y, x] == 12 * block + thread
    backwards = writers(mirrored, 3, 4, np.zeros(11, np.int32), array="out")
    assert backwards.tolist() == [-1, -1, *range(8, -1, -1)]


def test_the_alternative_carries_the_numbers_and_names_the_threads():
    figure = threads(numbered, (3, 2), (4, 3), np.zeros((5, 11), np.int32), title="Mine")
    assert "6 blocks, grid (3,2), of 12 threads, block (4,3): 72 threads." in figure.alt
    assert "55 cells are written, 0 by nobody; 17 threads write nothing." in figure.alt
    assert "Cell [4, 10] is written by thread (2,1) of block (2,1)." in figure.alt
    said = [text.get_text() for axes in figure.matplotlib.axes for text in axes.texts]
    assert said.count("0,0") == 6 and "block 2,1" in said
    assert "9 cells are written, 2 by nobody" in threads(mirrored, 3, 4, np.zeros(11, np.int32)).alt


@cuda.jit
def swapped(out):
    y, x = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = 1


def test_a_block_is_named_where_it_writes_and_not_where_it_should():
    # The frames carried the names of the usual formula, and a kernel that swaps x and y looked right.
    figure = threads(swapped, (4, 2), (4, 4), np.zeros((6, 14), np.int32)).matplotlib
    named = {text.get_text(): text.get_position() for text in figure.axes[0].texts if "block" in text.get_text()}
    assert named["block 0,1"] == (4.08, 0) and named["block 1,0"] == (0.08, 4)
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert {"nobody writes", "no cell of out", "a block's place", "out"} < set(legend)
    exact = threads(numbered, (2, 2), (4, 3), np.zeros((6, 8), np.int32)).matplotlib
    assert not any("cell" in text.get_text() for text in exact.legends[0].get_texts()), "nothing there that has none"


def test_what_cannot_be_shown_is_a_sentence():
    with pytest.raises(ValueError, match="at most 400 cells"):
        threads(numbered, (2, 2), (32, 32), np.zeros((40, 40), np.int32))
    with pytest.raises(ValueError, match="no array 'image'; its parameters are out"):
        threads(numbered, 1, 32, np.zeros((4, 4), np.int32), array="image")
    with pytest.raises(OutOfBounds):
        threads(unguarded, 1, 32, np.zeros(31, np.int32))
