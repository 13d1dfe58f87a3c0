"""Grading a class: seconds for 30 submissions of lab 05, beside nbgrader's autograde on the same notebooks.

    python bench/grade.py                                    30 submissions, all cores
    python bench/grade.py --students 6 --nbgrader            six, and nbgrader after them (it runs whole notebooks)

Submissions are the lab with the solutions of a random choice of exercises (seeded), the first one solved, the second
blank, and in every fifth one function that is wrong. nbgrader takes part if it is installed; what it grades are the
same functions in the notebooks that `lockstep release --nbgrader` writes for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import psutil
import typer

from lockstep.course.tree import here

SHARE = 0.7  # of the exercises that a student has solved
WRONG = "    raise ValueError('I gave up here')\n"


def main(
    students: int = 30,
    lab: str = "05",
    jobs: Annotated[int, typer.Option(help="0: as many as there are cores.")] = 0,
    nbgrader: Annotated[bool, typer.Option("--nbgrader", help="Also nbgrader, if it is installed.")] = False,
) -> None:
    """Make the submissions, grade them twice (the second time from the cache), and print seconds and CPU seconds."""
    tree = here()
    with TemporaryDirectory() as folder:
        place = Path(folder)
        name = tree.find(lab).stem
        _lockstep("release", str(place / "bundle"), "--labs", lab, "--to", str(place / "release.toml"))
        solved = _cells(tree.solutions / f"{name}.ipynb")
        handed = {f"student{i:02}": _mixed(tree.labs / f"{name}.ipynb", solved, i) for i in range(students)}
        for student, text in handed.items():
            file = place / "in" / student / f"{name}.ipynb"
            file.parent.mkdir(parents=True)
            file.write_text(text, encoding="utf-8")
        print(f"{students} submissions of lab {lab}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        command = ("grade", str(place / "in"), "--release", str(place / "release.toml"), "--out", str(place / "grades"))
        for words in ("graded", "again, from the cache"):
            seconds, cpu = _timed(lambda: _lockstep(*command, "--jobs", str(jobs)))
            print(
                f"  lockstep grade, {words:22} {seconds:7.1f} s, {cpu:7.1f} CPU seconds, {seconds / students:6.2f} s each"
            )
        if nbgrader and shutil.which("nbgrader"):
            _beside(place, name, handed)
        elif nbgrader:
            print("  nbgrader is not installed: pip install nbgrader")


def _lockstep(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "lockstep.course.cli", *words], check=True, stdout=subprocess.DEVNULL)


def _timed(work: Any) -> tuple[float, float]:
    """Seconds by the clock, and CPU seconds of every process that it started, those in sandboxes included."""
    begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    hidden, done = {}, threading.Event()
    looking = threading.Thread(target=_look_into_boxes, args=(hidden, done))
    looking.start()
    work()
    done.set()
    looking.join()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - begun, cpu + sum(hidden.values())


def _look_into_boxes(seconds: dict[tuple[int, float], float], done: threading.Event) -> None:
    """Bubblewrap ends before its init process and tells nobody what that has computed: look while it lives."""
    while not done.wait(0.5):
        with contextlib.suppress(psutil.Error):
            walls = [one for one in psutil.Process().children(recursive=True) if one.name() == "bwrap"]
            inside = {one.pid: one for wall in walls for one in wall.children(recursive=True)}
            for one in inside.values():
                seconds[one.pid, one.create_time()] = sum(one.cpu_times()[:4])  # its own, and of those it waited for


def _cells(notebook: Path) -> dict[str, Any]:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return {cell["id"]: cell["source"] for cell in cells if "exercise" in cell["metadata"].get("tags", ())}


def _mixed(notebook: Path, solved: dict[str, Any], number: int) -> str:
    """The lab with some of its exercises solved: all for student 0, none for student 1."""
    whole, draw = json.loads(notebook.read_text(encoding="utf-8")), random.Random(number)
    chosen = [id for id in solved if number == 0 or (number > 1 and draw.random() < SHARE)]
    for cell in whole["cells"]:
        if cell.get("id") in chosen:
            cell["source"] = solved[cell["id"]]
            if number % 5 == 4 and cell["id"] == chosen[0]:
                cell["source"] = _gives_up("".join(solved[cell["id"]]))
    return json.dumps(whole)


def _gives_up(source: str) -> str:
    """The function with an error before its last line."""
    lines = source.rstrip().split("\n")
    return "\n".join([*lines[:-1], WRONG + lines[-1]])


def _beside(place: Path, name: str, handed: dict[str, str]) -> None:
    """nbgrader on the same functions: the release's notebook for it, with each student's exercise cells."""
    course = place / "course"
    course.mkdir()
    _lockstep("release", "--release", str(place / "release.toml"), "--nbgrader", str(course / "source"))
    _nbgrader(course, "generate_assignment", name)
    given = json.loads((course / "release" / name / f"{name}.ipynb").read_text(encoding="utf-8"))
    for student, text in handed.items():
        theirs = {cell.get("id"): cell["source"] for cell in json.loads(text)["cells"]}
        for cell in given["cells"]:
            if cell["metadata"].get("nbgrader", {}).get("solution"):
                cell["source"] = theirs.get(cell["metadata"]["nbgrader"]["grade_id"], cell["source"])
        file = course / "submitted" / student / name / f"{name}.ipynb"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(given), encoding="utf-8")
    seconds, cpu = _timed(lambda: _nbgrader(course, "autograde", name))
    print(
        f"  nbgrader autograde             {seconds:14.1f} s, {cpu:7.1f} CPU seconds, {seconds / len(handed):6.2f} s each"
    )


def _nbgrader(course: Path, *words: str) -> None:
    subprocess.run(["nbgrader", *words, "--Execute.timeout=300"], cwd=course, check=True, capture_output=True)


if __name__ == "__main__":
    typer.run(main)
