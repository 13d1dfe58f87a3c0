"""nbgrader: the notebooks of a release as its instructors keep them, `source/ASSIGNMENT/NAME.ipynb`.

Floor 4, room `course`. nbgrader cuts the solutions out itself (`generate_assignment`), runs students' notebooks and reads
points off the check cells. The rules of nbgrader 0.9 that this file answers to, from `nbgrader/utils.py`: an error or
anything on stderr in a graded cell is 0 points; a number as the cell's result is that many points; anything else is full
points. So a check cell here ends in a bare number and writes to stdout alone.

These points are *unprotected*: a student's notebook runs with nbgrader's own rights and may say what it likes.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from lockstep.course.build import as_text, solution_notebook
from lockstep.course.release.notebooks import without_dropped
from lockstep.course.release.toml import Release
from lockstep.course.source import Cell, Source, read, regions
from lockstep.course.tree import Tree
from lockstep.exercises.check import check

CHECK = """\
from lockstep.course.release.nbgrader import points as _points

_points("{id}", {function}, of={points})"""


def points(id: str, fn: Callable[..., Any], of: int) -> int:
    """Check a solution, show the verdict, and give its points out of `of`: the last value of nbgrader's graded cell.

    Nothing is raised, and nothing goes to stderr, whatever `fn` is.
    """
    from IPython.display import display

    with _on_stdout():
        verdict = check(id, fn)
        display(verdict)
    return of if verdict.passed else 0


@contextmanager
def _on_stdout() -> Iterator[None]:
    with redirect_stderr(sys.stdout), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def write_source(release: Release, tree: Tree, folder: Path) -> list[Path]:
    """Write `folder/NAME/NAME.ipynb` for each lab; returns the files. Raises ValueError when one is there already.

    An assignment is a lab and bears its name. Raises ValueError for a release with variants or a pack: nbgrader gives
    every student the same notebook, and runs nothing that a student may not read.
    """
    if release.has_variants or release.pack is not None:
        raise ValueError("nbgrader gives every student the same notebook: release for it without --variants and --pack")
    written = []
    for lab in release.labs:
        source = read(tree.find(lab.number))
        target = folder / source.name / lab.notebook
        if target.exists():
            raise ValueError(f"{target} exists already; nbgrader may have assigned it. Move it, or name another folder")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(as_text(instructor_notebook(source, release)), encoding="utf-8", newline="\n")
        written.append(target)
    return written


def instructor_notebook(source: Source, release: Release) -> NotebookNode:
    """The lab with solutions between the marks that nbgrader cuts at, and check cells that end in a number of points.

    nbgrader puts its own stub in a solution's place; the lab's skeleton stands above it, as a comment.
    """
    notebook = solution_notebook(source)
    given = {cell.id: cell for cell in source.cells}
    listed = {one.id: one for one in release.listed(source.number)}
    notebook.cells = list(without_dropped(notebook.cells, release.dropped))
    for cell in notebook.cells:
        mark = cell.metadata.get("nbgrader")
        if mark and mark["solution"]:
            cell.source = _with_skeleton(given[cell.id])
        elif mark and mark["grade"]:
            id = given[cell.id].exercise
            cell.source = CHECK.format(id=id, function=_function(cell.source), points=listed[id].points)
            mark["points"] = listed[id].points
    return notebook


def _with_skeleton(cell: Cell) -> str:
    kept: list[str] = []
    for part, lines in regions(cell.text):
        indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())] if lines else ""
        if part == "SOLUTION":
            kept += [f"{indent}### BEGIN SOLUTION", *lines, f"{indent}### END SOLUTION"]
        elif part == "STUB":
            at = max(i for i, line in enumerate(kept) if line.strip() == "### BEGIN SOLUTION")
            kept[at:at] = lines
        else:
            kept += lines
    return "\n".join(kept)


def _function(check_cell: str) -> str:
    """The second argument of the cell's `check(...)`, as it is written."""
    for node in ast.walk(ast.parse(check_cell)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "check" and len(node.args) > 1:
            return ast.unparse(node.args[1])
    raise ValueError(f"this check cell names no function: {check_cell!r}")
