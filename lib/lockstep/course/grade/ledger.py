"""What every student had after the last run: marks do not fall behind anybody's back, and changes can be shown.

Floor 4, room `course`. One JSON file in the folder of grades.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from lockstep.course.grade.cache import from_json, write_whole
from lockstep.course.grade.outcome import Outcome
from lockstep.course.grade.result import Result


@dataclass(frozen=True)
class Entry:
    """One submission as it was judged: its digest, and its outcomes before anything was set by hand."""

    digest: str
    outcomes: tuple[Outcome, ...]
    points: float


Ledger = Mapping[tuple[str, str], Entry]


def read_ledger(file: Path) -> dict[tuple[str, str], Entry]:
    """By (student, lab); empty before the first run. Raises ValueError when the file is damaged."""
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))
        return {
            (row["student"], row["lab"]): Entry(
                row["digest"], tuple(from_json(one) for one in row["outcomes"]), row["points"]
            )
            for row in rows
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{file} holds the marks of the last run and cannot be read ({error}); move it away to start without it"
        ) from None


def write_ledger(file: Path, before: Ledger, results: Iterable[Result], judged: Ledger) -> None:
    """Keep what this run judged; students who are not in it keep their last entry. Raises ValueError on a full disk."""
    points = {(one.student, one.lab): one.points for one in results}
    after = {**before, **{key: replace(entry, points=points[key]) for key, entry in judged.items() if key in points}}
    rows = [
        {"student": student, "lab": lab, "digest": entry.digest, "points": entry.points,
         "outcomes": [asdict(one) for one in entry.outcomes]}
        for (student, lab), entry in sorted(after.items())
    ]  # fmt: skip
    try:
        write_whole(file, json.dumps(rows, indent=1, ensure_ascii=False))
    except OSError as error:
        raise ValueError(f"{file} could not be written ({error.strerror}): no marks were kept of this run") from None


def not_lower(
    before: Entry | None, digest: str, outcomes: Iterable[Outcome]
) -> tuple[tuple[Outcome, ...], tuple[str, ...]]:
    """The outcomes, each with the mark of the last run where that was higher, and which these are.

    Only for the same files: who hands in something else is judged by that. Where the points of an exercise have
    changed, shares are compared.
    """
    if before is None or before.digest != digest:
        return tuple(outcomes), ()
    earlier = {one.exercise: one for one in before.outcomes}
    kept, which = [], []
    for one in outcomes:
        old = earlier.get(one.exercise)
        if old is not None and old.of and one.of and old.points / old.of > one.points / one.of + 1e-9:
            one = replace(old, points=round(old.points / old.of * one.of, 6), of=one.of, version=one.version)
            which.append(one.exercise)
        kept.append(one)
    return tuple(kept), tuple(which)


@dataclass(frozen=True)
class Change:
    """One exercise whose mark differs from the last run's; `before` is None for who is new."""

    student: str
    lab: str
    exercise: str
    before: Outcome | None
    after: Outcome | None


def changes(before: Ledger, after: Ledger) -> list[Change]:
    """Every mark that differs between two ledgers, students in order."""
    found = []
    for key in sorted({*before, *after}):
        if key not in after:  # not part of this run
            continue
        old = {one.exercise: one for one in before[key].outcomes} if key in before else {}
        new = {one.exercise: one for one in after[key].outcomes}
        for exercise in sorted({*old, *new}):
            was, now = old.get(exercise), new.get(exercise)
            if (was and was.points, was and was.of) != (now and now.points, now and now.of):
                found.append(Change(*key, exercise, was, now))
    return found
