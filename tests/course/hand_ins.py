"""A small lab to hand in, notebooks made of cells, and a judge that needs no sandbox."""

import io
import json
import zipfile
from types import SimpleNamespace

from lockstep.course.grade.batch import Rules
from lockstep.course.grade.collect import collect
from lockstep.course.grade.lab_text import lab_text
from lockstep.course.grade.outcome import Outcome
from lockstep.course.grade.reading import read_handin

SKELETON_TOTAL = (
    'def total(numbers):\n    """Return the sum."""\n    result = ...\n    raise NotImplementedError("add")'
)
SKELETON_MEAN = 'def mean(numbers):\n    """Return the mean."""\n    raise NotImplementedError("divide")'
TOTAL = (
    "def total(numbers):\n    result = ZERO\n    for number in numbers:\n        result += number\n    return result"
)
MEAN = "def mean(numbers):\n    return my_total(numbers) / len(numbers)"
WRONG_TOTAL = "def total(numbers):\n    return numbers[0]"


def code(text, *tags, id=""):
    cell = {"cell_type": "code", "source": text.splitlines(keepends=True), "metadata": {"tags": [*tags]}, "outputs": []}
    return {**cell, "execution_count": None, **({"id": id} if id else {})}


def prose(text, *tags):
    return {"cell_type": "markdown", "source": text, "metadata": {"tags": [*tags]}}


def cells(total=SKELETON_TOTAL, mean=SKELETON_MEAN, answer="Write here.", prediction='predict("00.p1", None)'):
    return [
        prose("# Lab 00 · Counting"),
        code("import math\nimport this_is_not_there\nZERO = 0", "stable"),
        code(total, "exercise", "00.1"),
        code('check("00.1", total)', "check", "00.1"),
        code('my_total = mine("00.1")'),
        code(mean, "exercise", "00.2"),
        code('check("00.2", mean)', "check", "00.2"),
        code("run = heavy(total)\ndef drawn(x):\n    return x", "experiment"),
        code(prediction, "predict"),
        prose(answer, "answer", "00.w1"),
    ]


def notebook(*parts, **kinds):
    """Bytes of a notebook with these cells, or the lab's with some of them as given."""
    made_of = list(parts) or cells(**kinds)
    return json.dumps({"cells": made_of, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}).encode()


def zipped(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


EXERCISES = tuple(
    SimpleNamespace(id=id, lab="00", function=function, title=title, points=points, version=1, hint=hint)
    for id, function, title, points, hint in (
        ("00.1", "total", "Adding up", 2, "`sum` adds up."),
        ("00.2", "mean", "The middle", 4, "Divide."),
    )
)
LIBRARY = {"00.1": ("def total(numbers):\n    return sum(numbers)", "total")}


def small_lab(folder):
    """What reading knows of the lab, from the notebook as it was handed out."""
    file = folder / "00_counting.ipynb"
    file.write_bytes(notebook())
    return lab_text("00", EXERCISES, file)


def judge(lab, program, seed, *, exercises, isolation):
    """The tests' own judge: it runs the program right here. "EXIT" in it ends the process, "RAISE" the judging."""
    text = "\n".join(one.text for one in program.statements)
    if "EXIT" in text:
        import os

        os._exit(3)
    if "RAISE" in text:
        raise RuntimeError("the judge itself is broken")
    scope = {}
    for one in program.statements:
        try:
            exec(one.text, scope)
        except Exception as error:
            scope["error"] = error
    return [_outcome(one, scope, text) for one in exercises]


def _outcome(exercise, scope, text):
    fn = scope.get(exercise.function)
    right = {"total": 6, "mean": 2}[exercise.function]
    about = {"hint": exercise.hint, "seconds": 0.5, "level": "none (a test)", "version": exercise.version}
    try:
        got = fn([1, 2, 3])
    except NotImplementedError:
        return Outcome(exercise.id, "not attempted", 0, exercise.points, **about)
    except Exception as error:
        if fn is None:
            return Outcome(exercise.id, "not attempted", 0, exercise.points, **about)
        return Outcome(exercise.id, "crashed", 0, exercise.points, f"{type(error).__name__}: {error}", **about)
    if got == right:
        return Outcome(exercise.id, "passed", exercise.points, exercise.points, **about)
    return Outcome(exercise.id, "wrong", 0, exercise.points, "It is not `6`.", mistake="takes the first", **about)


def rules(folder, **changed):
    """The rules of a batch of the small lab."""
    fields = {
        "labs": {"00": small_lab(folder)}, "values": lambda lab, student: [(one, "") for one in EXERCISES],
        "seed": 7, "judge": judge, "library": lambda exercise: LIBRARY.get(exercise.id),
    }  # fmt: skip
    return Rules(**{**fields, **changed})


def reader(folder):
    """reading(files) -> submissions by student, read from a folder with these files (bytes by path)."""
    labs = {"00": small_lab(folder)}

    def reading(files):
        place = folder / "in"
        for name, content in files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(content)
        handins, _ = collect(place, ["00_counting"])
        return {one.student: one for handin in handins for one in read_handin(handin, labs)}

    return reading


def texts(submission):
    return [one.text for one in submission.program.statements]


def old(version):
    """The small lab in nbformat 2 or 3."""
    parts = [{"cell_type": "code", "input": TOTAL, "outputs": [], "language": "python"}]
    return json.dumps({"nbformat": version, "worksheets": [{"cells": parts}], "metadata": {}}).encode()
