"""Execute labs without a screen: `lockstep run` for whole notebooks, `lockstep check` for a student's functions.

Floor 4, room `course`. Notebooks run in `labs/` or `solutions/` by papermill, in a kernel of their own, on a copy of
the student's `my/`, so that a headless run changes nothing that a student achieved. What was executed stays in
`runs/`, to be opened and read.
"""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat

from lockstep.course.build import QUIET, environment
from lockstep.course.source import EXERCISE_ID
from lockstep.course.tree import Tree

PER_CELL = 600  # seconds
# The first line of a verdict's text: "✓ 00.1 Hello from every rank: passed, 2 of 2 points".
VERDICT = re.compile(
    r"^\W*(?P<id>\d\d\.\d+)\b.*?: (?P<status>passed|wrong|crashed|timed out|forbidden|not attempted|cannot run)"
    r"(?:, (?P<points>\d+) of (?P<of>\d+) points?)?$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Checked:
    """What one check cell said."""

    id: str
    status: str
    points: int
    of: int


@dataclass(frozen=True)
class Outcome:
    """How one notebook ran. error: the sentence that ended it, empty when it ran to its end."""

    name: str
    seconds: float
    checks: tuple[Checked, ...]
    error: str
    executed: Path

    @property
    def passed(self) -> int:
        return sum(check.status == "passed" for check in self.checks)


def run(notebook: Path, tree: Tree, *, fast: bool = False, keep: bool = True, quiet: bool = True) -> Outcome:
    """Execute one notebook to its end or its first error.

    fast: sets FAST. keep: the run sees a copy of the student's `my/`, so that functions of earlier labs are theirs;
    otherwise an empty one. quiet: no progress bar.
    """
    import papermill
    from nbclient.exceptions import CellTimeoutError, DeadKernelError
    from papermill.exceptions import PapermillException

    target = tree.runs / notebook.parent.name / notebook.name
    target.parent.mkdir(parents=True, exist_ok=True)
    start, error = time.perf_counter(), ""
    with _copy_of_my(tree, keep) as my, environment({"LOCKSTEP_MY": str(my)}):
        try:
            papermill.execute_notebook(
                notebook,
                target,
                parameters={"FAST": True} if fast else {},
                kernel_name="python3",
                cwd=notebook.parent,
                progress_bar=not quiet,
                request_save_on_cell_execute=False,
                start_timeout=120,
                execution_timeout=PER_CELL,
                extra_arguments=QUIET,
            )
        except (PapermillException, CellTimeoutError, DeadKernelError) as failure:
            error = _in_a_sentence(failure)
    seconds = time.perf_counter() - start
    cells = nbformat.read(target, as_version=4).cells if target.exists() else []
    return Outcome(notebook.stem, seconds, tuple(checks_in(cells)), error, target)


@contextmanager
def _copy_of_my(tree: Tree, keep: bool) -> Iterator[Path]:
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        if keep and (tree.root / "my").is_dir():
            shutil.copytree(
                tree.root / "my", folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".lock", "submit")
            )
        yield Path(folder)


def _in_a_sentence(failure: Exception) -> str:
    """The end of a notebook in one line."""
    kind = type(failure).__name__
    if kind == "DeadKernelError":
        return "the kernel died (killed, crashed or out of memory); its processes were ended"
    if kind == "CellTimeoutError":
        return f"a cell did not end within {PER_CELL} s and was stopped"
    name, value = getattr(failure, "ename", kind), str(getattr(failure, "evalue", failure))
    first = next((line for line in value.splitlines() if line.strip()), "")
    return f"cell [{getattr(failure, 'exec_count', '?')}] ended with {name}: {first}"


def checks_in(cells: Sequence[Any]) -> Iterator[Checked]:
    """What each check cell of an executed notebook said, in order."""
    for cell in cells:
        if cell.cell_type == "code" and "check" in cell.metadata.get("tags", []):
            text = "\n".join("".join(output.get("data", {}).get("text/plain", "")) for output in cell.outputs)
            verdict = VERDICT.search(text)
            id = next((tag for tag in cell.metadata.tags if EXERCISE_ID.fullmatch(tag)), "?")
            if verdict is None:
                yield Checked(id, "not run", 0, 0)
            else:
                yield Checked(id, verdict["status"], int(verdict["points"] or 0), int(verdict["of"] or 0))


def check_functions(notebook: Path, tree: Tree) -> Outcome:
    """Check a student's functions: run the notebook without experiments and widgets, past any error."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellTimeoutError, DeadKernelError
    from papermill.iorw import load_notebook_node
    from papermill.parameterize import parameterize_notebook

    there = parameterize_notebook(load_notebook_node(str(notebook)), {"FAST": True}, kernel_name="python3")
    skipped = {"experiment", "widget"}
    there.cells = [cell for cell in there.cells if not skipped & set(cell.metadata.get("tags", []))]
    for cell in there.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    start, error = time.perf_counter(), ""
    with _copy_of_my(tree, keep=True) as my, environment({"LOCKSTEP_MY": str(my)}):
        place = {"metadata": {"path": str(notebook.parent)}}
        options = {"timeout": PER_CELL, "kernel_name": "python3", "extra_arguments": QUIET, "resources": place}
        try:
            NotebookClient(there, allow_errors=True, **options).execute()
        except (CellTimeoutError, DeadKernelError) as failure:
            error = _in_a_sentence(failure)
    return Outcome(notebook.stem, time.perf_counter() - start, tuple(checks_in(there.cells)), error, notebook)


def show_runs(outcomes: Sequence[Outcome], tree: Tree) -> None:
    """A table: lab, seconds, checks passed; and below it, why a notebook did not end."""
    from rich.console import Console
    from rich.table import Table

    table = Table("lab", title="", box=None, pad_edge=False)
    table.add_column("seconds", justify="right")
    table.add_column("checks passed", justify="right")
    table.add_column("")
    for one in outcomes:
        checks = f"{one.passed} of {len(one.checks)}" if one.checks else "none"
        table.add_row(one.name, f"{one.seconds:.1f}", checks, "stopped" if one.error else "")
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    for one in outcomes:
        if one.error:
            console.print(f"{one.name}: {one.error}.", markup=False)
            console.print(f"  Open {one.executed.relative_to(tree.root)} to see it.", markup=False)


def show_checks(outcome: Outcome) -> None:
    """A table of a notebook's exercises: state and points."""
    from rich.console import Console
    from rich.table import Table

    table = Table("exercise", "state", title="", box=None, pad_edge=False)
    table.add_column("points", justify="right")
    for one in outcome.checks:
        table.add_row(one.id, one.status, f"{one.points} of {one.of}" if one.of else "")
    console = Console(highlight=False)
    console.print(table)
    console.print(f"{outcome.passed} of {len(outcome.checks)} exercises passed in {outcome.seconds:.0f} s.")


def has_terminal() -> bool:
    """Whether a progress bar would be seen."""
    return sys.stderr.isatty()
