"""`diagnose()`: the trace of a random known mistake, to be named.

Floor 4, room `exercises`. Reading somebody else's fault from a timeline is what the labs train for. Sometimes
nothing is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lockstep.exercises import registry
from lockstep.exercises.card import Card, Row
from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import judged
from lockstep.exercises.observe import Observation
from lockstep.exercises.plain import short
from lockstep.exercises.trial import observe_here

FEW = 5  # options shown at most
ROWS = 4  # ranks shown at most


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """A run of an unknown function; `options` maps letters to what may be wrong. `answer("b")` says whether it is."""

    exercise: Exercise
    case: Case
    seen: Observation
    options: dict[str, str]
    right: str
    sentence: str

    def answer(self, choice: str) -> Card:
        """Was it that? With the sentence of what it was."""
        letter = choice.strip().lower()
        if letter not in self.options:
            return Card(
                "Diagnosis", "open", "open", (Row("Answer", f"{choice!r} is not one of {', '.join(self.options)}."),)
            )
        hit = letter == self.right
        rows = [Row("You say", self.options[letter])]
        if hit:
            rows.append(Row("Because", self.sentence))
        else:
            rows.append(Row("Look again", "Compare each rank's messages and what it returns with what was asked."))
        return Card("Diagnosis", "right" if hit else "not that", "good" if hit else "bad", tuple(rows))

    @property
    def card(self) -> Card:
        rows = [Row("Asked", self.exercise.asks), Row("Run", self.case.name), *_evidence(self.seen)]
        rows += [Row(f"{letter})", text) for letter, text in self.options.items()]
        rows.append(Row("To answer", '`d = diagnose(...)` keeps this run; `d.answer("a")` names what is wrong.'))
        return Card(f"What is wrong here? ({self.exercise.id} {self.exercise.title})", "", "note", tuple(rows))

    def __repr__(self) -> str:
        return self.card.text

    def _ipython_display_(self) -> None:
        from IPython.display import display

        if self.seen.trace is not None:
            from lockstep.viz import timeline

            display(timeline(self.seen.trace, title=f"{self.exercise.title}: {self.case.name}"))
        display(self.card)


def diagnose(lab: str, seed: int | None = None) -> Diagnosis | Card:
    """Show a run of a known mistake of `lab` (or, now and then, of a right solution), to be named from a list.

    seed: the same run again; None draws another one each time.
    """
    rng = np.random.default_rng(seed)
    chosen = [one for one in registry.all() if one.lab == lab and _readable(one)]
    if not chosen:
        return Card(f"Lab {lab} has no exercise whose runs have a timeline.", "", "note")
    exercise = chosen[rng.integers(len(chosen))]
    case = max(_readable(exercise), key=lambda one: one.ranks)
    rest = [(one.name, one.function, one.sentence) for one in exercise.mistakes]
    nothing = ("nothing is wrong", exercise.reference, "Every rank returns what was asked, and sends what is needed.")
    which = [rest[i] for i in rng.permutation(len(rest))[: FEW - 1]] + [nothing]
    shown = which[rng.integers(len(which))]
    (seen,) = observe_here(exercise, shown[1], [case])
    (expected,) = observe_here(exercise, exercise.reference, [case])
    if judged(exercise.judge, case, seen, expected) is None:
        shown = nothing  # on so small a case this mistake cannot be told from a right solution
    letters = dict(zip("abcdefgh", (name for name, _, _ in which), strict=False))
    right = next(letter for letter, name in letters.items() if name == shown[0])
    return Diagnosis(exercise, case, seen, letters, right, shown[2])


def _readable(exercise: Exercise) -> list[Case]:
    """The cases of few enough ranks for a timeline that one can read."""
    return [case for case in exercise.draw() if case.ranks and case.ranks <= ROWS]


def _evidence(seen: Observation) -> list[Row]:
    if seen.error is not None:
        return [Row("It ends with", seen.error.sentence)]
    rows = [Row(f"Rank {rank}", f"returns {short(value)}", True) for rank, value in enumerate(seen.value)]
    sent = ", ".join(
        f"rank {r}: {one.messages_sent} messages, {one.bytes_sent:,} bytes" for r, one in enumerate(seen.traffic)
    )
    return [*rows, Row("Sent", sent)]
