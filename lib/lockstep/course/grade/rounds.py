"""Judging one submission: in one round, or in two where its functions build on each other.

Floor 4, room `course`; read `borrowed` first. What was judged in the first round decides whether the second has the
student's own function or the library's, as `mine` does in the notebook. No exercise is judged beside a lent text that
holds its answer: what is lent runs in the student's process, where a closure gives away all that it calls.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from lockstep.course.grade.borrowed import borrowed, resolved
from lockstep.course.grade.outcome import Outcome
from lockstep.course.grade.submission import Program, Submission


class Judge(Protocol):
    """`grade_program`: one outcome for each of `exercises`."""

    def __call__(
        self, lab: str, program: Program, seed: int, *, exercises: Sequence[Any], isolation: str
    ) -> list[Outcome]: ...


def judge_submission(
    submission: Submission,
    exercises: Sequence[Any],
    functions: Mapping[str, str],
    seed: int,
    *,
    judge: Judge,
    library: Callable[[str], tuple[str, str] | None],
    isolation: str = "auto",
    known: Mapping[str, Outcome | None] | None = None,
) -> dict[str, Outcome]:
    """Outcomes by id for `exercises` (values of this lab). functions: the name of each function by exercise id.

    library: the text that defines the course's own function of an exercise, and its name; see `lent`. known: outcomes
    from before, of exercises that are not asked for again. Raises RuntimeError when the judge leaves one out.
    """

    def ask(some: Sequence[Any], passed: set[str]) -> dict[str, Outcome]:
        lent = {id: text for id in asked - passed if (text := library(id)) is not None}
        groups: dict[frozenset[str], list[Any]] = {}
        for one in some:
            names = {functions.get(one.id, ""), (library(one.id) or ("", ""))[1]}
            groups.setdefault(frozenset(id for id, (text, _) in lent.items() if names & _defined(text)), []).append(one)
        found: dict[str, Outcome] = {}
        for telling, those in groups.items():
            kept = {id: text for id, text in lent.items() if id not in telling}
            program = resolved(submission.program, functions, passed, kept)
            outcomes = judge(submission.lab, program, seed, exercises=those, isolation=isolation)
            found |= {one.exercise: _explained(one, functions.get(one.exercise, ""), submission) for one in outcomes}
        lacking = [one.id for one in some if one.id not in found]
        if lacking:
            raise RuntimeError(f"no verdict came for {', '.join(lacking)}")
        return found

    asked = borrowed(submission.program)
    own = {id for id in asked if id in functions}
    first = [one for one in exercises if one.id in own or not asked]
    found = ask(first, own) if first else {}
    then = [one for one in exercises if one.id not in found]
    if then:
        verdicts = {id: one.verdict for id, one in {**(known or {}), **found}.items() if one is not None}
        found |= ask(then, {id for id in own if verdicts.get(id) == "passed"})
    return found


def _defined(text: str) -> set[str]:
    """Names of the functions and classes that a lent text defines."""
    return {one.name for one in ast.walk(ast.parse(text)) if isinstance(one, (ast.FunctionDef, ast.ClassDef))}


def _explained(outcome: Outcome, function: str, submission: Submission) -> Outcome:
    """A function that is not there because its cell is not Python was attempted."""
    why = submission.broken.get(function)
    if outcome.verdict != "not attempted" or not why:
        return outcome
    return replace(outcome, verdict="crashed", sentence=f"Your function could not be read: {why}.")
