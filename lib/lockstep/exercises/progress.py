"""`progress()`: one table of what was tried, passed and asked for.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from typing import Any

from lockstep.exercises import keep, registry
from lockstep.exercises.exercise import Exercise
from lockstep.exercises.table import Table

HEAD = ("Exercise", "Title", "Kind", "State", "Points", "Attempts", "Hints")


def progress(lab: str | None = None) -> Table:
    """The state of every exercise (of one lab), core or stretch, with attempts, hints and points."""
    record = keep.read()
    chosen = [one for one in registry.all() if lab is None or one.lab == lab]
    rows = tuple(_row(one, record["exercises"].get(one.id, {})) for one in chosen)
    reached = sum(_points(record, one) for one in chosen)
    kept = [p for id, p in record["predictions"].items() if lab is None or id[:2] == lab]
    answers = [a for id, a in record["answers"].items() if lab is None or id[:2] == lab]
    right = sum(1 for given in answers if given and given[-1].get("right"))
    foot = (
        f"{reached} of {sum(one.points for one in chosen)} points. "
        f"Predictions made: {sum(p.get('value') is not None for p in kept)}. "
        f"Questions answered: {len(answers)}, {right} of them right. All of this is kept in {keep.folder()}."
    )
    return Table("Progress" if lab is None else f"Progress in lab {lab}", HEAD, rows, foot)


def _points(record: dict[str, Any], exercise: Exercise) -> int:
    return int(record["exercises"].get(exercise.id, {}).get("points", 0))


def _row(exercise: Exercise, entry: dict[str, Any]) -> tuple[str, ...]:
    attempts = entry.get("attempts", [])
    state = "passed" if entry.get("passed") else f"tried: {attempts[-1]['status']}" if attempts else "open"
    if entry.get("solution"):
        state += ", solution shown"
    return (
        exercise.id, exercise.title, "core" if exercise.core else "stretch", state,
        f"{int(entry.get('points', 0))} of {exercise.points}", str(len(attempts)),
        f"{int(entry.get('hints', 0))} of {len(exercise.hints)}",
    )  # fmt: skip
