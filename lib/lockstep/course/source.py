"""The one source of a lab: a py:percent file, read into cells, and what a student or an instructor sees of each.

Floor 4, room `course`. Vocabulary: the *source* is `solutions/NN_topic.py`; the *lab* and the *solution* are the
notebooks made from it. Marks inside a code cell say which lines are whose::

    def hello(comm):
        ### BEGIN SOLUTION
        total = comm.all_reduce(...)          # in the solution only
        ### END SOLUTION
        ### BEGIN STUB
        # raise NotImplementedError("...")    # in the lab only, without the "# " that lets the source run
        ### END STUB

A solution without a stub leaves `raise NotImplementedError(...)` in the lab.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import jupytext

MARK = re.compile(r"^\s*### (BEGIN|END) (SOLUTION|STUB)\s*$")
EXERCISE_ID = re.compile(r"\d\d\.\d+")
BLANK = 'raise NotImplementedError("write your solution here")'


class SourceError(ValueError):
    """A source that cannot be read; the message names the file, the cell and what to do."""


@dataclass(frozen=True)
class Cell:
    """One cell of the source. kind: "code" or "markdown". id: stable, see `name_cells`."""

    kind: str
    text: str
    tags: tuple[str, ...] = ()
    id: str = ""

    @property
    def exercise(self) -> str | None:
        """The id of the exercise that an exercise or check cell belongs to."""
        return next((tag for tag in self.tags if EXERCISE_ID.fullmatch(tag)), None)

    @property
    def for_student(self) -> str:
        """The text with solutions cut out and stubs put in."""
        kept: list[str] = []
        for part, lines in regions(self.text):
            if part == "STUB":
                kept += [re.sub(r"^(\s*)# ?", r"\1", line, count=1) for line in lines]
            elif part == "SOLUTION" and "### BEGIN STUB" not in self.text:
                kept.append(_indent(lines) + BLANK)
            elif part == "":
                kept += lines
        return "\n".join(kept)

    @property
    def for_instructor(self) -> str:
        """The text with solutions (and their marks, which nbgrader reads) and without stubs."""
        kept: list[str] = []
        for part, lines in regions(self.text):
            if part == "SOLUTION":
                indent = _indent(lines)
                kept += [f"{indent}### BEGIN SOLUTION", *lines, f"{indent}### END SOLUTION"]
            elif part == "":
                kept += lines
        return "\n".join(kept)

    @property
    def solution_lines(self) -> list[str]:
        """The lines between the solution marks."""
        return [line for part, lines in regions(self.text) if part == "SOLUTION" for line in lines]

    def calls(self, function: str) -> list[str]:
        """The first argument, where it is a text, of every call of `function` in this cell, in order."""
        if self.kind != "code":
            return []
        return [
            node.args[0].value
            for node in ast.walk(parse(self.text))
            if isinstance(node, ast.Call)
            and getattr(node.func, "id", getattr(node.func, "attr", None)) == function
            and node.args
            and isinstance(node.args[0], ast.Constant)
            and isinstance(node.args[0].value, str)
        ]


def _indent(lines: list[str]) -> str:
    first = next((line for line in lines if line.strip()), "")
    return first[: len(first) - len(first.lstrip())]


def parse(text: str) -> ast.Module:
    """The syntax tree of a cell; lines that only IPython understands (`%`, `!`) count as blank."""
    if text.lstrip().startswith("%%"):
        text = text.lstrip().partition("\n")[2]
    return ast.parse("\n".join("" if line.lstrip().startswith(("%", "!")) else line for line in text.split("\n")))


def regions(text: str) -> Iterator[tuple[str, list[str]]]:
    """("SOLUTION" | "STUB" | "", lines) in order, marks left out; raises SourceError when marks do not pair up."""
    inside, lines = "", []
    for line in text.split("\n"):
        mark = MARK.match(line)
        if mark is None:
            lines.append(line)
            continue
        begins, part = mark[1] == "BEGIN", mark[2]
        if begins == bool(inside) or (not begins and part != inside):
            raise SourceError(f"'{line.strip()}' comes {f'inside {inside}' if inside else 'without its BEGIN'}")
        yield inside, lines
        inside, lines = (part if begins else ""), []
    if inside:
        raise SourceError(f"'### BEGIN {inside}' has no END")
    yield "", lines


@dataclass(frozen=True)
class Source:
    """One lab's source: its path, its cells, and the hash that says whether its products are stale."""

    path: Path
    cells: tuple[Cell, ...]
    digest: str

    @property
    def name(self) -> str:
        """ "00_start_here": what the lab's notebooks are called."""
        return self.path.stem

    @property
    def number(self) -> str:
        """ "00"."""
        return self.name[:2]

    @cached_property
    def prose(self) -> str:
        """All markdown cells as one text."""
        return "\n\n".join(cell.text for cell in self.cells if cell.kind == "markdown")


def read(path: Path) -> Source:
    """Read a source; raises SourceError when its name, its marks or its Python are wrong."""
    if not re.fullmatch(r"\d\d_[a-z0-9_]+", path.stem):
        raise SourceError(f"{path.name} is not named like 04_collectives.py: two digits, then lower-case words")
    text = path.read_text(encoding="utf-8")
    notebook = jupytext.reads(text, fmt="py:percent")
    cells = [
        Cell(cell.cell_type, cell.source, tuple(cell.metadata.get("tags", ())))
        for cell in notebook.cells
        if cell.cell_type in ("code", "markdown")
    ]
    for number, cell in enumerate(cells, 1):
        try:
            if cell.kind == "code":
                parse(cell.text)
                parse(cell.for_student)
                _leaves_the_lab_running(cell)
        except (SourceError, SyntaxError) as error:
            raise SourceError(f"{path.name}, cell {number}: {error}") from None
    return Source(path, name_cells(cells), hashlib.sha256(text.encode()).hexdigest())


def _leaves_the_lab_running(cell: Cell) -> None:
    for line in cell.for_student.split("\n"):
        if line == BLANK:
            raise SourceError(
                "a solution outside a function leaves a bare error in the lab, which must run unsolved; add a stub"
            )


def name_cells(cells: list[Cell]) -> tuple[Cell, ...]:
    """Give every cell an id that stays when cells elsewhere are added: what it is for, or its section and place there.

    "parameters", "exercise-00-1", "check-00-1", "predict-00-p1"; all others "start-here-3", the third
    unlabelled cell under the heading "Start here". Translations and grades are keyed by these.
    """
    named: list[Cell] = []
    used: dict[str, int] = {}
    section = "top"
    for cell in cells:
        heading = re.search(r"^#+ +(.+)$", cell.text, re.MULTILINE) if cell.kind == "markdown" else None
        if heading:
            section = _slug(heading[1])
        label = _label(cell)
        stem = label or section
        used[stem] = used.get(stem, 0) + 1
        id = stem if label and used[stem] == 1 else f"{stem}-{used[stem]}"
        named.append(Cell(cell.kind, cell.text, cell.tags, id))
    return tuple(named)


def _slug(heading: str) -> str:
    """ "2. Where the seconds go (3 min)" -> "where-the-seconds-go": neither its number nor its minutes."""
    words = re.sub(r"^\d+\.\s|\(\d+ min\)", "", heading.lower())
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-")[:48].strip("-") or "section"


def _label(cell: Cell) -> str:
    if "parameters" in cell.tags:
        return "parameters"
    for role in ("exercise", "check"):
        if role in cell.tags and cell.exercise:
            return f"{role}-{cell.exercise}".replace(".", "-")
    for role in ("predict", "reveal"):
        ids = cell.calls(role)
        if ids:
            return re.sub(r"[^A-Za-z0-9_-]+", "-", f"{role}-{ids[0]}")
    return ""
