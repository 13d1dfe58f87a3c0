"""nbgrader: what it reads off a check cell is our points, whatever the student's code does.

Real nbgrader runs where it is installed, with the extra `bench`; it is not among the packages that students get.
"""

import asyncio
import csv
import io
import os
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import nbformat
import pytest

from lockstep.course.leak import leaks
from lockstep.course.release.nbgrader import instructor_notebook, points, write_source
from lockstep.course.release.plan import plan
from lockstep.course.source import read
from lockstep.course.tree import Tree
from lockstep.exercises.registry import find

HOME = Tree(Path(__file__).resolve().parents[2])

COUNTING = '''\
# %% [markdown]
# # Lab 00 · Counting

# %%
from lockstep.exercises import check

# %% tags=["exercise", "00.1"]
def hello(comm):
    """Return this rank's square and the sum of all squares."""
    mine = comm.rank**2
    ### BEGIN SOLUTION
    total = comm.all_reduce(torch.tensor(mine))
    return mine, int(total)
    ### END SOLUTION
    ### BEGIN STUB
    # total = ...
    # raise NotImplementedError("return two numbers")
    ### END STUB

# %% tags=["check", "00.1"]
check("00.1", hello)

# %% tags=["exercise", "00.2"]
def amdahl(serial, workers):
    ### BEGIN SOLUTION
    return 1 / (serial + (1 - serial) / workers)
    ### END SOLUTION

# %% tags=["check", "00.2"]
check("00.2", amdahl)
'''
DIVIDING = """\
# %% [markdown]
# # Lab 05 · Dividing

# %%
from lockstep.exercises import check

# %% tags=["exercise", "05.1"]
def shard(n, rank, size, epoch, seed):
    ### BEGIN SOLUTION
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed + epoch))
    return order[rank::size].tolist()
    ### END SOLUTION

# %% tags=["check", "05.1"]
check("05.1", shard)

# %% tags=["exercise", "05.6"]
def async_step(*given):
    ### BEGIN SOLUTION
    return sum(given) + 0 + 0 + 0
    ### END SOLUTION

# %% tags=["check", "05.6"]
check("05.6", async_step)
"""
SOURCES = {
    "00_counting": COUNTING.replace("import check\n", "import check\nimport torch\n"),
    "05_dividing": DIVIDING.replace("import check\n", "import check\nimport torch\n"),
}
NOISE = "import sys, warnings\n    warnings.warn('careful')\n    print('careful', file=sys.stderr)\n    "


@pytest.fixture
def course(clone, tmp_path, monkeypatch):
    """nbgrader's folder of two small labs, made from a release of a small clone."""
    monkeypatch.setattr("lockstep.course.release.plan.stale", lambda source, tree: [])
    for name, text in SOURCES.items():
        (clone.tree.solutions / f"{name}.py").write_text(text)
    drop = [f"05.{n}" for n in range(2, 9)]
    release = plan(clone.tree, ["00", "05"], tmp_path / "release.toml", drop=drop)
    folder = tmp_path / "course" / "source"
    folder.parent.mkdir()
    files = write_source(release, clone.tree, folder)
    assert [path.relative_to(folder).as_posix() for path in files] == [
        "00_counting/00_counting.ipynb", "05_dividing/05_dividing.ipynb"
    ]  # fmt: skip
    with pytest.raises(ValueError, match="00_counting.ipynb exists already; nbgrader may have assigned it"):
        write_source(release, clone.tree, folder)
    return folder.parent


def by_id(path):
    return {cell.id: cell for cell in nbformat.read(path, as_version=4).cells}


def test_the_instructors_notebook(course):
    cells = by_id(course / "source/00_counting/00_counting.ipynb")
    exercise, check = cells["exercise-00-1"], cells["check-00-1"]
    assert exercise.source == (
        'def hello(comm):\n    """Return this rank\'s square and the sum of all squares."""\n    mine = comm.rank**2\n'
        '    # total = ...\n    # raise NotImplementedError("return two numbers")\n    ### BEGIN SOLUTION\n'
        "    total = comm.all_reduce(torch.tensor(mine))\n    return mine, int(total)\n    ### END SOLUTION"
    )
    assert check.source.endswith(f'_points("00.1", hello, of={find("00.1").points})')
    assert check.metadata.nbgrader.points == find("00.1").points and check.metadata.nbgrader.grade
    dropped = by_id(course / "source/05_dividing/05_dividing.ipynb")
    assert "check-05-6" not in dropped and 'mine("05.6")' in dropped["library-05-6"].source


def test_a_real_lab(clone, tmp_path, monkeypatch):
    monkeypatch.setattr("lockstep.course.release.plan.stale", lambda source, tree: [])
    release = plan(HOME, ["04"], tmp_path / "release.toml")
    notebook = instructor_notebook(read(HOME.find("04")), release)
    nbformat.validate(notebook)
    graded = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade")]
    assert sum(cell.metadata.nbgrader.points for cell in graded) == sum(one.points for one in release.exercises)
    assert all(cell.source.splitlines()[-1].startswith("_points(") for cell in graded)


def test_a_check_cell_ends_in_a_number_and_is_silent_on_stderr(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)

    def loud(serial, workers):
        warnings.warn("careful", stacklevel=2)
        print("careful", file=sys.stderr)
        return 1 / (serial + (1 - serial) / workers)

    stderr = io.StringIO()
    with redirect_stderr(stderr), redirect_stdout(io.StringIO()):
        assert points("00.2", loud, of=7) == 7
        assert points("00.2", lambda serial, workers: 1.0, of=7) == 0
        assert points("00.2", None, of=7) == 0
    assert stderr.getvalue() == "" and [verdict.status for verdict in shown] == ["passed", "wrong", "cannot run"]


def test_nbgrader_has_one_notebook_for_all(clone, tmp_path, monkeypatch):
    monkeypatch.setattr("lockstep.course.release.plan.stale", lambda source, tree: [])
    release = plan(HOME, ["04"], tmp_path / "release.toml", with_variants=True)
    with pytest.raises(ValueError, match="release for it without --variants and --pack"):
        write_source(release, HOME, tmp_path / "source")


def test_real_nbgrader_gives_our_points(course, monkeypatch):
    """Once a wrong answer that raised nothing earned full points, and a right one that warned none at all."""
    pytest.importorskip("nbgrader", reason="nbgrader is not installed; `pip install --editable '.[bench]'` brings it")
    from nbgrader.apps import NbGraderAPI
    from nbgrader.coursedir import CourseDirectory
    from nbgrader.plugins import CsvExportPlugin
    from traitlets.config import Config

    asyncio.set_event_loop(asyncio.new_event_loop())
    monkeypatch.chdir(course)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)  # it calls the command `alembic`
    config = Config()
    config.CourseDirectory.root = str(course)
    config.Execute.iopub_timeout = 120  # seconds; nbgrader's 4 are too few where the machine is busy
    config.Execute.timeout = 300
    api = NbGraderAPI(CourseDirectory(config=config), config=config)
    tried = {
        "00_counting": ("solved", "blank", "half", "wrong", "loud"),
        "05_dividing": ("solved", "blank", "wrong", "loud"),
    }
    for lab, students in tried.items():
        made = api.generate_assignment(lab)
        assert made["success"], made["log"]
        released = course / "release" / lab / f"{lab}.ipynb"
        text = released.read_text()
        assert "### BEGIN" not in text and leaks(lab[:2], nbformat.read(released, 4), []) == []
        assert "order[rank::size]" not in text and "comm.all_reduce" not in text and "# total = ..." in COUNTING
        for student in students:
            hand_in(released, course / "submitted" / student / lab / f"{lab}.ipynb", lab, student)
            graded = api.autograde(lab, student)
            assert graded["success"], graded["log"]

    with api.gradebook as gradebook:
        plugin = CsvExportPlugin()
        plugin.to = str(course / "grades.csv")
        plugin.export(gradebook)
    with open(course / "grades.csv", newline="") as file:
        scores = {(row["assignment"], row["student_id"]): float(row["score"]) for row in csv.DictReader(file)}
    one, two, five = (find(id).points for id in ("00.1", "00.2", "05.1"))
    assert {key: score for key, score in scores.items() if key[0] == "00_counting"} == {
        ("00_counting", "solved"): one + two, ("00_counting", "blank"): 0, ("00_counting", "half"): one,
        ("00_counting", "wrong"): 0, ("00_counting", "loud"): one + two,
    }  # fmt: skip
    assert [scores["05_dividing", student] for student in tried["05_dividing"]] == [five, 0, 0, five]


ANSWERS = {
    "exercise-00-1": "def hello(comm):\n    {noise}mine = comm.rank**2\n    return mine, int(comm.all_reduce(torch.tensor(mine)))",
    "exercise-00-2": "def amdahl(serial, workers):\n    {noise}return 1 / (serial + (1 - serial) / workers)",
    "exercise-05-1": (
        "def shard(n, rank, size, epoch, seed):\n    {noise}order = torch.randperm(n, generator=torch.Generator()"
        ".manual_seed(seed + epoch))\n    return order[rank::size].tolist()"
    ),
}
WRONG = {
    "exercise-00-1": "def hello(comm):\n    return comm.rank**2, comm.rank**2",
    "exercise-00-2": "def amdahl(serial, workers):\n    return float(workers)",
    "exercise-05-1": "def shard(n, rank, size, epoch, seed):\n    return list(range(n))",
}


def hand_in(released, target, lab, student):
    """What a student makes of the released notebook."""
    notebook = nbformat.read(released, as_version=4)
    for cell in notebook.cells:
        if cell.id not in ANSWERS or student == "blank" or (student == "half" and cell.id == "exercise-00-2"):
            continue
        noise = NOISE if student == "loud" else ""
        cell.source = WRONG[cell.id] if student == "wrong" else ANSWERS[cell.id].format(noise=noise)
    target.parent.mkdir(parents=True)
    nbformat.write(notebook, target)
