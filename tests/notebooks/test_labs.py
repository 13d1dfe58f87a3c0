"""Every lab as its readers run it: unsolved, solved with each cell run twice, and replayed against stored outputs."""

import subprocess
import sys
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


def test_unsolved_it_runs_to_its_end_and_claims_nothing(name, tmp_path):
    nbformat.write(built(name, "labs"), tmp_path / f"{name}.ipynb")
    outcome = run(tmp_path / f"{name}.ipynb", Tree(tmp_path), fast=True)
    assert outcome.error == ""
    assert {check.status for check in outcome.checks} == {"not attempted"}


def test_solved_it_passes_every_check_and_every_cell_may_be_run_twice(name, tmp_path):
    # Students do: they change a number and press Shift-Enter again.
    twice = built(name, "solutions").copy()
    cells = []
    for cell in twice.cells:
        cells.append(cell)
        if cell.cell_type == "code" and "parameters" not in cell.metadata.get("tags", []):
            cells.append(NotebookNode(cell, id=f"{cell.id[:55]}-again"))
    twice.cells = cells
    nbformat.write(twice, tmp_path / f"{name}.ipynb")
    outcome = run(tmp_path / f"{name}.ipynb", Tree(tmp_path), fast=True)
    assert outcome.error == ""
    assert {check.status for check in outcome.checks} == {"passed"}


def test_its_stable_outputs_are_those_that_were_stored(name):
    # nbval waits 2000 s for a kernel that died unless it is told otherwise.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--nbval-lax"]
    command += ["--nbval-cell-timeout", "60", "--nbval-current-env", f"solutions/{name}.ipynb"]
    done = subprocess.run(command, cwd=TREE.root, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
