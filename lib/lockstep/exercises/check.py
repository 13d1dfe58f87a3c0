"""`check`: try a student's function on the cases of an exercise and say what a good teaching assistant would.

Floor 4, room `exercises`. It never raises in a notebook, whatever it is given, and the function never runs
in the kernel. Read `trial.py` for the child, `assess.py` for the judgement.
"""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lockstep.exercises import keep
from lockstep.exercises.assess import assess, cannot_run, forbidden, next_hint, not_attempted
from lockstep.exercises.exercise import Exercise
from lockstep.exercises.known import known
from lockstep.exercises.mentions import find_in_source
from lockstep.exercises.observe import Observation, is_ours
from lockstep.exercises.registry import Unknown, find
from lockstep.exercises.source import fingerprint, is_blank
from lockstep.exercises.trial import try_in_child
from lockstep.exercises.variants import chosen, in_variant, undecided
from lockstep.exercises.verdict import Verdict
from lockstep.world.run import RankError
from lockstep.world.shipping import ShippingError, pack

SEED = 0  # of the cases that students see; equal every time, so that the failing case stays while they look for it


def check(exercise: str | Exercise, fn: Callable[..., Any], strict: bool = False) -> Verdict:
    """Check a solution: `check("00.1", hello)`. Shows a verdict, and keeps the function when it passes.

    The function runs in a child process that is stopped after 10 s. With `strict=True` a verdict other than
    "passed" raises AssertionError with its text, for tests; otherwise nothing is raised.
    """
    try:
        verdict = _checked(exercise, fn)
    except Unknown as error:
        verdict = Verdict(str(exercise), "", "cannot run", seen=str(error))
    except Exception as error:  # a check that raises would stop the student's notebook
        named = exercise.id if isinstance(exercise, Exercise) else str(exercise)[:40]
        verdict = Verdict(named, "", "cannot run", seen=f"The check itself failed: {type(error).__name__}: {error}")
    if strict and not verdict.passed:
        raise AssertionError(verdict.text)
    return verdict


def _checked(exercise: str | Exercise, fn: Any) -> Verdict:
    if callable(exercise) and isinstance(fn, str):
        return cannot_run(find(fn), "The arguments are the other way round: first the exercise, then the function.")
    exercise = in_variant(find(exercise)) if isinstance(exercise, str) else find(exercise)
    if not callable(fn):
        return cannot_run(
            exercise, f"`check` gets the function itself, not what it returns; it was given {_named(fn)}."
        )
    if is_blank(fn, exercise.stub):
        return not_attempted(exercise)
    if first := undecided(exercise.id):
        return cannot_run(exercise, first)
    mentioned = find_in_source(fn, exercise.forbidden)
    verdict = forbidden(exercise, _mention(*mentioned)) if mentioned else _tried(exercise, fn)
    return _kept(exercise, fn, verdict)


def _named(value: Any) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"


def _mention(name: str, line: int) -> str:
    return f"Line {line} uses `{name}`."


def _tried(exercise: Exercise, fn: Callable[..., Any]) -> Verdict:
    here = known(exercise, SEED)
    try:
        seen = try_in_child(exercise, fn, here.cases)
    except RankError as error:
        return cannot_run(exercise, f"The function could not be taken up by another process. {error.cause}")
    except (TypeError, ValueError, AttributeError, RecursionError, pickle.PicklingError) as error:
        return cannot_run(exercise, _unsendable(fn) or f"{type(error).__name__}: {error}")
    seen = [_without_our_lines(one, fn) for one in seen]
    verdict = assess(exercise, here.cases, seen, here.expected, lambda mistake: here.of(mistake.function))
    if any(one.error and one.error.type == "TypeError" for one in seen):
        misfit = _misfit(exercise, fn)
        return replace(verdict, cause=misfit, mistake="") if misfit else verdict
    return verdict


def _misfit(exercise: Exercise, fn: Callable[..., Any]) -> str:
    """How the function is called, when it cannot take as many arguments; "" when it can."""
    given = inspect.signature(exercise.reference)
    try:
        theirs = inspect.signature(fn)
    except (TypeError, ValueError):  # a builtin without a signature
        return ""
    try:
        theirs.bind(*given.parameters)
    except TypeError:
        many = len(given.parameters)
        counted = {1: "one argument", 2: "two arguments", 3: "three arguments"}.get(many, f"{many} arguments")
        return f"The function is called as `{exercise.function}{given}`: {counted}, and yours takes `{theirs}`."
    return ""


def _without_our_lines(seen: Observation, fn: Callable[..., Any]) -> Observation:
    """Where a lab's own code called `fn` and that failed at once, the line is none of the student's."""
    code = getattr(fn, "__code__", None)
    if seen.error is None or not is_ours(seen.error.file) or (code and is_ours(code.co_filename)):
        return seen
    return replace(seen, error=replace(seen.error, file="", line=0))


def _unsendable(fn: Callable[..., Any]) -> str | None:
    """Why `fn` cannot be sent to a child, naming the variable that cannot; None when it can."""
    try:
        pack(fn)
    except ShippingError as error:
        return str(error)[:1].upper() + str(error)[1:]
    return None


def _kept(exercise: Exercise, fn: Callable[..., Any], verdict: Verdict) -> Verdict:
    """Note the attempt, and keep the function when it passed."""
    if verdict.status in ("not attempted", "cannot run"):
        hints = keep.entry(keep.read(), exercise.id)["hints"]
        return replace(verdict, next=verdict.next.replace(next_hint(exercise), next_hint(exercise, hints)))
    hints, tried = _note(exercise, fn, verdict)
    if verdict.passed:
        trouble = keep.save_function(exercise.id, fn)
        return replace(verdict, next=trouble or f'Kept: `mine("{exercise.id}")` gives your function to later labs.')
    return replace(verdict, next=next_hint(exercise, hints, tried))


def _note(exercise: Exercise, fn: Callable[..., Any], verdict: Verdict) -> tuple[int, int]:
    """Write the attempt into the record; returns how many hints were seen, and different attempts made, so far."""
    variant = chosen(exercise.id)
    with keep.change() as record:
        entry = keep.entry(record, exercise.id)
        attempt = {"is": fingerprint(fn), "status": verdict.status, "mistake": verdict.mistake, "at": keep.now()}
        if not entry["attempts"] or entry["attempts"][-1]["is"] != attempt["is"]:
            entry["attempts"].append(attempt)
        if verdict.passed:
            entry["passed"] = entry["passed"] or keep.now()
            entry["points"] = max(entry["points"], verdict.points)
            entry["variant"] = variant
        return entry["hints"], keep.different(entry)
