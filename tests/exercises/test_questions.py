"""Questions: data, answered by a call or a click; missed ones come back first."""

import pytest

from lockstep.exercises import answer, ask, keep, progress, recall, registry
from lockstep.exercises.questions import Option, Question


def a_question(id):
    wrong, right = Option("It grows", "The ring sends a constant share."), Option("It stays", "2n(p-1)/p.", right=True)
    return Question(id, f"What happens in {id}?", (wrong, right))


@pytest.fixture(autouse=True)
def some(monkeypatch):
    monkeypatch.setattr(
        registry, "questions", lambda: [a_question(id) for id in ("00.q1", "00.q2", "01.q1", "01.q2", "02.q1")]
    )
    monkeypatch.setattr("lockstep.exercises.asking.questions", registry.questions)


def test_asked_and_answered_without_widgets():
    text = repr(ask("00.q1"))
    assert "What happens in 00.q1?" in text and "It grows" in text and "b)" in text
    assert "constant share" not in text, "the sentences are for those who have chosen"
    card = answer("00.q1", "A", confidence=5)
    assert "not right" in card.text and "constant share" in card.text and "certain" in card.text
    assert "right" in answer("00.q1", "b").text
    first, second = keep.read()["answers"]["00.q1"]
    assert (first["right"], first["confidence"], second["right"]) == (False, 5, True)
    assert "1 of them right" in progress().text or "Questions answered: 1, 1" in progress().text


@pytest.mark.parametrize(
    "choice, confidence, said", [("z", 3, "is not one of a, b"), (2, 3, "is not one of"), ("a", 9, "1 (a guess)")]
)
def test_an_answer_that_is_none_is_told_so(choice, confidence, said):
    assert said in answer("00.q1", choice, confidence).text
    assert keep.read()["answers"] == {}


def test_an_unknown_question_gets_a_sentence():
    assert "no question '00.q9'" in ask("00.q9").text and "no question" in answer("00.q9", "a").text


def test_recall_brings_missed_questions_first_the_surest_before():
    assert [one.id for one in recall("04").questions] == ["00.q1", "00.q2", "02.q1"]
    answer("00.q1", "b")
    answer("02.q1", "a", confidence=2)
    answer("00.q2", "a", confidence=5)
    assert [one.id for one in recall("04", n=4).questions] == ["00.q2", "02.q1", "00.q1"]
    assert recall("00").questions == () and "no questions" in repr(recall("00"))


def test_recall_follows_the_order_of_reading():
    # Lab 01 may be read any time after 03: lab 02 asked about warps, and lab 01 never about layers.
    assert [one.id for one in recall("02").questions] == ["00.q1", "00.q2"]
    assert [one.id for one in recall("01").questions] == ["00.q1", "00.q2", "02.q1"]
    answer("01.q1", "a", confidence=2)
    assert [one.id for one in recall("02").questions] == ["00.q1", "00.q2"]
    assert [one.id for one in recall("04", n=2).questions] == ["01.q1", "00.q1"]


def test_a_widget_answers_as_the_call_does(monkeypatch):
    ipywidgets = pytest.importorskip("ipywidgets")
    from lockstep.exercises.asking import _widget

    box = _widget(a_question("00.q1"))
    choices, sure, button, said = box.children
    assert isinstance(choices, ipywidgets.RadioButtons)
    button.click()
    assert "Choose" in said.value
    choices.value, sure.value = "a", 4
    button.click()
    assert "constant share" in said.value
    assert keep.read()["answers"]["00.q1"][0]["confidence"] == 4


def test_a_notebook_shows_the_text_before_the_widget(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    ask("00.q1")._ipython_display_()
    assert "What happens" in shown[0].text and type(shown[1]).__module__.startswith("ipywidgets")


def test_a_question_without_exactly_one_right_option_is_refused():
    with pytest.raises(ValueError, match="exactly one"):
        Question("00.q1", "?", (Option("a", "b"), Option("c", "d")))
    with pytest.raises(ValueError, match="says nothing"):
        Question("00.q1", "?", (Option("a", ""), Option("c", "d", right=True)))
