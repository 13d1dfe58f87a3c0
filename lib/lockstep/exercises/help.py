"""Help on the way, and what later labs build on: `hint`, `solution`, `mine`.

Floor 4, room `exercises`. Hints and solutions that were shown are noted in `my/`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from lockstep.exercises import keep
from lockstep.exercises.assess import ATTEMPTS, after_hints
from lockstep.exercises.card import Card, Row
from lockstep.exercises.registry import Unknown, find
from lockstep.exercises.standalone import standalone
from lockstep.exercises.variants import as_asked, chosen, in_variant, passed_in


def hint(id: str) -> Card:
    """The next hint of an exercise, after those already seen; past the last one, all of them again."""
    try:
        exercise = in_variant(find(id))
    except Unknown as error:
        return Card(str(error), "", "note")
    hints = exercise.hints
    with keep.change() as record:
        entry = keep.entry(record, exercise.id)
        seen = entry["hints"]
        entry["hints"] = min(seen + 1, len(hints))
        then = after_hints(exercise.id, keep.different(entry), bool(entry["passed"]))
    if seen >= len(hints):
        rows = tuple(Row(f"Hint {i}", text) for i, text in enumerate(hints, 1))
        return Card(f"{exercise.id} {exercise.title}", "all hints", "note", (*rows, Row("Next", then)))
    left = len(hints) - seen - 1
    more = then if not left else f'`hint("{exercise.id}")` again for the next one; {left} left.'
    return Card(
        f"{exercise.id} {exercise.title}", f"hint {seen + 1} of {len(hints)}", "note",
        (Row("Hint", hints[seen]), Row("Next", more)),
    )  # fmt: skip


def solution(id: str) -> Card:
    """The reference, after a pass or three different attempts; before that, a sentence. What was shown is noted."""
    try:
        exercise = in_variant(find(id))
    except Unknown as error:
        return Card(str(error), "", "note")
    with keep.change() as record:
        entry = keep.entry(record, exercise.id)
        tried = keep.different(entry)
        shown = bool(entry["passed"]) or tried >= ATTEMPTS
        if shown and not entry["passed"]:
            entry["solution"] = entry["solution"] or keep.now()
    heading = f"{exercise.id} {exercise.title}"
    if not shown:
        text = f"An answer is shown after {ATTEMPTS} different attempts that were checked; so far there were {tried}."
        return Card(heading, "not yet", "open", (Row("Solution", text), Row("Next", f'`hint("{exercise.id}")`')))
    noted = "You have passed; this is one way." if entry["passed"] else "Noted: this answer was shown before a pass."
    return Card(heading, "solution", "note", (Row("One answer", standalone(exercise.reference), True), Row("", noted)))


def mine(id: str) -> Callable[..., Any]:
    """The student's function that passed this exercise, or the library's reference; prints which."""
    exercise = find(id)
    fn, said = _mine(exercise.id), "your own"
    if fn is None:
        fn, said = as_asked(exercise.id, chosen(exercise.id), in_variant(exercise).reference), "the library's"
    print(f"{exercise.id} {exercise.function}: {said}")
    return fn


def whose(id: str) -> str:
    """Whose function `mine(id)` gives, for the title of a figure: "your own" or "the library's"."""
    return "the library's" if _mine(find(id).id) is None else "your own"


def _mine(id: str) -> Callable[..., Any] | None:
    """What passed, in the form that the lab's other cells expect, whichever variant it passed in."""
    try:
        fn = keep.load_function(id)
        return fn if fn is None else as_asked(id, passed_in(id), fn)
    except ValueError as error:
        warnings.warn(
            f"{error}; the library's function is used. Run its check cell again to keep yours anew.", stacklevel=3
        )
        return None
