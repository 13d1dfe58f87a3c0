"""What students hand in, in every state that it comes in: a submission or a sentence, never an exception."""

import json
import os
import struct
import zipfile

import pytest
from hand_ins import MEAN, SKELETON_TOTAL, TOTAL, WRONG_TOTAL, cells, code, notebook, old, prose, reader, texts, zipped

from lockstep.course.grade import archive
from lockstep.course.grade.collect import collect


@pytest.fixture
def read(tmp_path):
    return reader(tmp_path)


def test_the_program_holds_what_the_functions_need_and_nothing_that_measures(read):
    (one,) = read({"jane/00_counting.ipynb": notebook(total=TOTAL, mean=MEAN)}).values()
    assert texts(one) == ["ZERO = 0", TOTAL, 'my_total = mine("00.1")', MEAN]
    assert (one.student, one.lab, one.problem, one.warnings) == ("jane", "00", "", ())
    zero = one.program.statements[0]
    assert (zero.cell, zero.line) == (1, 3)


def test_imports_bring_only_the_names_that_are_used(read):
    # Importing what a lab's first cell imports takes seconds, in every sandbox of every student.
    uses = "def total(numbers):\n    return np.sum(numbers) + pi"
    head = "import os, numpy as np\nfrom math import (pi,\n    tau)\nfrom lockstep.exercises import check, mine"
    (one,) = read({"a.ipynb": notebook(code(head), code(uses, "exercise", "00.1"))}).values()
    assert texts(one) == ["import numpy as np", "from math import pi", uses]


CASES = {
    "the last definition of two": (
        [code(WRONG_TOTAL, "exercise", "00.1"), code(TOTAL)], [TOTAL], "`total` is defined 2 times; the last, in cell 2"),
    "a skeleton below the written one": (
        [code(TOTAL, "exercise", "00.1"), code(SKELETON_TOTAL)], [TOTAL], "`total` stands twice"),
    "magics and shell lines": (
        [code("%matplotlib inline\n!pip install x\nfiles = !ls\nstep = 2 \\\n  % 2\n" + TOTAL + "\n%time total([1])\ntotal?",
              "exercise", "00.1")], [TOTAL], ""),
    "a cell magic whose body is Python": ([code("%%time\n" + TOTAL, "exercise", "00.1")], [TOTAL], ""),
    "a syntax error in another cell": (
        [code("def mean(:\n    pass"), code(TOTAL, "exercise", "00.1")], [TOTAL], "Cell 1, line 1 is not Python"),
    "a syntax error in another statement": (
        [code("x = (1,\n" + "y = 2\n" + TOTAL + "\nprint 'done'", "exercise", "00.1")], [TOTAL], "is not Python"),
    "a return outside of any function": ([code("return 3\n" + TOTAL, "exercise", "00.1")], [TOTAL], "outside function"),
    "another name, which the check knows": (
        [code(TOTAL.replace("def total", "def mine_too"), "exercise", "00.1"), code('check("00.1", mine_too)', "check")],
        ["total = mine_too"], "`total` is called `mine_too` here"),
    "cells in another order": (
        [code("@twice\ndef total(x):\n    return sum(x)", "exercise", "00.1"), code("def twice(f):\n    return f")],
        ["def twice(f):\n    return f", "@twice\ndef total(x):\n    return sum(x)"], ""),
    "a cell split in two": (
        [code("SCALE = {}"), code("SCALE['a'] = 1\nSCALE.update(b=2)"), code("def total(x):\n    return SCALE", "00.1")],
        ["SCALE = {}", "SCALE['a'] = 1", "SCALE.update(b=2)"], ""),
    "a definition in an experiment": ([code(TOTAL + "\nlong = run(total)", "experiment"), code("1", "00.1")], [TOTAL], ""),
    "two statements in a line": ([code("a = 1; b = 2\ndef total(x):\n    return b", "00.1")], ["b = 2"], ""),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_notebook_that_was_changed_is_read(read, case):
    parts, wanted, warning = CASES[case]
    (one,) = read({"a.ipynb": notebook(*parts)}).values()
    assert not one.problem and [text for text in wanted if text in texts(one)] == wanted
    assert warning in " ".join(one.warnings) and not any("long = run" in text for text in texts(one))


def test_what_was_deleted_comes_from_the_lab_as_it_was_handed_out(read):
    (one,) = read({"a.ipynb": notebook(code(TOTAL, "exercise", "00.1"))}).values()
    assert texts(one) == ["ZERO = 0", TOTAL] and "taken from the lab as it was handed out: ZERO" in one.warnings[0]


def test_a_function_that_is_not_python_is_said_by_its_name(read):
    (one,) = read({"a.ipynb": notebook(code("def total(numbers)\n    return 1", "exercise", "00.1"))}).values()
    assert "cell 1, line 1 is not Python (expected ':')" in one.broken["total"]


def bomb():
    return zipped({"00_counting.ipynb": b" " * 3_000_000})


def linked():
    info = zipfile.ZipInfo("00_counting.ipynb")
    info.external_attr = 0o120777 << 16
    return zipped({info: b"/etc/passwd", "../00_outside.ipynb": notebook(total=TOTAL)})


WHOLE = notebook(total=TOTAL, mean=MEAN)
STATES = {
    "nbformat 3": (old(3), ""),
    "nbformat 2": (old(2), ""),
    "with a BOM": (b"\xef\xbb\xbf" + WHOLE, ""),
    "in UTF-16": (WHOLE.decode().encode("utf-16"), ""),
    "in Latin-1": (WHOLE.replace(b"Counting", b"Z\xe4hlen"), ""),
    "cut off": (WHOLE[:-60], ""),
    "with 50 MB of output": (WHOLE[:-1] + b', "much": "' + b"x" * 50_000_000 + b'"}', ""),
    "with lone surrogates and NULs": (WHOLE.replace(b"Return the sum", b"\\ud800 \\u0000"), ""),
    "as a script": (b"# %%\nZERO = 0\n# %% tags=[\"exercise\", \"00.1\"]\n" + TOTAL.encode(), ""),
    "with parts of the wrong kind": (json.dumps({"cells": [1, {"source": 3}, {"cell_type": "code", "source": [TOTAL, 5],
        "metadata": 7}], "metadata": [], "nbformat": "x"}).encode(), ""),
    "empty": (b"", "is empty"),
    "a web page": (b"<!DOCTYPE html><html>", "is a web page"),
    "not a notebook": (b"\x89PNG....", "neither a notebook nor"),
    "nested a thousand deep": (b'{"cells": ' + b"[" * 100_000, "no cells"),
    "no cells": (b'{"cells": []}', "has no cells"),
    "another lab": (notebook(code('check("07.1", gpipe)', "check", "07.1")), "it is lab 07, and asked for was lab 00"),
    "one brace too deep": (notebook(code("x = " + "(" * 5000 + "1" + ")" * 5000), code(TOTAL, "00.1")), ""),
}  # fmt: skip


@pytest.mark.parametrize("state", STATES)
def test_a_file_in_any_state_gives_a_program_or_a_sentence(read, state):
    content, why = STATES[state]
    (one,) = read({"jane/00_counting.ipynb": content}).values()
    assert why in one.problem and bool(why) == bool(one.problem)
    if not why and "NULs" not in state:
        assert any(text.startswith("def total") for text in texts(one))


def test_zips_that_mean_harm_are_sentences_and_the_others_are_read(read, monkeypatch):
    monkeypatch.setattr(archive, "MOST_BYTES", 2**20)
    found = read({
        "bomb/lab.zip": bomb(), "linked/lab.zip": linked(), "locked/lab.zip": _with_flag(zipped({"a.ipynb": WHOLE})),
        "torn/lab.zip": zipped({"00_a.ipynb": WHOLE})[:-30], "deep/a.zip": zipped({"b.zip": zipped({"c.zip": zipped(
            {"d.zip": zipped({"00_a.ipynb": WHOLE})})})}), "good/lab.zip": zipped({"00_a.ipynb": WHOLE}), "none/a.docx": b"PK",
    })  # fmt: skip
    said = {student: f"{one.problem} {' '.join(one.warnings)}" for student, one in found.items()}
    for student, words in {
        "bomb": "unpacks to more than 1 MiB", "linked": "has a path that leaves its folder", "locked": "password",
        "torn": "no zip that can be opened", "deep": "inside 3 other zips", "none": "no notebook among",
    }.items():  # fmt: skip
        assert words in said[student] and found[student].problem, student
    assert not found["good"].problem and len(found) == 7


def _with_flag(content):
    """A zip that says it is encrypted."""
    at = content.rindex(b"PK\x01\x02")
    return content[: at + 8] + struct.pack("<H", 1) + content[at + 10 :]


def test_links_pipes_and_empty_folders_stop_nobody(read, tmp_path):
    place = tmp_path / "in"
    for student in ("link", "pipe", "empty"):
        (place / student).mkdir(parents=True)
    (tmp_path / "secret.ipynb").write_bytes(WHOLE)
    (place / "link" / "00_a.ipynb").symlink_to(tmp_path / "secret.ipynb")
    (place / "loop").symlink_to(place, target_is_directory=True)
    os.mkfifo(place / "pipe" / "00_a.ipynb")
    found = read({"good/00_a.ipynb": WHOLE})
    assert {student for student, one in found.items() if one.problem} == {"link", "pipe", "empty"}
    assert "link or no plain file" in found["pipe"].problem and "no file at all" in found["empty"].problem
    _, left_out = collect(place)
    assert any("link/00_a.ipynb is a link" in said for said in left_out) and any("loop" in said for said in left_out)


# Whose a file is.


def students(tmp_path, files):
    for name, content in files.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(content)
    return {one.student: one for one in collect(tmp_path / "in", ["00_counting"])[0]}


def test_loose_files_are_their_students_and_clutter_is_nobodys(tmp_path):
    found = students(tmp_path, {
        "00_counting_jane_doe.ipynb": b"", "Bob.ipynb": b"", "lab00-ann.zip": zipped({"record.json": b"{}"}),
        "00_counting (1).ipynb": b"", ".ipynb_checkpoints/x.ipynb": b"", "__MACOSX/y.ipynb": b"", "eve/.hidden": b"",
    })  # fmt: skip
    assert sorted(found) == ["00_counting (1)", "Bob", "ann", "eve", "jane doe"] and not found["eve"].pieces


def test_downloads_of_canvas_and_moodle_are_opened_as_they_come(tmp_path):
    canvas = zipped({
        "doejane_LATE_41_901_lab00-1.ipynb": b"", "doejane_42_902_lab00.ipynb": b"", "roebob_43_903_lab00.zip": zipped({}),
    })  # fmt: skip
    moodle = zipped({
        "Zoë Doe_77_assignsubmission_file_/00_counting.ipynb": b"", "Al Ba_78_assignsubmission_file_mine.ipynb": b"",
    })  # fmt: skip
    found = students(tmp_path, {"submissions.zip": canvas, "Lab-00-1234.zip": moodle})
    assert sorted(found) == ["Al Ba (78)", "Zoë Doe (77)", "doejane (41)", "doejane (42)", "roebob (43)"]
    assert found["Zoë Doe (77)"].lms_id == "77" and found["doejane (41)"].when.year == found["roebob (43)"].when.year
    # The download itself, not a folder that it lies in.
    assert len(collect(tmp_path / "in/submissions.zip")[0]) == 3


def test_gradescope_says_who_and_when(tmp_path):
    metadata = (
        "submission_11:\n  :submitters:\n  - :name: Jane Doe\n    :sid: '900'\n    :email: jane@uni.edu\n"
        "  :created_at: 2026-11-30 22:19:17.462132000 Z\n  :score: 0.0\n"
        "submission_12:\n  :submitters:\n  - :name: Bob\n  :created_at: 2026-12-01 10:00:00 -0500\n"
    )
    files = {"submission_metadata.yml": metadata.encode(), "submission_11/a.ipynb": b"", "submission_12/b.ipynb": b""}
    found = students(
        tmp_path, {"export.zip": zipped({f"assignment_1_export/{name}": text for name, text in files.items()})}
    )
    assert sorted(found) == ["Bob", "jane@uni.edu"]
    assert found["jane@uni.edu"].when.isoformat() == "2026-11-30T22:19:17.462132+00:00"
    assert found["Bob"].when.utcoffset().total_seconds() == -5 * 3600


# What `submit()` puts beside the notebook.


def test_a_submit_file_brings_predictions_and_functions_that_passed(read):
    record = {"predictions": {"00.p1": {"value": 3.0, "reason": "each sends less", "late": True}}}
    inside = {
        "00_counting.ipynb": notebook(prediction='predict("00.p1", 5, reason="I thought so")'),
        "record.json": json.dumps(record), "about.json": "{}", "functions/00.1.py": TOTAL, "functions/03.1.py": "x = 1",
    }  # fmt: skip
    (one,) = read({"jane/lab00.zip": zipped(inside)}).values()
    assert TOTAL in texts(one) and "the copy that had passed is used" in " ".join(one.warnings)
    assert one.predictions == {"00.p1": {"value": 3.0, "reason": "each sends less", "late": True}}
    other = zipped({**inside, "record.json": "[1, 2"})
    (one,) = read({"jane/lab00.zip": other}).values()
    assert one.predictions == {"00.p1": {"value": 5, "reason": "I thought so", "late": False}}


def test_answers_are_what_was_written_and_not_what_was_handed_out(read):
    found = read({
        "a.ipynb": notebook(), "b.ipynb": notebook(answer="Because each rank sends *two* parts."),
        "c.ipynb": notebook(*cells(answer="One."), prose("Two.", "answer", "00.w1")),
    })  # fmt: skip
    assert [found[student].answers.get("00.w1") for student in "abc"] == [
        None, "Because each rank sends *two* parts.", "One.\n\nTwo.",
    ]  # fmt: skip


def test_of_several_notebooks_the_latest_counts_and_the_others_are_named(read):
    (one,) = read(
        {"jane/00_counting-1.ipynb": notebook(total=WRONG_TOTAL), "jane/00_counting-2.ipynb": notebook(total=TOTAL)}
    ).values()
    assert TOTAL in texts(one) and "00_counting-2.ipynb counts, not 00_counting-1.ipynb" in " ".join(one.warnings)


def test_a_clone_of_the_course_is_not_graded_by_its_solutions(read):
    # GitHub Classroom gives the whole repository: the solved notebook there was fuller, so it would have counted.
    many = {f"jane/lib/{i}.py": b"x = 1" for i in range(300)}
    found = read({
        "jane/labs/00_counting.ipynb": notebook(total=WRONG_TOTAL), "jane/solutions/00_counting.ipynb": WHOLE, **many,
        "bob/clone.zip": zipped({
            "c/labs/00_counting.ipynb": notebook(total=WRONG_TOTAL), "c/solutions/00_counting.ipynb": WHOLE,
        }),
    })  # fmt: skip
    assert all(WRONG_TOTAL in texts(one) and not one.warnings for one in found.values()) and len(found) == 2
