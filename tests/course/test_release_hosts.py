"""Gradescope and GitHub Classroom: the same points as everywhere, told in their words."""

import base64
import json
import os
import shutil
import stat
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import nbformat
import pytest

from lockstep.course.grade.batch import _graded
from lockstep.course.grade.cache import Cache
from lockstep.course.grade.lent import lent
from lockstep.course.grade.outcome import Outcome
from lockstep.course.grade.released import rules_of
from lockstep.course.grade.result import Result
from lockstep.course.grade.submission import Program, Statement, Submission
from lockstep.course.release import classroom, gradescope
from lockstep.course.release.release import Outputs, from_release, new_release
from lockstep.course.tree import Tree
from lockstep.exercises.registry import find

HOME = Tree(Path(__file__).resolve().parents[2])
RIGHT = {
    "exercise-00-1": (
        "import torch\n\ndef hello(comm):\n    mine = comm.rank**2\n"
        "    return mine, int(comm.all_reduce(torch.tensor(mine)))"
    )
}


@pytest.fixture
def lab_00(monkeypatch):
    monkeypatch.setattr("lockstep.course.release.plan.stale", lambda source, tree: [])


def handed_in(target: Path) -> Path:
    """Lab 00 with one of its two exercises solved."""
    notebook = nbformat.read(HOME.labs / "00_start_here.ipynb", as_version=4)
    for cell in notebook.cells:
        cell.source = RIGHT.get(cell.id, cell.source)
    target.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, target)
    return target


@pytest.mark.timeout(300)  # two processes import torch, on whatever else runs beside
def test_gradescope_runs_the_zip(lab_00, tmp_path):
    """As its container does: the zip unpacked, a submission beside it, `run_autograder`; no namespaces to be had."""
    zip_file, to = tmp_path / "autograder.zip", tmp_path / "release.toml"
    release, made = new_release(HOME, ["00"], to, Outputs(gradescope=zip_file))
    assert made == [zip_file] and stat.S_IMODE(zip_file.stat().st_mode) == 0o600
    with pytest.raises(ValueError, match="autograder.zip exists already"):
        from_release(HOME, to, Outputs(gradescope=zip_file))

    root = tmp_path / "autograder"
    with zipfile.ZipFile(zip_file) as archive:
        modes = {one.filename: one.external_attr >> 16 & 0o777 for one in archive.infolist()}
        archive.extractall(root / "source")
    assert modes["setup.sh"] == modes["run_autograder"] == 0o755 and modes["private/release.toml"] == 0o600
    assert f"{release.seed:064x}" in (root / "source/private/release.toml").read_text()
    assert not [name for name in modes if "__pycache__" in name or name.startswith("course/my/")]
    for script in ("setup.sh", "run_autograder"):
        subprocess.run(["bash", "-n", str(root / "source" / script)], check=True)

    shutil.copy(root / "source/run_autograder", root / "run_autograder")
    handed_in(root / "submission" / "my own name.ipynb")
    (root / "results").mkdir()
    users = {"users": [{"email": "ana@example.org", "id": 7, "name": "Ana"}], "created_at": "2026-09-01T12:00:00Z"}
    (root / "submission_metadata.json").write_text(json.dumps(users))
    refused = tmp_path / "bin" / "bwrap"
    refused.parent.mkdir()
    refused.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    refused.chmod(0o755)
    environment = os.environ | {
        "LOCKSTEP_PYTHON": sys.executable,
        "PYTHONPATH": str(root / "source/course/lib"),  # what setup.sh installs there
        "PATH": f"{refused.parent}:{os.environ['PATH']}",
    }
    ran = subprocess.run(
        ["bash", str(root / "run_autograder")], env=environment, cwd="/", capture_output=True, text=True, timeout=290
    )
    assert ran.returncode == 0, ran.stderr
    results = json.loads((root / "results/results.json").read_text())
    one, two = find("00.1").points, find("00.2").points
    assert results["score"] == one and results["stdout_visibility"] == "hidden"
    assert [(test["score"], test["max_score"], test["status"]) for test in results["tests"]] == [
        (one, one, "passed"), (0, two, "failed")
    ]  # fmt: skip
    assert results["tests"][1]["output"].startswith("not attempted")


def test_who_gradescope_says_it_is(tmp_path):
    file = tmp_path / "submission_metadata.json"
    assert gradescope._student(file) == "unknown"
    for text, who in (
        ("[]", "unknown"), ("{", "unknown"), ('{"users": []}', "unknown"),
        ('{"users": [{"name": "Bo", "email": null}, {"email": "a@b.c"}]}', "Bo, a@b.c"),
    ):  # fmt: skip
        file.write_text(text)
        assert gradescope._student(file) == who


def test_a_pack_goes_along_unread_by_others(lab_00, tmp_path):
    pack = tmp_path / "private"
    pack.mkdir()
    (pack / "own.py").write_text(
        'from lockstep.exercises.exercise import Case\nCASES = {"00.2": lambda rng: [Case("own", (0.5, 3))]}\n'
    )
    zip_file = tmp_path / "autograder.zip"
    new_release(HOME, ["00"], tmp_path / "release.toml", Outputs(gradescope=zip_file), pack=pack)
    with zipfile.ZipFile(zip_file) as archive:
        archive.extractall(tmp_path / "source")
        assert archive.getinfo("private/pack/own.py").external_attr >> 16 & 0o777 == 0o600
    from lockstep.course.release.toml import read_release

    (_, law) = read_release(tmp_path / "source/private/release.toml").values("00")
    assert law.draw(0)[-1].name == "own"


def test_classroom_tells_points(tmp_path, monkeypatch, capsys):
    notebook = handed_in(tmp_path / "00_mine.ipynb")
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    assert classroom.main([str(notebook), "--junit", str(tmp_path / "junit.xml")]) == 0
    one, two = find("00.1").points, find("00.2").points
    said = capsys.readouterr().out
    assert f"00.1  {one}/{one}  passed" in said and said.endswith(f"Points {one}/{one + two}\n")
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "0", "1")
    line = (tmp_path / "output").read_text()
    told = json.loads(base64.b64decode(line.removeprefix("result=")))
    assert (told["status"], told["max_score"]) == ("fail", one + two)
    assert [(test["status"], test["score"]) for test in told["tests"]] == [("pass", one), ("fail", 0)]


def test_classroom_without_a_result(tmp_path, capsys):
    assert classroom.main([str(tmp_path / "00_none.ipynb")]) == 2
    assert "there is no notebook" in capsys.readouterr().err
    assert classroom.main([str(tmp_path / "mine.ipynb")]) == 2
    assert "does not begin with the number of a lab" in capsys.readouterr().err
    assert [one.id for one in classroom.chosen(Path("00_mine.ipynb"), ["00.1"])] == ["00.2"]


def test_a_full_score_is_a_pass():
    outcome = Outcome("00.2", "passed", 1, 1)
    told = classroom.result(Result(Submission("a", "00", Path("a")), (outcome,), "a"))
    assert told["status"] == "pass" and told["tests"][0]["score"] == 1


def test_what_mine_lends_is_in_the_students_variant(lab_00, tmp_path):
    """A student whose ring turns left once lost 04.4: the library's all-gather that `mine` lent turned right."""
    release, _ = new_release(HOME, ["04"], tmp_path / "release.toml", Outputs(tmp_path / "out"), with_variants=True)
    left = next(one for one in map(str, range(50)) if release.variant("04.3", one) == "to the left")
    seen = []

    def judge(lab, program, seed, *, exercises, isolation):
        seen.extend(one.text for one in program.statements)
        return [Outcome(one.id, "wrong", 0, one.points) for one in exercises]

    texts = (
        'all_gather = mine("04.3")',
        "def ring_all_reduce(comm, tensor):\n    return all_gather",
        f'STUDENT = "{left}"',
    )
    program = Program(tuple(Statement(text, 1, 1) for text in texts))
    submission = Submission(left, "04", tmp_path, "digest", program)
    rules = rules_of(release, judge=judge)
    graded = _graded(submission, rules, Cache(tmp_path / "cache"))
    assert not graded.failure and len(graded.outcomes) == 7
    text = "\n".join(seen)
    assert "chunks[(r + s) % p], (r - 1) % p" in text and "chunks[(r - s) % p], (r + 1) % p" not in text
    own = replace(find("04.3"), id="04.21")
    assert lent(own) is None and lent("04.3")[1] == "ring_all_gather", "a pack's answer is lent to nobody"
