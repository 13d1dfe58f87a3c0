"""Every lab as its readers run it: unsolved, then solved with cells run again, and replayed against stored outputs."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache

import nbformat
import pytest
from emptied import emptied
from IPython.core.inputtransformer2 import TransformerManager
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

from lockstep.course.run import checks_in
from lockstep.course.tree import here

TREE = here()
LABS = [path.stem for path in TREE.sources()]


@cache
def built(name: str, folder: str) -> NotebookNode:
    path = TREE.root / folder / f"{name}.ipynb"
    assert path.exists(), f"{folder}/{name}.ipynb is not built: lockstep build {name[:2]}"
    return load_notebook_node(str(path))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", LABS)
def test_unsolved_it_runs_to_its_end_and_solved_every_cell_may_be_run_again(name, run_cells):
    # As its reader does: top to bottom with nothing filled in, then once more in the same kernel with the exercises
    # solved, pressing Shift-Enter twice. Experiments, whose seconds add up, run once in each pass, and those in which
    # nothing of the reader's appears have then run already. A check tries its function in a new process each time.
    unsolved, solved = (built(name, folder) for folder in ("labs", "solutions"))
    unsolved = parameterize_notebook(unsolved, {"FAST": True}, kernel_name="python3")
    again = list(twice([cell for cell in solved.cells if cell.cell_type == "code"]))
    run_cells([*unsolved.cells, *again], timeout=240)
    assert {check.status for check in checks_in(unsolved.cells)} == {"not attempted"}, "unsolved, it claims nothing"
    assert {check.status for check in checks_in(again)} == {"passed"}


def twice(cells: list[NotebookNode]) -> Iterator[NotebookNode]:
    own, shared = of_the_reader(cells), names_for_different_things(cells)
    for cell in cells:
        tags = set(cell.metadata.get("tags", []))
        long = bool(tags & {"experiment", "widget"})
        if "parameters" not in tags and (not long or names_in(parsed(cell)) & (own | shared)):
            yield NotebookNode(cell, id=f"{cell.id[:55]}-solved")
        if "parameters" not in tags and not long and "check" not in tags:
            # The semicolon: what the last line shows is the same, and was drawn a moment ago.
            yield NotebookNode(cell, id=f"{cell.id[:55]}-again", source=f"{cell.source};")


def of_the_reader(cells: list[NotebookNode]) -> set[str]:
    """Names of what the reader writes, of what `mine` gives, and of functions and classes that use any of these."""
    own, made = {"mine"}, []
    for cell in cells:
        for part in parsed(cell).body:
            if isinstance(part, (ast.FunctionDef, ast.ClassDef)):
                made.append(part)
                own |= {part.name} if "exercise" in cell.metadata.get("tags", []) else set()
            elif isinstance(part, ast.Assign) and "mine" in names_in(part.value):
                own |= {name for target in part.targets for name in names_in(target)}
    while more := {part.name for part in made if own & names_in(part)} - own:
        own |= more
    return own


def names_for_different_things(cells: list[NotebookNode]) -> set[str]:
    """Names that several cells set and another one reads, such as `run`: what they hold depends on which cell ran."""
    trees = [parsed(cell) for cell in cells]
    sets = [names_in(tree, ast.Store) for tree in trees]
    taken = {name for tree, own in zip(trees, sets, strict=True) for name in names_in(tree) - own}
    return {name for name in taken if sum(name in own for own in sets) > 1}


def names_in(tree: ast.AST, context: type[ast.expr_context] = ast.expr_context) -> set[str]:
    return {part.id for part in ast.walk(tree) if isinstance(part, ast.Name) and isinstance(part.ctx, context)}


def parsed(cell: NotebookNode) -> ast.Module:
    return ast.parse(TransformerManager().transform_cell(cell.source))


def test_an_experiment_with_nothing_of_the_readers_runs_once():
    sources = {
        "exercise": "def ring(comm):\n    ...",
        "": "def program(comm):\n    ring(comm)\nmy_tree = mine('04.5')\nplain = 3",
        "experiment": "run = launch(program, 2)",
        "widget": "my_tree(plain)",
        "experiment free": "%time alone = launch(other, plain)",
        "experiment one": "run = launch(other, 3)",
        "after": "print(run, alone)",
    }
    cells = [new_code_cell(text, metadata={"tags": tags.split()}) for tags, text in sources.items()]
    assert of_the_reader(cells) >= {"mine", "ring", "program", "my_tree"}
    run = [cell.source.removesuffix(";") for cell in twice(cells)]
    assert [run.count(cell.source) for cell in cells] == [2, 2, 1, 1, 0, 1, 2]


@pytest.mark.timeout(200)
def test_stable_outputs_are_those_that_were_stored(tmp_path):
    # A stable cell needs only stable cells before it, so those of all labs are replayed in one kernel.
    cells = []
    for name in LABS:
        replayed = [
            one for one in built(name, "solutions").cells if "nbval-check-output" in one.metadata.get("tags", [])
        ]
        start = emptied(tmp_path, tmp_path)
        start.execution_count, start.metadata.tags = 1, ["nbval-ignore-output"]
        cells += [start, *(NotebookNode(one, id=f"{name[:2]}-{one.id[:50]}") for one in replayed)]
    assert len(cells) > len(LABS), "no lab has a stable cell"
    nbformat.write(new_notebook(cells=cells), tmp_path / "stable.ipynb")
    # nbval waits 2000 s for a kernel that died unless it is told otherwise.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--nbval-lax"]
    command += ["--nbval-cell-timeout", "60", "--nbval-current-env", str(tmp_path / "stable.ipynb")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
