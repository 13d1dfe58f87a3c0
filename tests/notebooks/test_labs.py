"""Every lab as its readers run it: unsolved, then solved with cells run again, and replayed against stored outputs."""

import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache

import nbformat
import pytest
from nbformat import NotebookNode

from lockstep.course.run import run
from lockstep.course.tree import Tree, here

TREE = here()
LABS = [path.stem for path in TREE.sources()]
pytestmark = [pytest.mark.timeout(300), pytest.mark.parametrize("name", LABS)]


@cache
def built(name: str, folder: str) -> NotebookNode:
    path = TREE.root / folder / f"{name}.ipynb"
    assert path.exists(), f"{folder}/{name}.ipynb is not built: lockstep build {name[:2]}"
    return nbformat.read(path, as_version=4)


def test_unsolved_it_runs_to_its_end_and_solved_every_cell_may_be_run_again(name, tmp_path):
    # As its reader does: top to bottom with nothing filled in, then once more in the same kernel with the exercises
    # solved, pressing Shift-Enter twice. Experiments run once in each pass, since their seconds add up.
    unsolved, solved = built(name, "labs"), built(name, "solutions")
    both = unsolved.copy()
    both.cells = [*unsolved.cells, *twice(cell for cell in solved.cells if cell.cell_type == "code")]
    nbformat.write(both, tmp_path / f"{name}.ipynb")
    outcome = run(tmp_path / f"{name}.ipynb", Tree(tmp_path), fast=True)
    assert outcome.error == ""
    first = sum("check" in cell.metadata.get("tags", []) for cell in unsolved.cells)
    assert {check.status for check in outcome.checks[:first]} == {"not attempted"}, "unsolved, it claims nothing"
    assert {check.status for check in outcome.checks[first:]} == {"passed"}


def twice(cells: Iterable[NotebookNode]) -> Iterator[NotebookNode]:
    for cell in cells:
        tags = set(cell.metadata.get("tags", []))
        if "parameters" not in tags:
            yield NotebookNode(cell, id=f"{cell.id[:55]}-solved")
        if not tags & {"parameters", "experiment", "widget"}:
            yield NotebookNode(cell, id=f"{cell.id[:55]}-again")


def test_its_stable_outputs_are_those_that_were_stored(name):
    # nbval waits 2000 s for a kernel that died unless it is told otherwise.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--nbval-lax"]
    command += ["--nbval-cell-timeout", "60", "--nbval-current-env", f"solutions/{name}.ipynb"]
    done = subprocess.run(command, cwd=TREE.root, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
