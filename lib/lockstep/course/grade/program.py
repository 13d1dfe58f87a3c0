"""From a notebook's cells to the program that defines the student's functions, and little else.

Floor 4, room `course`; read `submission`, `statements` and `names` first. Of the statements, those are kept that the
lab's functions need, directly or through others; `check`, pictures and measurements are nobody's need. A function
that stands there twice counts as it was defined last, unless that is the untouched skeleton.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from lockstep.course.grade.characters import unparsed
from lockstep.course.grade.names import BUILTIN, Named, named
from lockstep.course.grade.notebook import NotebookCell
from lockstep.course.grade.statements import CANNOT, Lost, Parsed, parse, statements
from lockstep.course.grade.submission import Program, Statement

ASIDE = {"check", "experiment", "widget", "setup", "predict"}  # tags of cells of which only definitions count
SHORT = 10_000  # characters of a cell that is worth remembering
MOST_STATEMENTS = 4000  # of a notebook; the labs have a tenth of that
TALKS = {"check", "predict", "reveal", "ask", "answer", "recall", "hint", "solution", "submit", "progress", "diagnose"}


@dataclass(frozen=True)
class LabText:
    """What reading knows of a lab. functions: name by exercise id; skeletons: source by name.

    given: statements of the released notebook outside its exercises, for what a student deleted. texts: by the id of
    an answer cell, what stood there when it was handed out. predicts: ids of its predictions. name, title: of its notebook.
    """

    number: str
    functions: Mapping[str, str] = field(default_factory=dict)
    skeletons: Mapping[str, str] = field(default_factory=dict)
    given: tuple[Named, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    predicts: tuple[str, ...] = ()
    name: str = ""
    title: str = ""


@dataclass(frozen=True)
class Built:
    """A program, sentences about what was guessed, and by function name why a definition could not be read."""

    program: Program
    warnings: tuple[str, ...] = ()
    broken: Mapping[str, str] = field(default_factory=dict)


def build(cells: Iterable[NotebookCell], lab: LabText, passed: Mapping[str, str] | None = None) -> Built:
    """The program of a notebook. passed: sources by exercise id that `submit()` kept beside it."""
    pieces, warnings, broken = pieces_of(cells, set(lab.functions.values()))
    for id, source in (passed or {}).items():
        wanted = lab.functions.get(id)
        if wanted and not any(wanted in one.binds and not _is_skeleton(one, wanted, lab) for one in pieces):
            kept = [one for one in _from_text(source) if wanted in one.binds]
            if kept:
                warnings.append(f"`{wanted}` is not in the notebook: the copy that had passed is used.")
                pieces += kept
    for wanted in lab.functions.values():
        pieces = _last_one(pieces, wanted, lab, warnings)
    pieces += _renamed(pieces, lab, warnings)
    wanted = {*lab.functions.values(), "STUDENT"}
    chosen = _needed(pieces, wanted)
    missing = _missing(chosen) - set(lab.functions.values())
    given = [one for one in _needed(lab.given, missing) if one.is_definition] if missing else []
    if given:
        names = sorted(frozenset().union(*(one.binds for one in given)) & missing)
        warnings.append(f"Not in the notebook, taken from the lab as it was handed out: {', '.join(names)}.")
    ordered = _in_order([*given, *chosen])
    used = wanted.union(*(one.needs for one in ordered))
    return Built(Program(tuple(_statement(one, used) for one in ordered)), tuple(warnings), broken)


def pieces_of(cells: Iterable[NotebookCell], functions: set[str]) -> tuple[list[Named], list[str], dict[str, str]]:
    """The statements of code cells that may define something, warnings, and why one of `functions` was lost."""
    pieces: list[Named] = []
    warnings: list[str] = []
    broken: dict[str, str] = {}

    def lose(text: str, cell: int, line: int, why: str) -> None:
        said = f"cell {cell}, line {line} is not Python ({why}): `{text[:80]}`"
        warnings.append(f"{said[0].upper()}{said[1:]}; it was left out.")
        for name in functions:
            if text.startswith((f"def {name}", f"class {name}", f"async def {name}")):
                broken[name] = said

    for cell in cells:
        if cell.kind != "code":
            continue
        read = _of_cell_once if len(cell.text) < SHORT else _of_cell
        for one in read(cell.text, cell.number, tuple(cell.tags)):
            if isinstance(one, Lost):
                lose(one.text, cell.number, one.line, one.why)
            elif len(pieces) >= MOST_STATEMENTS:
                warnings.append(
                    f"Cell {cell.number} and what follows is left out: more than {MOST_STATEMENTS} statements."
                )
                return pieces, warnings, broken
            else:
                pieces.append(one)
    return pieces, warnings, broken


def _of_cell(text: str, number: int, tags: tuple[str, ...]) -> list[Named | Lost]:
    """What a code cell may define, and what of it could not be read."""
    found, lost = statements(text)
    read: list[Named | Lost] = [one for one in lost if not one.text.startswith("%%")]
    for one in found:
        try:
            read.append(named(one, number, tags))
        except CANNOT as error:
            read.append(Lost(one.text.split("\n")[0], one.line, getattr(error, "msg", None) or str(error)))
    return read


_of_cell_once = lru_cache(maxsize=1024)(_of_cell)  # most of a class's cells are as they were handed out


def _from_text(source: str) -> list[Named]:
    found, _ = statements(source)
    try:
        return [named(one) for one in found]
    except CANNOT:
        return []


def _is_skeleton(piece: Named, name: str, lab: LabText) -> bool:
    """Whether a definition is as it was handed out, or says nothing."""
    node = piece.parsed.node
    if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return False
    body = [one for one in node.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    if all(isinstance(one, ast.Pass) or (isinstance(one, ast.Raise) and "NotImpl" in unparsed(one)) for one in body):
        return True
    return name in lab.skeletons and _spelled(lab.skeletons[name]) == unparsed(node)


@lru_cache(maxsize=64)
def _spelled(source: str) -> str:
    try:
        return unparsed(parse(source))
    except CANNOT:
        return ""


def _last_one(pieces: list[Named], name: str, lab: LabText, warnings: list[str]) -> list[Named]:
    """Without the earlier definitions of an exercise's function, nor skeletons beside a written one."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    found = [one for one in pieces if name in one.binds and isinstance(one.parsed.node, kinds)]
    written = [one for one in found if not _is_skeleton(one, name, lab)]
    if len(found) < 2:
        return pieces
    kept = (written or found)[-1]
    if len(written) > 1:
        warnings.append(f"`{name}` is defined {len(written)} times; the last, in cell {kept.cell}, counts.")
    elif kept is not found[-1]:
        warnings.append(f"`{name}` stands twice: the one that is written, in cell {kept.cell}, counts.")
    return [one for one in pieces if one not in found or one is kept]


def _renamed(pieces: Sequence[Named], lab: LabText, warnings: list[str]) -> list[Named]:
    """`shard = my_shard`, where a check names another function than the lab does, and the lab's is not there."""
    there = frozenset().union(*(one.binds for one in pieces)) if pieces else frozenset()
    checked = {one.id: one.other for one in _checks(pieces)}
    found = []
    for id, name in lab.functions.items():
        other = checked.get(id, name)
        if name not in there and other in there:
            warnings.append(f"`{name}` is called `{other}` here.")
            found += _from_text(f"{name} = {other}")
    return found


@dataclass(frozen=True)
class _Check:
    id: str
    other: str


def _checks(pieces: Sequence[Named]) -> list[_Check]:
    return [
        _Check(call.args[0].value, call.args[1].id)
        for piece in pieces
        if isinstance(piece.parsed.node, ast.Expr)
        for call in [piece.parsed.node.value]
        if isinstance(call, ast.Call) and unparsed(call.func) == "check" and len(call.args) == 2
        if isinstance(call.args[0], ast.Constant) and isinstance(call.args[1], ast.Name)
    ]


def _needed(pieces: Sequence[Named], names: Iterable[str]) -> list[Named]:
    """The pieces that the names rest on, in their order."""
    wanted, chosen = set(names), set()
    again = True
    while again:
        again = False
        for i, one in enumerate(pieces):
            if i not in chosen and _may_run(one) and (one.star or (one.binds | one.changes) & wanted):
                chosen.add(i)
                wanted |= one.needs
                again = True
    return [pieces[i] for i in sorted(chosen)]


def _may_run(piece: Named) -> bool:
    """Not: what a check, a measurement or a widget needs, nor a call of the course's own, nor the import of those."""
    node = piece.parsed.node
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lockstep.exercises"):
        return False
    if isinstance(node, ast.Expr) and piece.at_once & TALKS:
        return False
    return piece.is_definition or not ASIDE & set(piece.tags)


def _missing(pieces: Sequence[Named]) -> set[str]:
    bound = frozenset().union(*(one.binds for one in pieces)) if pieces else frozenset()
    needed = frozenset().union(*(one.needs for one in pieces)) if pieces else frozenset()
    return set(needed - bound - BUILTIN - {"mine"})


def _in_order(pieces: Sequence[Named]) -> list[Named]:
    """As they stand, but what a statement needs to run comes before it, wherever its cell was moved to."""
    done: list[Named] = []
    begun: set[int] = set()
    bound: set[str] = set()

    def take(i: int) -> None:
        begun.add(i)
        for j, other in enumerate(pieces):
            if j not in begun and other.binds & (pieces[i].at_once - bound):
                take(j)
        done.append(pieces[i])
        bound.update(pieces[i].binds)

    for i in range(len(pieces)):
        if i not in begun:
            take(i)
    return done


def _statement(piece: Named, used: Iterable[str]) -> Statement:
    """As it is written; an import brings no name that nobody uses, since importing costs seconds."""
    node, text = piece.parsed.node, piece.parsed.text
    if isinstance(node, (ast.Import, ast.ImportFrom)) and not piece.star:
        kept = [one for one in node.names if (one.asname or one.name.partition(".")[0]) in used]
        if len(kept) < len(node.names):
            text = ast.unparse(type(node)(**{**dict(ast.iter_fields(node)), "names": kept}))
    return Statement(text, piece.cell, piece.parsed.line)


def source_of(program: Program, name: str) -> str:
    """The text of the statement that last gives `name` its value; "" when none does."""
    return next((one.text for one in reversed(program.statements) if name in _bound(one.text)), "")


@lru_cache(maxsize=4096)
def _bound(text: str) -> frozenset[str]:
    try:
        return named(Parsed(parse(text).body[0], text, 1)).binds
    except CANNOT:
        return frozenset()
