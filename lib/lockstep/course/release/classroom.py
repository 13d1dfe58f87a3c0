"""GitHub Classroom: check a notebook in a workflow, and tell the points.

    python -m lockstep.course.release.classroom labs/05_data_parallel.ipynb --junit results.xml

Floor 4, room `course`. It prints a line for each exercise and `Points 7/10`, writes JUnit XML, and where GitHub runs it
hands the result to the step's output `result`, as `education/autograding-grading-reporter` reads it. The cases are those
that students see: a student's repository can hide nothing from the student, so these points are *unprotected*.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lockstep.course.grade.batch import Rules
from lockstep.course.grade.judging import grade_program
from lockstep.course.grade.lab_text import lab_text, notebook_of
from lockstep.course.grade.lent import lent
from lockstep.course.grade.reports import junit_xml
from lockstep.course.grade.result import Result, number
from lockstep.course.release.single import grade_one
from lockstep.exercises import registry
from lockstep.exercises.check import SEED
from lockstep.exercises.exercise import Exercise


def grade_notebook(notebook: Path, exercises: Sequence[Exercise], isolation: str = "auto") -> Result:
    """Grade one notebook of one lab, by the cases that students see; raises ValueError when there is no such file."""
    if not notebook.is_file():
        raise ValueError(f"there is no notebook {notebook}")
    lab = exercises[0].lab
    texts = {lab: lab_text(lab, exercises, notebook_of(lab))}
    values = [(one, "") for one in exercises]
    rules = Rules(texts, lambda lab, student: values, SEED, grade_program, library=lent, isolation=isolation)
    return grade_one(notebook.stem, [notebook], rules)


def result(graded: Result) -> dict[str, Any]:
    """What the reporter of GitHub Classroom reads."""
    tests = [
        {
            "name": one.exercise,
            "status": "pass" if one.points == one.of else "fail",
            "score": one.points,
            "message": " ".join(filter(None, (f"{one.verdict}. {one.sentence}", one.hint))),
            "test_code": "",
            "filename": "",
            "line_no": 0,
            "duration": round(1000 * one.seconds),
        }
        for one in graded.outcomes
    ]
    status = "pass" if graded.points == graded.of else "fail"
    return {"version": 1, "status": status, "max_score": graded.of, "tests": tests}


def chosen(notebook: Path, drop: Sequence[str] = ()) -> list[Exercise]:
    """The exercises of the lab whose number the notebook's name begins with, but those in `drop`; ValueError if none."""
    found = [one for one in registry.of_lab(notebook.name[:2]) if one.id not in drop]
    if not found:
        raise ValueError(
            f"{notebook.name} does not begin with the number of a lab that has exercises, as 05_mine.ipynb does"
        )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the points, write what is asked for; 0 whenever there is a result, 2 with a sentence when there is none."""
    parser = argparse.ArgumentParser(prog="classroom", description="Check a notebook and tell its points.")
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--drop", default="", help="exercises that do not count: 05.6,05.7")
    parser.add_argument("--junit", type=Path, help="where to write JUnit XML")
    options = parser.parse_args(arguments)
    try:
        exercises = chosen(options.notebook, [one for one in options.drop.split(",") if one])
        graded = grade_notebook(options.notebook, exercises)
    except (ValueError, RuntimeError) as error:
        print(f"classroom: {error}", file=sys.stderr)
        return 2
    for sentence in graded.submission.warnings:
        print(f"note: {sentence}")
    for one in graded.outcomes:
        print(
            f"{one.exercise}  {number(one.points)}/{number(one.of)}  {one.verdict}"
            + (f": {one.sentence}" if one.sentence else "")
        )
    print(f"Points {number(graded.points)}/{number(graded.of)}")
    if options.junit:
        options.junit.write_text(junit_xml([graded]), encoding="utf-8")
    if os.environ.get("GITHUB_OUTPUT"):
        encoded = base64.b64encode(json.dumps(result(graded)).encode()).decode()
        with open(os.environ["GITHUB_OUTPUT"], "a", encoding="utf-8") as out:
            out.write(f"result={encoded}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
