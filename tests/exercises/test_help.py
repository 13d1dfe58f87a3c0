"""Hints, solutions, and whose function later labs get."""

import pytest
from small import HALVES, doubles, floors, forgets_the_last, halves_in_a_loop

from lockstep.exercises import check, hint, keep, mine, progress, registry, solution, whose


@pytest.fixture(autouse=True)
def only_halves(monkeypatch):
    monkeypatch.setattr(registry, "all", lambda: [HALVES])


def test_hints_come_one_at_a_time_and_are_noted():
    texts = [hint("00.7").text for _ in range(4)]
    for text, words in zip(texts, HALVES.hints, strict=False):
        assert words in text.replace("\n" + " " * 10, " ")
    assert "solution" in texts[2]
    assert "all hints" in texts[3] and all(words in texts[3] for words in HALVES.hints)
    assert keep.read()["exercises"]["00.7"]["hints"] == 3
    assert "every hint" in check(HALVES, doubles).next


def test_the_solution_is_shown_after_three_different_attempts():
    assert "not yet" in solution("00.7").text
    for fn in (doubles, doubles, floors):
        check(HALVES, fn)
    text = solution("00.7").text
    assert "not yet" in text and "[n / 2" not in text and "there were 2" in text
    check(HALVES, forgets_the_last)
    assert "return [n / 2 for n in numbers]" in solution("00.7").text
    assert keep.read()["exercises"]["00.7"]["solution"]
    assert "solution shown" in progress().text


def test_after_a_pass_the_solution_costs_nothing():
    check(HALVES, halves_in_a_loop)
    assert "You have passed" in solution("00.7").text
    assert keep.read()["exercises"]["00.7"]["solution"] is None


def test_mine_gives_the_students_function_or_the_librarys_and_says_which(capsys):
    assert mine("00.7") is HALVES.reference
    assert whose("00.7") == "the library's" and "the library's" in capsys.readouterr().out
    check(HALVES, halves_in_a_loop)
    assert mine("00.7").__name__ == "halves_in_a_loop"
    assert whose("00.7") == "your own" and "your own" in capsys.readouterr().out


def test_mine_falls_back_when_the_kept_function_cannot_be_read():
    check(HALVES, halves_in_a_loop)
    (keep.folder() / "00.7.pkl").write_bytes(b"made by another Python")
    with pytest.warns(UserWarning, match="the library's function is used"):
        assert mine("00.7") is HALVES.reference


@pytest.mark.parametrize("ask", [hint, solution])
def test_unknown_ids_get_a_sentence(ask):
    assert "no exercise '00.9'" in ask("00.9").text


def test_progress_is_one_table_in_text_and_html():
    check(HALVES, doubles)
    hint("00.7")
    assert "tried: wrong" in progress().text
    check(HALVES, halves_in_a_loop)
    text, html = progress("00").text, progress("00")._repr_html_()
    for part in ("00.7", "Halves", "passed", "3 of 3", "1 of 3", "3 of 3 points"):
        assert part in text and part in html
    assert progress("05").text
