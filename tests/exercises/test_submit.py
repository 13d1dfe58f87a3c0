"""`submit` makes one file, and refuses a notebook that is not saved as it was run."""

import json
import zipfile

import pytest
from small import HALVES, doubles, halves_in_a_loop

from lockstep.exercises import check, predict, registry, submit

DEFINES = "def halves(numbers):\n    return [n / 2 for n in numbers]"
CHECKS = 'check("00.7", halves)'
OTHER = "x = 3"


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """Writes a notebook with the given cells and sets what the kernel has run."""
    monkeypatch.setattr(registry, "all", lambda: [HALVES])
    monkeypatch.chdir(tmp_path)

    def write(saved, run):
        cells = [{"cell_type": "code", "source": one.splitlines(keepends=True)} for one in saved]
        cells.append({"cell_type": "markdown", "source": ["words"]})
        (tmp_path / "00_start_here.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4}))
        monkeypatch.setattr("lockstep.exercises.submission.history", lambda: run)

    return write


def test_a_saved_notebook_becomes_one_file(lab, my):
    predict("00.p1", 3)
    predict("05.p1", 4)
    check(HALVES, halves_in_a_loop)
    lab([DEFINES, CHECKS], [OTHER, DEFINES, CHECKS, 'submit("00")'])
    card = submit("00")
    assert "ready to hand in" in card.text
    with zipfile.ZipFile(my / "submit" / "lab00.zip") as made:
        names = set(made.namelist())
        record, about = (json.loads(made.read(one)) for one in ("record.json", "about.json"))
        assert b"0.5 * n" in made.read("functions/00.7.py")
    assert names == {"00_start_here.ipynb", "record.json", "about.json", "functions/00.7.py"}
    assert set(record["predictions"]) == {"00.p1"} and record["exercises"]["00.7"]["passed"]
    assert about["versions"]["torch"] and about["exercises"] == {"00.7": 1}
    # A long path was broken over two lines and could not be copied.
    assert str(my / "submit" / "lab00.zip") in card.text


@pytest.mark.parametrize(
    "saved, run",
    [
        ([CHECKS], [DEFINES, CHECKS]),
        ([DEFINES.replace("2", "3"), CHECKS], [DEFINES, CHECKS]),
        ([DEFINES], [DEFINES, CHECKS]),
        ([DEFINES, CHECKS], [DEFINES, CHECKS, DEFINES + "  # better", CHECKS]),
        ([DEFINES, CHECKS], [DEFINES, CHECKS, 'predict("00.p1", 5)']),
    ],
)
def test_an_unsaved_notebook_is_refused(lab, my, saved, run):
    lab(saved, run)
    text = submit("00").text
    assert "not made" in text and "Save" in text and "begins" in text
    assert not (my / "submit").exists()


def test_earlier_runs_other_labs_and_scratch_cells_do_not_matter(lab):
    run = [DEFINES.replace("2", "7"), "def scratch(): pass", 'predict("05.p1", 1)', DEFINES, CHECKS + "\n"]
    lab([DEFINES + "\n", CHECKS], run)
    assert "ready" in submit("00").text


def test_a_wrong_check_result_can_be_handed_in(lab):
    check(HALVES, doubles)
    lab([DEFINES, CHECKS], [DEFINES, CHECKS])
    assert "ready" in submit("00").text


def test_no_notebook_or_a_broken_one_gets_a_sentence(lab, tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "all", lambda: [HALVES])
    assert "not found" in submit("00").text
    assert "there is no file" in submit("00", notebook="other.ipynb").text
    (tmp_path / "00_broken.ipynb").write_text("{}")
    assert "could not be read as a notebook" in submit("00").text
    (tmp_path / "00_broken.ipynb").write_text("{")
    assert "could not be read as a notebook" in submit("00").text


def test_jupyterlab_names_the_notebook(lab, tmp_path, monkeypatch):
    lab([DEFINES, CHECKS], [DEFINES, CHECKS])
    (tmp_path / "00_start_here.ipynb").rename(tmp_path / "my copy.ipynb")
    monkeypatch.setenv("JPY_SESSION_NAME", "/somewhere/else/my copy.ipynb")
    assert "ready" in submit("00").text


def test_a_real_kernels_history_is_read(tmp_path):
    """Run in IPython itself: the history holds the cells as they were sent."""
    from IPython.core.interactiveshell import InteractiveShell

    from lockstep.exercises.submission import history

    shell = InteractiveShell.instance()
    try:
        shell.run_cell("y = 1  # a cell\n", store_history=True)
        assert "y = 1  # a cell" in [one.strip() for one in history()]
    finally:
        InteractiveShell.clear_instance()
