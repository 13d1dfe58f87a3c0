"""One student's program, judged: every exercise of a lab becomes an `Outcome`.

Floor 4, room `course`. Read `outcome` and `submission` first; `sandbox/trying.py` runs the program, `credit` says what
part of an answer is worth. Cases are drawn three times: once as `check` draws them, whose findings a student may read in
full, and twice from the secret seed, of which only the kind of fault is told.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from lockstep.course.grade.answers import refused
from lockstep.course.grade.credit import may_be_partial, partial_points
from lockstep.course.grade.known import Draws, known
from lockstep.course.grade.outcome import Outcome
from lockstep.course.grade.recount import recounted
from lockstep.course.grade.submission import Program, Statement
from lockstep.course.sandbox import levels
from lockstep.course.sandbox.box import BoxLost, box
from lockstep.course.sandbox.inside.program import file_of, remember_lines
from lockstep.course.sandbox.trying import Tried, try_program
from lockstep.exercises import registry
from lockstep.exercises.assess import assess
from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import Finding, judged
from lockstep.exercises.observe import Failure, Observation
from lockstep.exercises.source import is_blank_text
from lockstep.exercises.verdict import Verdict

NO_MEMORY = ("allocate memory", "bad_alloc", "not enough memory")
PASSES_CHECK = "It passes the cases that `check` shows, and fails others of the same kind."
FAILS = "It fails cases that only grading has."


def grade_program(
    lab: str,
    program: Program,
    seed: int | str,
    *,
    exercises: Sequence[str | Exercise] | None = None,
    isolation: str = "auto",
) -> list[Outcome]:
    """Run the program in a sandbox and judge every exercise of `lab` ("05"), or `exercises`: ids ("05.2") or values.

    seed: the instructor's secret, from which the hidden cases are drawn; equal seeds draw equal cases.
    isolation: "auto" takes the best level that this machine gives; "bubblewrap", "user" and "process" ask for one.

    One Outcome an exercise, in their order, whatever the program does: nothing that it does is raised. One call at a
    time in a process; several processes may call it side by side, and each keeps one sandbox of its own until it ends.
    Raises ValueError for a lab, an exercise or a level that there is not, and BoxLost (a RuntimeError) where no sandbox
    can be started at all.
    """
    asked = _asked(lab, exercises)
    level = levels.level(isolation)
    remember_lines([(one.text, one.cell, one.line) for one in program.statements])
    return [_graded(exercise, program, str(seed), level) for exercise in asked]


def _asked(lab: str, exercises: Sequence[str | Exercise] | None) -> list[Exercise]:
    if exercises is None:
        exercises = registry.of_lab(lab)
        if not exercises:
            raise ValueError(f"there is no lab {lab!r} with exercises")
    try:
        asked = [registry.find(one) for one in exercises]
    except registry.Unknown as error:
        raise ValueError(str(error)) from None
    strange = [one.id for one in asked if one.lab != lab]
    if strange:
        raise ValueError(f"{', '.join(strange)} is not of lab {lab!r}")
    return asked


def _graded(exercise: Exercise, program: Program, seed: str, level: str) -> Outcome:
    nothing = Outcome(exercise.id, "not attempted", 0, exercise.points, version=exercise.version, level=box(level).name)
    nothing = replace(nothing, hint=exercise.hints[0])
    own = _defining(program, exercise.function)
    if own is None:
        return replace(nothing, sentence=f"The submission does not define `{exercise.function}`.")
    if is_blank_text(own.text, exercise.stub):
        return replace(nothing, sentence=f"`{exercise.function}` is still as it was given.")
    draws = known(exercise, seed)
    try:
        tried = _tried(exercise, program, draws, level)
        outcome = _decided(exercise, draws, tried, nothing, own)
        if outcome.verdict in ("wrong", "crashed", "partial") and not _repeats(exercise, program, draws, tried, level):
            said = "It does not repeat: with the same input it is right one time and wrong another."
            outcome = replace(outcome, verdict="unstable", points=0, sentence=said, mistake="")
    except BoxLost:
        return replace(nothing, verdict="crashed", sentence="It ends the sandbox itself.")
    return replace(outcome, seconds=tried.seconds)


def _tried(exercise: Exercise, program: Program, draws: Draws, level: str, only: int | None = None) -> Tried:
    """Try it on all draws, or on one; the rest is left out once no point can be earned any more."""
    cases = draws.cases if only is None else draws.cases[only : only + 1]

    def enough(draw: int, seen: Sequence[Observation]) -> bool:
        findings = _findings(exercise, draws, draw, seen)
        return any(findings) and not may_be_partial(exercise, findings)

    try:
        return try_program(box(level), exercise, program, cases, refused(exercise), enough)
    except BoxLost:  # the program may have ended it, or the system: once more, in a new one
        return try_program(box(level), exercise, program, cases, refused(exercise), enough)


def _decided(exercise: Exercise, draws: Draws, tried: Tried, nothing: Outcome, own: Statement) -> Outcome:
    findings = [_findings(exercise, draws, draw, seen) for draw, seen in enumerate(tried.seen)]
    complete = len(findings) == len(draws.cases) and all(map(_is_whole, findings, draws.cases))
    if complete and not any(found for one in findings for found in one) and not _called(tried):
        return replace(nothing, verdict="passed", points=exercise.points, hint="")
    draw = next((i for i, one in enumerate(findings) if any(one)), len(findings) - 1)
    verdict = _assessed(exercise, draws, draw, tried.seen[draw])
    error = next((one.error for one in tried.seen[draw] if one.error is not None), None)
    name = _name_of(verdict, error, tried)
    if name in ("not attempted", "forbidden"):
        return replace(nothing, verdict=name, sentence=_forbidden(tried) if name == "forbidden" else verdict.seen)
    shown = draw == 0 and _first(findings[0]) < draws.visible
    sentence = verdict.seen if shown else _public(PASSES_CHECK if draws.visible else FAILS, error, own)
    if name == "crashed" and error is not None and error.type in ("NameError", "Missing"):
        sentence = " ".join([sentence, *_earlier(tried, error)])
    outcome = replace(nothing, verdict=name, sentence=f"{sentence} {verdict.cause}".strip(), mistake=verdict.mistake)
    points = partial_points(exercise, draws, findings) if name == "wrong" else 0
    return replace(outcome, verdict="partial", points=points) if points else outcome


def _findings(exercise: Exercise, draws: Draws, draw: int, seen: Sequence[Observation]) -> list[Finding | None]:
    pairs = zip(draws.cases[draw], seen, draws.expected(draw), strict=False)
    return [_judged(exercise, case, one, expected) for case, one, expected in pairs]


def _judged(exercise: Exercise, case: Case, seen: Observation, expected: Observation) -> Finding | None:
    try:
        return judged(exercise.judge, case, recounted(case, seen), expected)
    except Exception as error:  # a judge expects what its drive gives, and this came from somebody else's process
        return Finding("What it gives has not the form that was asked for.", evidence=("form", type(error).__name__))


def _first(findings: Sequence[Finding | None]) -> int:
    """The place of the first case that fails, or of the one that is missing."""
    return next((at for at, one in enumerate(findings) if one), len(findings))


def _is_whole(findings: Sequence[object], cases: Sequence[object]) -> bool:
    return len(findings) == len(cases)


def _assessed(exercise: Exercise, draws: Draws, draw: int, seen: Sequence[Observation]) -> Verdict:
    """The verdict on one draw; without a likely cause where what came is too strange to look for one."""
    cases = draws.cases[draw]
    try:
        seen = [recounted(case, one) for case, one in zip(cases, seen, strict=False)]
        return assess(exercise, cases, seen, draws.expected(draw), lambda m: draws.behaviour(draw, m))
    except Exception:
        found = next((one for one in _findings(exercise, draws, draw, seen) if one), None)
        return Verdict(exercise.id, exercise.title, "wrong", seen=found.sentence if found else "")


def _called(tried: Tried) -> str:
    """What it called although it may not: seen by the world here, or by a refusal over there."""
    for one in (one for seen in tried.seen for one in seen):
        if one.forbidden:
            return one.forbidden[0]
        if one.error is not None and one.error.type == "ForbiddenCall":
            return one.error.message.split(" may not")[0][:100]
    return ""


def _forbidden(tried: Tried) -> str:
    return f"`{_called(tried)}` may not be called in this exercise: write it yourself."


def _name_of(verdict: Verdict, error: Failure | None, tried: Tried) -> str:
    if _called(tried):
        return "forbidden"
    if error is not None and (error.type == "MemoryError" or any(words in error.message for words in NO_MEMORY)):
        return "out of memory"
    return "crashed" if verdict.status in ("crashed", "cannot run") else verdict.status


def _public(where: str, error: Failure | None, own: Statement) -> str:
    """What may be said of a hidden case: the kind of fault, and no word that the student's process chose.

    A line is told where it is one of the function's own, `own`; of a number made up for code that there is not, none.
    """
    if error is None:
        return where
    if error.type == "Deadlock":
        return f"{where} The ranks wait for each other for ever."
    if error.type in ("Timeout", "Killed"):
        return f"{where} {_placed_in(own, error).sentence}"
    kind = error.type if isinstance(getattr(builtins, error.type, None), type) else "an error of its own"
    return f"{where} There it raises {kind}{_placed_in(own, error).place}."


def _placed_in(own: Statement, error: Failure) -> Failure:
    last = own.line + own.text.count("\n")
    inside = error.file == file_of(own.cell) and own.line <= error.line <= last
    return error if inside else replace(error, file="", line=0)


def _earlier(tried: Tried, error: Failure) -> list[str]:
    """The statements that failed before, when a name is missing because of one."""
    return [f"Cell {cell}, line {line}, failed before: {said.rstrip('.')}." for cell, line, said in tried.problems[:3]]


def _repeats(exercise: Exercise, program: Program, draws: Draws, tried: Tried, level: str) -> bool:
    """Whether the first draw that failed fails again, on the same cases, in a new process."""
    findings = [_findings(exercise, draws, draw, seen) for draw, seen in enumerate(tried.seen)]
    draw = next((i for i, one in enumerate(findings) if any(one)), None)
    if draw is None:
        return True
    again = _tried(exercise, program, draws, level, only=draw)
    second = _findings(exercise, draws, draw, again.seen[0])
    return [one is None for one in findings[draw]] == [one is None for one in second]


def definition(program: Program, name: str) -> str | None:
    """The text of the last statement that defines `name`; None where none does."""
    found = _defining(program, name)
    return found and found.text


def _defining(program: Program, name: str) -> Statement | None:
    return next((one for one in reversed(program.statements) if name in _bound(one.text)), None)


@lru_cache(maxsize=4096)
def _bound(text: str) -> frozenset[str]:
    """Names that a statement binds at the top, or somewhere in an `if` or a `try`."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name)
    return frozenset(names)
