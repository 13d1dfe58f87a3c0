"""Ask a question, take its answer: by a plain call, or by clicking where there are widgets.

Floor 4, room `exercises`; read `questions.py` first. The text comes before the widget, so that nothing is lost
where widgets are not shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lockstep.exercises import keep
from lockstep.exercises.card import Card, Row
from lockstep.exercises.questions import Question
from lockstep.exercises.registry import Unknown, question, questions

BESIDE_THE_PATH = ("01", "12", "13", "14")
CONFIDENCE = {1: "a guess", 2: "unsure", 3: "fairly sure", 4: "sure", 5: "certain"}


@dataclass(frozen=True, repr=False)
class Asked:
    """Questions on show. `repr` is their text; a notebook shows them, and under each its widgets if it can."""

    questions: tuple[Question, ...]
    heading: str = ""

    def __repr__(self) -> str:
        return "\n\n".join(
            ([self.heading] if self.heading else []) + [question_card(one).text for one in self.questions]
        )

    def _ipython_display_(self) -> None:
        from IPython.display import display

        if self.heading:
            display(Card(self.heading, "", "note"))
        for one in self.questions:
            display(question_card(one))
            widget = _widget(one)
            if widget is not None:
                display(widget)


def ask(asked: str | Question) -> Asked | Card:
    """Show a question of the lab: `ask("00.q1")`. Answer by clicking, or with `answer("00.q1", "b", confidence=4)`."""
    try:
        return Asked((question(asked),))
    except Unknown as error:
        return Card(str(error), "", "note")


def answer(asked: str | Question, choice: str, confidence: int | None = None) -> Card:
    """Record a choice (its letter) and how sure you are, 1 (a guess) to 5 (certain) or left out; says why it is right or wrong."""
    try:
        asked = question(asked)
    except Unknown as error:
        return Card(str(error), "", "note")
    letter = str(choice).strip().lower()
    chosen = asked.letters.get(letter)
    if chosen is None:
        return Card(
            f"Question {asked.id}",
            "open",
            "open",
            (Row("Answer", f"{choice!r} is not one of {', '.join(asked.letters)}."),),
        )
    if confidence is not None and confidence not in CONFIDENCE:
        return Card(
            f"Question {asked.id}",
            "open",
            "open",
            (Row("Answer", f"confidence is 1 (a guess) to 5 (certain), not {confidence!r}."),),
        )
    with keep.change() as record:
        given = {"choice": letter, "confidence": confidence, "right": chosen.right, "at": keep.now()}
        record["answers"].setdefault(asked.id, []).append(given)
    rows = (Row("You chose", f"{letter}) {chosen.text}"), Row("Because", chosen.because))
    if confidence is not None:
        rows += (Row("You were", CONFIDENCE[confidence]),)
    return Card(
        f"Question {asked.id}", "right" if chosen.right else "not right", "good" if chosen.right else "bad", rows
    )


def recall(lab: str, n: int = 3) -> Asked:
    """`n` questions from the labs read before `lab`: those last answered wrong first (the surest first), then those
    never answered, then those answered right longest ago. A lab beside the path counts once it has been begun."""
    given = keep.read()["answers"]
    begun = {id[:2] for id, answers in given.items() if answers}

    def order(one: Question) -> tuple[Any, ...]:
        answers = given.get(one.id) or []
        last = answers[-1] if answers and isinstance(answers[-1], dict) else None
        if last is None:
            return 1, 0, ""
        return (
            (2, 0, str(last.get("at")))
            if last.get("right")
            else (0, -int(last.get("confidence") or 0), str(last.get("at")))
        )

    read = [one for one in questions() if one.id[:2] not in BESIDE_THE_PATH or one.id[:2] in begun]
    earlier = sorted((one for one in read if _when_read(one.id) < _when_read(lab)), key=order)
    heading = (
        f"Before lab {lab}: from earlier labs" if earlier else f"Before lab {lab} there are no questions to recall."
    )
    return Asked(tuple(earlier[:n]), heading)


def _when_read(id: str) -> float:
    """The place of a lab in the order of reading, which is that of the numbers but for lab 01."""
    return 3.5 if id[:2] == "01" else int(id[:2])


def question_card(asked: Question) -> Card:
    """The question and its options as text."""
    rows = [Row("Question", asked.text), *(Row(f"{letter})", option.text) for letter, option in asked.letters.items())]
    call = f'`answer("{asked.id}", "a", confidence=3)`; confidence is 1 (a guess) to 5 (certain).'
    return Card(f"Question {asked.id}", "", "note", (*rows, Row("To answer", call)))


def _widget(asked: Question) -> Any:
    """Radio buttons, confidence and a button, of core ipywidgets; None where they are not installed."""
    try:
        import ipywidgets
    except ImportError:
        return None
    choices = ipywidgets.RadioButtons(
        options=[(f"{letter}) {option.text}", letter) for letter, option in asked.letters.items()],
        value=None, layout={"width": "auto"},
    )  # fmt: skip
    sure = ipywidgets.SelectionSlider(
        options=[(f"{n} {words}", n) for n, words in CONFIDENCE.items()], value=3, description="I am"
    )
    button, said = ipywidgets.Button(description="Answer"), ipywidgets.HTML()

    def clicked(_: Any) -> None:
        said.value = (
            answer(asked, choices.value, sure.value)._repr_html_() if choices.value else "Choose an option first."
        )

    button.on_click(clicked)
    return ipywidgets.VBox([choices, sure, button, said])
