"""Predictions: before the reveal they count, after it the first one stands; nothing ever raises."""

import numpy as np
import pytest
import torch

from lockstep.exercises import keep, predict, reveal


def test_a_prediction_is_shown_beside_what_was_measured():
    assert "noted" in predict("05.p1", 4.0, reason="twice the ranks").text
    text = reveal("05.p1", 6.0, unit="s").text
    for part in ("4 s", "6 s", "1.5 times more", "Before you read on: why?", "twice the ranks"):
        assert part in text


def test_reveal_before_predict_says_so_and_does_not_raise():
    text = reveal("05.p1", 6.0).text
    assert "no prediction" in text and "6" in text and 'predict("05.p1", ...)' in text


def test_a_prediction_after_the_reveal_is_marked_late():
    reveal("05.p1", 6.0)
    assert "late" in predict("05.p1", 6.0).text
    assert keep.read()["predictions"]["05.p1"]["late"] is True
    assert "after the value was shown" in reveal("05.p1", 6.0).text


def test_the_first_prediction_stands_after_the_reveal():
    predict("05.p1", 4.0)
    reveal("05.p1", 6.0)
    text = predict("05.p1", 6.0).text
    assert "stands" in text and "6 is not taken" in text
    assert "4" in reveal("05.p1", 6.0).text and keep.read()["predictions"]["05.p1"]["value"] == 4.0


def test_before_the_reveal_it_may_be_changed():
    predict("05.p1", 4.0)
    predict("05.p1", 5.0)
    entry = keep.read()["predictions"]["05.p1"]
    assert entry["value"] == 5.0 and entry["earlier"] == [4.0]


def test_cells_may_be_run_twice():
    for _ in range(2):
        predict("05.p1", 4.0)
        reveal("05.p1", 6.0)
    entry = keep.read()["predictions"]["05.p1"]
    assert entry["value"] == 4.0 and not entry["late"]


@pytest.mark.parametrize("nothing", [None, ...])
def test_nothing_is_no_prediction(nothing):
    assert "guess" in predict("05.p1", nothing).text
    assert keep.read()["predictions"] == {}


@pytest.mark.parametrize(
    "value, measured, compared",
    [(np.float32(2), torch.tensor(4.0), "2 times"), ("faster", "slower", ""), ("slower", "slower", "the same"),
     (True, False, ""), (0, 3, "3 apart"), (1, 1000, "another order of magnitude"), ([1, 2], [1, 2], "the same"),
     (float("nan"), float("inf"), ""), (object, 3, ""), (-1, 2, "3 apart"), (2, 2, "the same")],
)  # fmt: skip
def test_any_value_is_taken(value, measured, compared):
    predict("05.p1", value)
    assert compared in reveal("05.p1", measured).text


def test_words_from_outside_are_escaped():
    predict("05.p1", "<script>alert(1)</script>", reason="<b>")
    html = reveal("05.p1", "<i>")._repr_html_()
    assert not any(tag in html for tag in ("<script", "<b>", "<i>"))


# Story: 0.0196 measured beside 1 predicted was said to be "0.0196 times" it, with five digits each.
def test_numbers_are_short_and_compared_by_more_or_less():
    predict("05.p1", 1)
    text = reveal("05.p1", 0.019612).text
    assert "0.0196" in text and "0.01961" not in text and "51 times less" in text
    assert "1230" in reveal("05.p1", 1234.5).text


def test_a_text_is_asked_for_a_number_and_refused_beside_a_measured_one():
    assert "give a number" in predict("05.p1", "a lot").text
    assert "only a number" in reveal("05.p1", 6.0).text
    reveal("05.p2", 6.0)
    assert "give a number" in predict("05.p2", "a lot").text
    assert keep.read()["predictions"]["05.p2"]["value"] is None
    assert "give a number" not in predict("05.p3", -2).text + predict("05.p4", "3").text


# Story: lab 03 asks for a word in quotes, and who wrote it was told to give a number.
def test_a_word_is_taken_where_a_word_is_asked_for():
    text = predict("03.p5", "network").text
    assert "noted" in text and "number" not in text
    text = predict("03.p5", "the cables").text
    assert "'computation', 'memory', 'network'" in text and "number" not in text
    assert "none of the words" in predict("03.p5", 3).text
    assert "the same" in (predict("03.p5", "memory"), reveal("03.p5", "memory"))[1].text


def test_without_a_prediction_nobody_is_asked_why():
    assert "why?" not in reveal("05.p1", 6.0).text
