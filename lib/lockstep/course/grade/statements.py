"""A cell's text as top-level statements: without magics and shell lines, and around what is not Python.

Floor 4, room `course`. Parsing only: nothing runs. A statement that cannot be parsed costs itself and no other.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from lockstep.course.grade.characters import unparsed

PYTHON_INSIDE = ("time", "timeit", "capture", "prun")  # cell magics whose body is this kernel's own Python
MAGIC = re.compile(r"^(\s*+)(?:[%!?].*|[\w.\[\], ]+=\s*(?:!|%[a-z]).*|[\w.]+\?{1,2})\s*$")
GOES_ON = re.compile(r"^(?:[\s#)\]}]|else\b|elif\b|except\b|finally\b|case\b)")
LOOK_AHEAD = 40  # lines at which a statement may end, tried in turn
PATIENCE = 2_000_000  # characters of one broken cell that are parsed, all tries together

CANNOT = (SyntaxError, ValueError, RecursionError, MemoryError, UnicodeError)


@dataclass(frozen=True)
class Parsed:
    """One top-level statement: its node, its text, and the line of its cell where it begins (from 1)."""

    node: ast.stmt
    text: str
    line: int


@dataclass(frozen=True)
class Lost:
    """Lines that are not Python: the first of them, its number in the cell, and what Python says."""

    text: str
    line: int
    why: str


def statements(cell: str) -> tuple[list[Parsed], list[Lost]]:
    """The statements of one cell in order, and what could not be read."""
    text = cell
    if cell.lstrip().startswith("%%"):
        head, _, body = cell.lstrip().partition("\n")
        if re.split(r"\W", head[2:])[0] not in PYTHON_INSIDE:
            return [], [Lost(head, 1, f"{head.split()[0]} is not read as Python")]
        text = "\n" * (cell[: len(cell) - len(cell.lstrip())].count("\n") + 1) + body
    for attempt in (text, _without_magics(text)):
        try:
            return list(_cut(parse(attempt), attempt, 0)), []
        except CANNOT:
            continue
    return _recovered(_without_magics(text).split("\n"))


def parse(text: str) -> ast.Module:
    """`ast.parse` that does not warn of a student's odd escapes; raises one of CANNOT."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def _without_magics(text: str) -> str:
    return "\n".join(MAGIC.sub(r"\1pass", line) for line in text.split("\n"))


def _cut(tree: ast.Module, text: str, before: int) -> Iterator[Parsed]:
    """Each statement of the tree with its own text; `before`: lines of the cell above this text."""
    lines = text.split("\n")
    for i, node in enumerate(tree.body):
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
        shares = (i > 0 and tree.body[i - 1].end_lineno >= first) or (
            i + 1 < len(tree.body) and tree.body[i + 1].lineno <= node.end_lineno
        )
        own = ast.get_source_segment(text, node) if shares else "\n".join(lines[first - 1 : node.end_lineno])
        if not isinstance(node, ast.Pass):
            yield Parsed(node, own or unparsed(node), before + first)


def _recovered(lines: list[str]) -> tuple[list[Parsed], list[Lost]]:
    """Statements tried one by one, from each line that can begin one to each line before which it can end."""
    starts = [i for i, line in enumerate(lines) if line.strip() and not GOES_ON.match(line)]
    found: list[Parsed] = []
    lost: list[Lost] = []
    at = spent = 0
    while at < len(starts):
        why, after = "more is wrong in this cell than can be sorted out", at + 1
        for end in range(at + 1, min(at + LOOK_AHEAD, len(starts)) + 1):
            text = "\n".join(lines[starts[at] : starts[end] if end < len(starts) else len(lines)])
            if (spent := spent + len(text)) > PATIENCE:
                break
            try:
                found += _cut(parse(text), text, starts[at])
            except CANNOT as error:
                why = (getattr(error, "msg", None) or str(error)) if end == at + 1 else why
                continue
            why, after = "", end
            break
        if why:
            lost.append(Lost(lines[starts[at]].strip(), starts[at] + 1, why))
        at = after
    return found, lost
