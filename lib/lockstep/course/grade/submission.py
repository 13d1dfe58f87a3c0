"""What a student handed in, as plain text: nothing in here has been run.

Floor 4, room `course`. Reading makes it from a notebook, a `submit()` file or an LMS download; running it is the
sandbox's matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path


@dataclass(frozen=True)
class Statement:
    """One top-level statement of a notebook's code cells: its text, and the cell and line where it begins (both from 1)."""

    text: str
    cell: int
    line: int


@dataclass(frozen=True)
class Program:
    """The statements that define things (imports, functions, classes, constants), in the order of the notebook.

    No call of `check`, no experiment, no magic: running them all defines the student's functions and little else.
    """

    statements: tuple[Statement, ...] = ()


@dataclass(frozen=True)
class Submission:
    """One student's hand-in for one lab.

    student: the key by which it was handed in (folder, LMS name). lab: "05". digest: SHA-256 of the bytes read.
    answers: text by the id of a question or answer cell. predictions: id to {"value", "reason"}.
    warnings: sentences for the instructor, of what had to be guessed. problem: why nothing could be read, or "".
    broken: by function name, why its definition is not Python. lms_id: the number an LMS gave the student, or "".
    """

    student: str
    lab: str
    origin: Path
    digest: str = ""
    program: Program = Program()
    answers: Mapping[str, str] = field(default_factory=dict)
    predictions: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    when: datetime | None = None
    warnings: tuple[str, ...] = ()
    problem: str = ""
    broken: Mapping[str, str] = field(default_factory=dict)
    lms_id: str = ""
