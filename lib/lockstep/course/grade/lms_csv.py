"""Marks for Canvas and Moodle: a table of our own, or a gradebook they exported with one column filled in.

Floor 4, room `course`. In an exported gradebook nothing but that one column changes: neither order nor columns, and no
mark of a student whom we do not have. A student is found by number or address first, then by name; two who could be
meant are left to a person.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.course.grade.result import Result, number
from lockstep.course.grade.text_table import csv_text, delimiter_of, read_text, rows_of

NUMBERS = ("id", "sis user id", "sis login id", "email address", "email", "id number", "username", "identifier")
NAMES = ("student", "full name", "name")
CANVAS_HEAD = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")


def canvas_csv(results: Sequence[Result]) -> str:
    """A gradebook that Canvas imports: a column for each lab, with the row of points possible."""
    labs, students = _by_student(results)
    possible = ["    Points Possible", "", "", "", "", *(max(r.of for r in results if r.lab == lab) for lab in labs)]
    rows = [
        [_name(student), one[0].submission.lms_id, "", "", "", *(_points(one, lab) for lab in labs)]
        for student, one in students.items()
    ]
    return csv_text([[*CANVAS_HEAD, *(f"Lab {lab}" for lab in labs)], possible, *rows])


def moodle_csv(results: Sequence[Result]) -> str:
    """A table that Moodle's grade import takes: identify by participant number or full name, map the rest."""
    labs, students = _by_student(results)
    rows = [
        [
            f"Participant {id}" if (id := one[0].submission.lms_id) else "",
            _name(student),
            *(_points(one, lab) for lab in labs),
        ]
        for student, one in students.items()
    ]
    return csv_text([["Identifier", "Full name", *(f"Lab {lab}" for lab in labs)], *rows])


def _by_student(results: Sequence[Result]) -> tuple[list[str], dict[str, list[Result]]]:
    students: dict[str, list[Result]] = {}
    for one in results:
        students.setdefault(one.student, []).append(one)
    return sorted({one.lab for one in results if one.lab}), students


def _points(results: Sequence[Result], lab: str) -> object:
    return next((one.points for one in results if one.lab == lab and not one.failure), "")


def _name(student: str) -> str:
    return re.sub(r" \(\d+\)$", "", student)


@dataclass(frozen=True)
class Filled:
    """A gradebook as text, how many marks were put in, and sentences about what was not."""

    text: str
    marks: int
    said: tuple[str, ...]
    encoding: str = "utf-8"


def fill(gradebook: Path, results: Sequence[Result], columns: Mapping[str, str]) -> Filled:
    """The exported gradebook with the column of each lab filled. columns: by lab, where it cannot be told by itself.

    Raises ValueError when the file is no gradebook, or a lab's column is not found; the message lists the columns.
    """
    text = read_text(gradebook)
    delimiter = delimiter_of(text)
    lines = text.splitlines(keepends=True)
    ending = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    rows = rows_of(text, gradebook)
    if len(rows) < 2:
        raise ValueError(f"{gradebook} holds no students: export the gradebook with them")
    head = [name.strip().lower() for name in rows[0]]
    if not set(head) & {*NUMBERS, *NAMES}:
        raise ValueError(f"{gradebook} is no gradebook of Canvas or Moodle: its columns are {', '.join(rows[0][:8])}")
    said: list[str] = []
    marks = 0
    for lab in sorted({one.lab for one in results if one.lab}):
        at = _column(rows[0], lab, columns.get(lab), len({one.lab for one in results if one.lab}) == 1, gradebook)
        graded = [one for one in results if one.lab == lab and not one.failure]
        marks += _fill_column(rows, head, at, graded, said)
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=delimiter, lineterminator=ending, quoting=_quoting(text)).writerows(rows)
    marked = Path(gradebook).read_bytes()[:3] == codecs.BOM_UTF8
    return Filled(out.getvalue(), marks, tuple(said), "utf-8-sig" if marked else "utf-8")


def _quoting(text: str) -> int:
    return (
        csv.QUOTE_ALL if text.startswith('"') and text.partition("\n")[0].rstrip().endswith('"') else csv.QUOTE_MINIMAL
    )


def _column(head: list[str], lab: str, asked: str | None, only_one: bool, gradebook: Path) -> int:
    if asked is not None:
        found = [i for i, name in enumerate(head) if name.strip() == asked.strip()]
    else:
        found = [i for i, name in enumerate(head) if re.search(rf"(?i)\blab[ _-]*0?{int(lab)}\b|\b{lab}_[a-z]", name)]
        if not found and only_one:  # Moodle's sheet for one assignment
            found = [i for i, name in enumerate(head) if name.strip().lower() == "grade"]
    if len(found) != 1:
        why = "there are several" if found else "there is none"
        raise ValueError(
            f"which column of {gradebook} is lab {lab}? By its name {why}. Say --column '{lab}=NAME'; there are: "
            + ", ".join(repr(name) for name in head)
        )
    return found[0]


def _fill_column(rows: list[list[str]], head: list[str], at: int, results: Sequence[Result], said: list[str]) -> int:
    """Put each result into its student's row; returns how many."""
    by_key: dict[str, list[list[str]]] = {}
    maximum, best = None, None
    for row in rows[1:]:
        if row and row[0].strip().lower().startswith("points possible"):
            maximum = _float(row[at]) if len(row) > at else None
            continue
        for key in _keys(row, head):
            by_key.setdefault(key, []).append(row)
        if "maximum grade" in head and len(row) > head.index("maximum grade"):
            best = _float(row[head.index("maximum grade")])
    maximum = maximum or best
    marks = 0
    for one in results:
        row = _row_of(one, by_key, said)
        if row is None:
            continue
        points = one.points if not maximum or not one.of else one.points / one.of * maximum
        row += [""] * (at + 1 - len(row))
        row[at] = number(points)
        marks += 1
    if maximum and results and abs(maximum - results[0].of) > 1e-9:
        said.append(f"{rows[0][at]} has {maximum:g} points there and {results[0].of:g} here: marks were scaled.")
    return marks


def _row_of(one: Result, by_key: Mapping[str, list[list[str]]], said: list[str]) -> list[str] | None:
    keys = (
        f"#{one.submission.lms_id}" if one.submission.lms_id else "",
        f"#{one.student.lower()}",
        _squeezed(_name(one.student)),
    )
    for key in keys:
        rows = by_key.get(key, []) if key else []
        if len({id(row) for row in rows}) == 1:
            return rows[0]
        if rows:
            said.append(f"{one.pseudonym}: {len(rows)} rows of the gradebook could be meant; none was filled.")
            return None
    said.append(f"{one.pseudonym}: no row of the gradebook is this student's; see grades.csv for the name.")
    return None


def _keys(row: Sequence[str], head: Sequence[str]) -> set[str]:
    """What a row can be found by: "#" before numbers and addresses, names without spaces and case."""
    cells = dict(zip(head, (cell.strip() for cell in row), strict=False))
    found = {f"#{cells[name].removeprefix('Participant ').lower()}" for name in NUMBERS if cells.get(name)}
    names = [cells[name] for name in NAMES if cells.get(name)]
    first, last = cells.get("first name", ""), cells.get("last name", "") or cells.get("surname", "")
    if first or last:
        names += [f"{first} {last}", f"{last} {first}"]
    for name in names:
        family, comma, given = name.partition(",")
        found |= {_squeezed(name)} | ({_squeezed(given + family)} if comma else set())
    return found - {"", "#"}


def _squeezed(name: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFKD", name).casefold() if c.isalnum())


def _float(text: str) -> float | None:
    try:
        return float(text.replace(",", "."))
    except ValueError:
        return None
