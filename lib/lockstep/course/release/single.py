"""One student's files, graded on their own: what Gradescope and GitHub Classroom ask for at every hand-in.

Floor 4, room `course`; reading is `grade.reading`, judging `grade.judging`. A batch is `lockstep grade`'s matter.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.course.grade.archive import Piece
from lockstep.course.grade.collect import Handin
from lockstep.course.grade.judging import grade_program
from lockstep.course.grade.lab_text import lab_text, notebook_of
from lockstep.course.grade.outcome import Outcome
from lockstep.course.grade.reading import read_handin
from lockstep.course.grade.submission import Submission
from lockstep.exercises.exercise import Exercise

NOT_THERE = "No notebook of this lab could be read."


@dataclass(frozen=True)
class Graded:
    """What one student earned: an outcome for every exercise asked for, and sentences about what was read."""

    student: str
    outcomes: tuple[Outcome, ...]
    said: tuple[str, ...] = ()

    @property
    def points(self) -> float:
        return sum(one.points for one in self.outcomes)

    @property
    def of(self) -> float:
        return sum(one.of for one in self.outcomes)


def grade_files(
    student: str,
    files: Iterable[Path],
    labs: Sequence[str],
    asked: Callable[[Submission], Sequence[Exercise]],
    functions: Mapping[str, Sequence[Exercise]],
    seed: int,
    isolation: str = "auto",
) -> Graded:
    """Read the files, run what they define, and judge it.

    asked(submission): the exercises to judge that submission by. functions: by lab, what its exercises are called.
    An exercise of a lab that was not handed in is not attempted.
    """
    known = {lab: lab_text(lab, functions[lab], notebook_of(lab)) for lab in labs}
    handin = Handin(student, tuple(Piece(path) for path in sorted(files)))
    read = {one.lab: one for one in read_handin(handin, known)}
    outcomes: list[Outcome] = []
    said: list[str] = []
    for lab in labs:
        one = read.get(lab)
        if one is None or one.problem:
            why = one.problem if one else next((other.problem for other in read.values() if other.problem), NOT_THERE)
            said.append(f"Lab {lab}: {why}")
            outcomes += [not_there(exercise) for exercise in functions[lab]]
            continue
        said += one.warnings
        outcomes += grade_program(lab, one.program, seed, exercises=asked(one), isolation=isolation)
    return Graded(student, tuple(outcomes), tuple(dict.fromkeys(said)))


def not_there(exercise: Exercise) -> Outcome:
    """The outcome of an exercise whose lab was not handed in."""
    return Outcome(exercise.id, "not attempted", 0, exercise.points, NOT_THERE, version=exercise.version)


def explained(outcome: Outcome) -> str:
    """A verdict and what helps, as plain text."""
    return "\n".join(filter(None, (outcome.verdict.capitalize() + ".", outcome.sentence, outcome.hint)))


def as_junit(graded: Graded, suite: str) -> str:
    """JUnit XML with a test case for each exercise; no name of a student is in it."""
    cases = []
    for one in graded.outcomes:
        body = (
            ""
            if one.points == one.of
            else f"<failure message={_attribute(one.verdict)}>{_text(explained(one))}</failure>"
        )
        name = f"{one.exercise} ({one.points:g} of {one.of:g} points)"
        head = (
            f"<testcase classname={_attribute(suite)} name={_attribute(name)} time={_attribute(f'{one.seconds:.3f}')}>"
        )
        cases.append(f"  {head}{body}</testcase>")
    failed = sum(one.points < one.of for one in graded.outcomes)
    counts = f'tests="{len(graded.outcomes)}" failures="{failed}" errors="0"'
    lines = ['<?xml version="1.0" encoding="utf-8"?>', f"<testsuite name={_attribute(suite)} {counts}>", *cases]
    return "\n".join([*lines, "</testsuite>", ""])


def _text(value: str) -> str:
    """XML text: characters that XML cannot hold become a question mark."""
    shown = "".join(
        c if c in "\n\t" or (c >= " " and not "\ud800" <= c <= "\udfff" and c < "\ufffe") else "?" for c in value
    )
    return html.escape(shown, quote=True)


def _attribute(value: str) -> str:
    return f'"{_text(value)}"'
