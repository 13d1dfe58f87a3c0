"""Make the two notebooks of a lab from its source: the lab without solutions, and the executed solution.

Floor 4, room `course`; read `source.py` first. Both notebooks carry the hash of their source. A product is stale
when that hash, or a cell made again from the source, differs; outputs are compared by nbval, never here.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from lockstep.course.hosted import set_up_cell
from lockstep.course.source import Cell, Source, read
from lockstep.course.tree import Tree

LARGEST = 1_500_000  # bytes of an executed notebook
PER_CELL = 300  # seconds
QUIET = ["--IPKernelApp.log_level=40"]  # a kernel's warnings are for who runs a server; errors still show
REPLAYED = "stable"  # the tag of cells whose stored outputs nbval compares


class BuildError(RuntimeError):
    """A notebook that cannot be made; the message names the lab, the cell and the error in it."""


def lab_notebook(source: Source, tree: Tree) -> NotebookNode:
    """What a student opens: no solutions, no outputs, a set-up cell for hosted notebooks."""
    cells = [_notebook_cell(cell, cell.for_student) for cell in source.cells]
    text = set_up_cell(tree.project.get("urls", {}).get("Repository"), tree.project["version"])
    metadata = {"tags": ["setup"], "jupyter": {"source_hidden": True}, "cellView": "form"}
    cells.insert(1, new_code_cell(text, id="setup", metadata=metadata))
    return _notebook(source, cells)


def solution_notebook(source: Source) -> NotebookNode:
    """The solution before it is executed; nbval's tags say which cells it replays and compares."""
    cells = []
    for cell in source.cells:
        made = _notebook_cell(cell, cell.for_instructor)
        if cell.kind == "code":
            replay = ["nbval-check-output"] if REPLAYED in cell.tags else ["nbval-skip"]
            made.metadata.tags = [*cell.tags, *replay]
        cells.append(made)
    return _notebook(source, cells)


def _notebook(source: Source, cells: list[NotebookNode]) -> NotebookNode:
    metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python", "file_extension": ".py", "mimetype": "text/x-python"},
        "lockstep": {"source": f"solutions/{source.path.name}", "sha256": source.digest},
    }
    return new_notebook(cells=cells, metadata=metadata)


def _notebook_cell(cell: Cell, text: str) -> NotebookNode:
    if cell.kind == "markdown":
        return new_markdown_cell(cell.text, id=cell.id, metadata={"tags": list(cell.tags)} if cell.tags else {})
    metadata: dict = {"tags": list(cell.tags)} if cell.tags else {}
    if cell.exercise and "exercise" in cell.tags:
        metadata["nbgrader"] = _nbgrader(cell, solution=True)
    elif cell.exercise and "check" in cell.tags:
        metadata["nbgrader"] = _nbgrader(cell, grade=True, locked=True) | {"points": _points(cell.exercise)}
    return new_code_cell(text, id=cell.id, metadata=metadata)


def _nbgrader(cell: Cell, *, solution: bool = False, grade: bool = False, locked: bool = False) -> dict:
    return {
        "schema_version": 3,
        "grade_id": cell.id,
        "solution": solution,
        "grade": grade,
        "locked": locked,
        "task": False,
    }


def _points(exercise: str) -> int:
    from lockstep.exercises.registry import Unknown, find

    try:
        return find(exercise).points
    except Unknown:
        return 1


def build(path: Path, tree: Tree) -> tuple[Path, Path]:
    """Write both notebooks of one source, executing the solution; returns their paths. Raises BuildError."""
    source = read(path)
    lab, solution = products(source, tree)
    made = lab_notebook(source, tree)
    executed = execute(solution_notebook(source), source.name, tree.solutions)
    text = as_text(executed)
    if len(text.encode()) > LARGEST:
        raise BuildError(
            f"the executed {solution.name} has {len(text.encode()):,} bytes; at most {LARGEST:,} are allowed"
        )
    for target, content in ((lab, as_text(made)), (solution, text)):
        target.parent.mkdir(exist_ok=True)
        target.write_text(content, encoding="utf-8", newline="\n")
    return lab, solution


def products(source: Source, tree: Tree) -> tuple[Path, Path]:
    """Where the lab and the solution of a source lie."""
    return tree.labs / f"{source.name}.ipynb", tree.solutions / f"{source.name}.ipynb"


def as_text(notebook: NotebookNode) -> str:
    """The notebook as it is written to disk: the same bytes for the same content."""
    return nbformat.writes(notebook) + "\n"


def execute(notebook: NotebookNode, name: str, folder: Path) -> NotebookNode:
    """Run every cell in a fresh kernel in `folder`, with an empty `my/`; returns the notebook with clean outputs."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    metadata = copy.deepcopy(notebook.metadata)  # a kernel adds its own versions
    with TemporaryDirectory() as empty, environment({"LOCKSTEP_MY": empty, "PYTHONHASHSEED": "0"}):
        client = NotebookClient(
            notebook,
            timeout=PER_CELL,
            kernel_name="python3",
            record_timing=False,
            store_widget_state=False,
            extra_arguments=QUIET,
            resources={"metadata": {"path": str(folder)}},
        )
        try:
            client.execute()
        except CellExecutionError as error:
            raise BuildError(f"{name}: a cell fails.\n{error}") from None
        except (CellTimeoutError, DeadKernelError) as error:
            raise BuildError(f"{name}: {error}") from None
    notebook.metadata = metadata
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = list(_clean(cell.outputs))
    return notebook


@contextmanager
def environment(changes: Mapping[str, str]) -> Iterator[None]:
    """These variables for the time of the block: a kernel inherits them."""
    before = dict(os.environ)
    os.environ.update(changes)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _clean(outputs: list[NotebookNode]) -> Iterator[NotebookNode]:
    """Outputs worth keeping: pieces of one stream joined, widgets left out (they are dead without their kernel)."""
    stream: NotebookNode | None = None
    for output in outputs:
        if output.output_type == "stream":
            if stream is not None and stream.name == output.name:
                stream.text += output.text
                continue
            stream = output
        else:
            stream = None
            if "application/vnd.jupyter.widget-view+json" in output.get("data", {}):
                continue
        yield output


def stale(source: Source, tree: Tree) -> list[str]:
    """For each product that no longer comes from its source, or was edited by hand, a sentence."""
    lab, solution = products(source, tree)
    again = f"run `lockstep build {source.number}`"
    said = []
    for target, made in ((lab, lab_notebook(source, tree)), (solution, solution_notebook(source))):
        short = f"{target.parent.name}/{target.name}"
        if not target.exists():
            said.append(f"{short} is missing: {again}")
            continue
        there = nbformat.read(target, as_version=4)
        if there.metadata.get("lockstep", {}).get("sha256") != source.digest:
            said.append(f"{short} is older than its source: {again}")
        elif _without_outputs(there) != _without_outputs(made):
            said.append(f"{short} was edited by hand; change {source.path.name} instead, and {again}")
        elif target == lab and any(cell.get("outputs") for cell in there.cells):
            said.append(f"{short} holds outputs: {again}")
        elif target == solution and target.stat().st_size > LARGEST:
            said.append(f"{short} has {target.stat().st_size:,} bytes; at most {LARGEST:,} are allowed")
    return said


def _without_outputs(notebook: NotebookNode) -> str:
    """All that is made from the source, as one text."""
    plain = json.loads(nbformat.writes(notebook))
    for cell in plain["cells"]:
        cell.pop("outputs", None)
        cell.pop("execution_count", None)
    return json.dumps({"cells": plain["cells"], "metadata": plain["metadata"]}, sort_keys=True)
