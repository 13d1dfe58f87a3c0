"""When a submission came and by when it had to: late hours are counted here, and taken off nowhere but by a policy.

Floor 4, room `course`. Times come from the platform's download or from a CSV (student, submitted); what a student's own
file says of its making counts for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from lockstep.course.grade.lms import moment
from lockstep.course.grade.text_table import read_table, whose


@dataclass(frozen=True)
class Deadlines:
    """due: by lab, "" for all others. extended: by (student, lab or "")."""

    due: Mapping[str, datetime] = field(default_factory=dict)
    extended: Mapping[tuple[str, str], datetime] = field(default_factory=dict)

    def of(self, student: str, lab: str) -> datetime | None:
        """When this student's lab is due; None when nobody said."""
        for key in ((student, lab), (student, "")):
            if key in self.extended:
                return self.extended[key]
        return self.due.get(lab, self.due.get(""))


def hours_late(when: datetime | None, due: datetime | None) -> float | None:
    """Hours after the deadline, 0 when in time; None when either is not known."""
    if when is None or due is None:
        return None
    return round(max(0.0, (when - due).total_seconds() / 3600), 2)


def read_due(said: Iterable[str]) -> dict[str, datetime]:
    """ "2026-12-01 23:59" for every lab, "05=2026-12-01 23:59" for one; local time unless an offset is given."""
    found = {}
    for text in said:
        lab, equals, rest = text.partition("=")
        when = moment(rest if equals else text)
        if when is None:
            raise ValueError(f"--due {text!r} is no time: write it as 2026-12-01 23:59, or 05=2026-12-01 23:59")
        found[lab.strip().zfill(2) if equals else ""] = when
    return found


def read_extensions(
    path: Path | None, due: Mapping[str, datetime], students: Iterable[tuple[str, str]], said: list[str]
) -> dict[tuple[str, str], datetime]:
    """`extensions.csv`: student, and `due` or `hours` (after the deadline), and `lab` where it is for one alone."""
    found: dict[tuple[str, str], datetime] = {}
    for line, row in enumerate(read_table(path, ["student"]) if path else (), 2):
        student, lab = whose(row, students), row.get("lab", "")
        lab = lab.zfill(2) if lab else ""
        if student is None:
            said.append(f"{path}, line {line}: nobody handed in as {row['student']!r}.")
            continue
        found[student, lab] = _until(row, due.get(lab, due.get("")), f"{path}, line {line}")
    return found


def _until(row: Mapping[str, str], due: datetime | None, where: str) -> datetime:
    if row.get("due"):
        when = moment(row["due"])
        if when is None:
            raise ValueError(f"{where}: {row['due']!r} is no time: write it as 2026-12-03 23:59")
        return when
    try:
        hours = float(row.get("hours") or "none")
        return due + timedelta(hours=hours)
    except (ValueError, OverflowError):
        raise ValueError(f"{where}: give a time under 'due', or a number under 'hours'") from None
    except TypeError:
        raise ValueError(f"{where}: 'hours' count from the deadline; give it with --due") from None


def read_times(
    path: Path | None, students: Iterable[tuple[str, str]], said: list[str]
) -> dict[tuple[str, str], datetime]:
    """`times.csv`: student, submitted, and `lab` where it is for one alone. It counts before the platform's time."""
    found: dict[tuple[str, str], datetime] = {}
    for line, row in enumerate(read_table(path, ["student", "submitted"]) if path else (), 2):
        student, when = whose(row, students), moment(row["submitted"])
        if when is None:
            raise ValueError(f"{path}, line {line}: {row['submitted']!r} is no time: write it as 2026-12-01 23:59")
        if student is None:
            said.append(f"{path}, line {line}: nobody handed in as {row['student']!r}.")
        else:
            lab = row.get("lab", "")
            found[student, lab.zfill(2) if lab else ""] = when
    return found
