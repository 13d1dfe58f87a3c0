"""Running notebooks without a screen: the table, and every way in which a notebook does not end."""

import os
import time

import nbformat
import psutil
import pytest

from lockstep.course import run as running
from lockstep.course.build import lab_notebook
from lockstep.course.run import VERDICT, check_functions, run, show_checks, show_runs
from lockstep.course.tree import Tree


@pytest.fixture
def notebook(tmp_path):
    """Writes a notebook whose cells import nothing: a kernel with torch takes seconds to start."""

    def write(*cells):
        path = tmp_path / "labs" / "00_counting.ipynb"
        path.parent.mkdir()
        made = [nbformat.v4.new_code_cell(code, metadata={"tags": tags.split()}) for tags, code in cells]
        spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(nbformat.v4.new_notebook(cells=made, metadata={"kernelspec": spec}), path)
        return path

    return write


SAYS = """
class Said:
    def __repr__(self):
        return "{} 00.1 Counting: {}"
Said()
"""


def test_an_unsolved_lab_runs_to_its_end_and_its_checks_are_counted(clone, capsys):
    my = clone.tree.root / "my"
    my.mkdir()
    before = dict(os.environ)
    lab = clone.tree.labs / "00_counting.ipynb"
    nbformat.write(lab_notebook(clone.changed('print("one", "two", sep="-")', "print(FAST)"), clone.tree), lab)
    outcome = run(lab, clone.tree, fast=True)
    assert outcome.error == ""
    assert [(check.id, check.status) for check in outcome.checks] == [("00.1", "not attempted")]
    executed = nbformat.read(outcome.executed, as_version=4)
    assert any(cell.get("outputs") and cell.outputs[0].get("text") == "True\n" for cell in executed.cells)
    assert dict(os.environ) == before
    assert list(my.iterdir()) == [], "a headless run must not change what a student achieved"
    show_runs([outcome], clone.tree)
    assert "00_counting" in (table := capsys.readouterr().out) and "0 of 1" in table


def test_an_error_in_a_cell_is_one_sentence(notebook, tmp_path, capsys):
    path = notebook(("check 00.1", SAYS.format("○", "not attempted")), ("", "x = 1\nraise ValueError('too small')"))
    outcome = run(path, Tree(tmp_path))
    assert outcome.error.endswith("ended with ValueError: too small") and outcome.error.startswith("cell [")
    assert [check.status for check in outcome.checks] == ["not attempted"]
    show_runs([outcome], Tree(tmp_path))
    assert "runs/labs/00_counting.ipynb to see it" in capsys.readouterr().out


def test_a_kernel_that_dies_is_reported_and_leaves_nothing_behind(notebook, tmp_path):
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    start = time.monotonic()
    outcome = run(notebook(("", "import os\nos._exit(3)")), Tree(tmp_path))
    assert "the kernel died" in outcome.error
    assert time.monotonic() - start < 60
    deadline = time.monotonic() + 5
    while (left := {c.pid for c in psutil.Process().children(recursive=True)} - before) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left


def test_a_cell_without_end_is_stopped(notebook, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "PER_CELL", 2)
    outcome = run(notebook(("", "while True:\n    pass")), Tree(tmp_path))
    assert outcome.error == "a cell did not end within 2 s and was stopped"


def test_functions_are_checked_past_errors_and_without_experiments(notebook, tmp_path, capsys):
    path = notebook(
        ("parameters", "FAST = False"),
        ("", "1 / 0"),
        ("experiment", "import time; time.sleep(600)"),
        ("check 00.1", SAYS.format("✗", "wrong, 0 of 1 point")),
        ("check 00.2", "assert FAST\n" + SAYS.format("✓", "passed, 1 of 1 point")),
    )
    outcome = check_functions(path, Tree(tmp_path))
    assert outcome.error == ""
    said = [(check.id, check.status, check.points) for check in outcome.checks]
    assert said == [("00.1", "wrong", 0), ("00.2", "passed", 1)]
    show_checks(outcome)
    assert "1 of 2 exercises passed" in capsys.readouterr().out
    assert sorted(p.name for p in path.parent.iterdir()) == ["00_counting.ipynb"]


@pytest.mark.parametrize(
    ("text", "status", "points"),
    [
        ("✓ 00.1 Hello from every rank: passed, 2 of 2 points\n  Asked  ...", "passed", "2"),
        ("✗ 04.12 Rings: two of them: timed out, 0 of 1 point", "timed out", "0"),
        ("○ 00.2 Amdahl's law: not attempted", "not attempted", None),
    ],
)
def test_a_verdict_is_read_from_its_first_line(text, status, points):
    found = VERDICT.search(text)
    assert (found["status"], found["points"]) == (status, points)


def test_real_verdicts_are_read():
    from lockstep.exercises.verdict import Verdict

    text = repr(Verdict("00.1", "Hello", "passed", points=2, of=2))
    assert VERDICT.search(text)["status"] == "passed" and VERDICT.search(text)["of"] == "2"
