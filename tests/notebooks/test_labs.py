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
from nbformat.v4 import new_code_cell, new_notebook, new_output
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

from lockstep.course.run import checks_in
from lockstep.course.tree import here

TREE = here()
LABS = [path.stem for path in TREE.sources()]
LONG = ("experiment", "widget")
REPLAYED = {"tags": ["stable", "nbval-check-output"]}
OF_THE_READER = ("mine", "whose", "check", "progress")  # these read what the reader has achieved
CHANGES = ("append", "extend", "update", "add", "setdefault", "clear", "pop", "remove")


@cache
def built(name: str, folder: str) -> NotebookNode:
    path = TREE.root / folder / f"{name}.ipynb"
    assert path.exists(), f"{folder}/{name}.ipynb is not built: lockstep build {name[:2]}"
    return load_notebook_node(str(path))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", LABS)
def test_unsolved_it_runs_to_its_end_and_solved_every_cell_may_be_run_again(name, run_cells):
    cells = list(session(name))
    run_cells(cells, timeout=240)
    passes = [[cell for cell in cells if cell.id.endswith("-solved") == solved] for solved in (False, True)]
    said = [{check.status for check in checks_in(each)} for each in passes]
    assert said == [{"not attempted"}, {"passed"}], "unsolved, it claims nothing; solved, all is right"


def session(name: str) -> Iterator[NotebookNode]:
    """As its reader does: top to bottom with nothing filled in, then once more in the same kernel with the exercises
    solved, pressing Shift-Enter twice."""
    unsolved, solved = (built(name, folder) for folder in ("labs", "solutions"))
    unsolved = parameterize_notebook(unsolved, {"FAST": True}, kernel_name="python3")
    return twice(unsolved.cells, [cell for cell in solved.cells if cell.cell_type == "code"])


def twice(unsolved: list[NotebookNode], solved: list[NotebookNode]) -> Iterator[NotebookNode]:
    """Each cell in both passes, and again right after, in the pass in which it is last run.

    A cell in which nothing of the reader's appears says the same in both passes, so the first is its last; it is in
    both where names are at stake that stand for different things. Experiments, whose seconds add up, and widgets run
    once in a pass. A check tries its function in a new process each time.
    """
    shared = names_for_different_things(solved)
    readers = dict(zip((cell.id for cell in solved), of_the_reader(solved), strict=True))
    for cell in unsolved:
        yield cell
        if not readers.get(cell.id, True) and not {"parameters", *LONG} & tags_of(cell):
            yield again(cell)
    for cell in solved:
        if "parameters" in tags_of(cell):
            continue
        if readers[cell.id] or names_in(parsed(cell)) & shared:
            yield NotebookNode(cell, id=f"{cell.id[:55]}-solved")
        if readers[cell.id] and not {"check", *LONG} & tags_of(cell):
            yield again(cell)


def again(cell: NotebookNode) -> NotebookNode:
    """The semicolon: what the last line shows is the same, and was drawn a moment ago."""
    return NotebookNode(cell, id=f"{cell.id[:55]}-again", source=f"{cell.source};")


def tags_of(cell: NotebookNode) -> set[str]:
    return set(cell.metadata.get("tags", []))


def of_the_reader(cells: list[NotebookNode]) -> list[bool]:
    """For each cell, whether it depends on what the reader writes: by a function of theirs, a value from it, or a card."""
    names, found = set(OF_THE_READER), []
    functions = [
        part for cell in cells for part in parsed(cell).body if isinstance(part, (ast.FunctionDef, ast.ClassDef))
    ]
    for cell in cells:
        tree, own = parsed(cell), "exercise" in tags_of(cell) or cell.source.startswith("%%")
        for part in tree.body:
            if own or names & names_in(part):
                names |= changed_by(part)
        while more := {part.name for part in functions if names & names_in(part)} - names:
            names |= more  # a function looks its names up when it is called
        found.append(own or bool(names & (names_in(tree) | changed_by(tree))))
    return found


def changed_by(tree: ast.AST) -> set[str]:
    """Names that it sets, or whose values it may change: `found[k] = v`, `found.append(v)`."""
    changed = names_in(tree, ast.Store)
    for part in ast.walk(tree):
        if isinstance(part, (ast.FunctionDef, ast.ClassDef)):
            changed.add(part.name)
        elif isinstance(part, (ast.Subscript, ast.Attribute)) and isinstance(part.ctx, ast.Store):
            changed |= names_in(part.value)
        elif isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in CHANGES:
            changed |= names_in(part.func.value)
    return changed


def names_for_different_things(cells: list[NotebookNode]) -> set[str]:
    """Names that several cells set and another one reads, such as `run`: what they hold depends on which cell ran."""
    trees = [parsed(cell) for cell in cells]
    sets = [set(set_by_the_cell(tree)) for tree in trees]
    taken = {name for tree, own in zip(trees, sets, strict=True) for name in names_in(tree) - own}
    return {name for name in taken if sum(name in own for own in sets) > 1}


def set_by_the_cell(tree: ast.AST) -> Iterator[str]:
    """Without names of its functions' own."""
    for part in ast.iter_child_nodes(tree):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            yield part.id
        if not isinstance(part, (ast.FunctionDef, ast.ClassDef, ast.Lambda, ast.comprehension)):
            yield from set_by_the_cell(part)


def names_in(tree: ast.AST, context: type[ast.expr_context] = ast.expr_context) -> set[str]:
    return {part.id for part in ast.walk(tree) if isinstance(part, ast.Name) and isinstance(part.ctx, context)}


def parsed(cell: NotebookNode) -> ast.Module:
    return ast.parse(TransformerManager().transform_cell(cell.source))


def test_a_cell_with_nothing_of_the_readers_runs_in_one_pass_and_twice():
    sources = {
        "exercise": "def ring(comm):\n    ...",
        "": "def program(comm):\n    ring(comm)\nmy_tree = mine('04.5')\nplain = 3",
        "values": "table, shown = {}, plain + 1\ntable['ring'] = launch(program)",
        "shown": "print(shown)",
        "figure": "viz.bars(table)",
        "experiment": "run = launch(program, 2)",
        "widget": "my_tree(plain)",
        "experiment free": "%time alone = launch(other, plain)",
        "experiment one": "run = launch(other, 3)\ndef free(comm):\n    shown = 3\nprint([alone for alone in 'ab'])",
        "after": "print(run, alone)",
        "check": "check('04.4', ring)",
    }
    cells = [
        new_code_cell(text, id=f"{at}", metadata={"tags": tags.split()})
        for at, (tags, text) in enumerate(sources.items())
    ]
    run = [cell.id for cell in twice(cells, cells)]
    assert run[: run.index("0-solved")] == "0 1 2 3 3-again 4 5 6 7 8 9 10".split()
    assert (
        run[run.index("0-solved") :]
        == (
            "0-solved 0-again 1-solved 1-again 2-solved 2-again 4-solved 4-again 5-solved 6-solved 8-solved "
            "9-solved 9-again 10-solved"
        ).split()
    )


@pytest.mark.timeout(200)
def test_stable_outputs_are_those_that_were_stored_and_one_that_changed_fails(tmp_path):
    # A stable cell needs only stable cells before it, so those of all labs are replayed in one kernel. The last cells
    # show that this is so: one that is skipped, one that is right, one that has changed.
    cells = []
    for name in LABS:
        replayed = [one for one in built(name, "solutions").cells if "nbval-check-output" in tags_of(one)]
        start = emptied(tmp_path, tmp_path)
        start.execution_count, start.metadata.tags = 1, ["nbval-ignore-output"]
        cells += [start, *(NotebookNode(one, id=f"{name[:2]}-{one.id[:50]}") for one in replayed)]
    assert len(cells) > len(LABS), "no lab has a stable cell"
    cells.append(new_code_cell("raise RuntimeError", metadata={"tags": ["nbval-skip"]}))
    for stored in ("42\n", "43\n"):
        outputs = [new_output("stream", name="stdout", text=stored)]
        cells.append(new_code_cell("print(6 * 7)", metadata=REPLAYED, outputs=outputs, execution_count=1))
    nbformat.write(new_notebook(cells=cells), tmp_path / "stable.ipynb")
    # nbval waits 2000 s for a kernel that died unless it is told otherwise.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--nbval-lax"]
    command += ["--nbval-cell-timeout", "60", "--nbval-current-env", "stable.ipynb"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=170)
    said = done.stdout[-3000:] + done.stderr[-1000:]
    assert done.returncode == 1 and f"1 failed, {len(cells) - 2} passed, 1 skipped" in done.stdout, said
    assert f"FAILED stable.ipynb::Cell {len(cells) - 1}" in done.stdout, said
