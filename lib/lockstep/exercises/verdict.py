"""A verdict: what `check` says, as a good teaching assistant would say it.

Floor 4, room `exercises`. What was asked, the smallest case that fails, expected and got, the likely cause,
and where the next hint is. It is a value; `card.py` shows it as HTML or text.
"""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.exercises.card import Card, Row

TONE = {"passed": "good", "not attempted": "open", "cannot run": "open"}


@dataclass(frozen=True, repr=False)
class Verdict:
    """The outcome of one check.

    status: "passed", "wrong", "crashed", "timed out", "forbidden", "not attempted" or "cannot run".
    asked: the task. case: the smallest failing case, and how many smaller ones pass. expected, got: short texts.
    seen: what is wrong, in a sentence. cause: the sentence of a known mistake, named by `mistake`.
    printed: the first lines of what it printed on that case, or, when all pass, on the first where it printed any.
    next: what to do now. points: reached; `of`: to be had.
    """

    id: str
    title: str
    status: str
    asked: str = ""
    case: str = ""
    expected: str = ""
    got: str = ""
    seen: str = ""
    cause: str = ""
    mistake: str = ""
    printed: str = ""
    next: str = ""
    points: int = 0
    of: int = 0

    @property
    def passed(self) -> bool:
        return self.status == "passed"

    @property
    def card(self) -> Card:
        points = f", {self.points} of {self.of} point{'' if self.of == 1 else 's'}" if self.of else ""
        rows = (
            Row("Asked", self.asked),
            Row("Case", self.case),
            Row("Expected", self.expected, code=True),
            Row("Got", self.got, code=True),
            Row("What is wrong" if not self.passed else "What is right", self.seen),
            Row("Likely cause", self.cause),
            Row("It printed", self.printed.rstrip(), code=True),
            Row("Next", self.next),
        )
        heading = f"{self.id} {self.title}".strip()
        return Card(heading, self.status + points, TONE.get(self.status, "bad"), tuple(r for r in rows if r.text))

    @property
    def text(self) -> str:
        """All of it as plain text."""
        return self.card.text

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.card._repr_html_()
