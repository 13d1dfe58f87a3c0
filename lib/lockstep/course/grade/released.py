"""The rules of a batch, and the titles on its pages, from `release.toml`.

Floor 4, room `course`; read `lockstep.course.release.toml` first.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from lockstep.course.grade.batch import Rules
from lockstep.course.grade.characters import writable
from lockstep.course.grade.judging import grade_program
from lockstep.course.grade.lab_text import lab_text, notebook_of
from lockstep.course.grade.lent import lent
from lockstep.course.grade.rounds import Judge
from lockstep.course.grade.submission import Submission
from lockstep.course.release.students import mismatch, stated_student
from lockstep.course.release.toml import Release
from lockstep.course.sandbox.box import close_boxes


def rules_of(release: Release, *, isolation: str = "auto", judge: Judge = grade_program) -> Rules:
    """What to judge by. Raises ValueError when the pack or an exercise is not there as it was released."""
    labs = {
        lab.number: lab_text(lab.number, release.values(lab.number), notebook_of(lab.number)) for lab in release.labs
    }

    @cache
    def values(lab: str, student: str) -> list[tuple[Any, str]]:
        return [(one, release.variant(one.id, student)) for one in release.values(lab, student)]

    def whose(submission: Submission) -> tuple[str, str]:
        student = re.sub(r" \(\d+\)$", "", submission.student)  # as an LMS names them, without its number
        stated = stated_student(one.text for one in submission.program.statements)
        stated = stated and writable(stated)
        said = mismatch(release, submission.lab, student, stated) if submission.lab else ""
        return stated or student, said

    pack = release.pack.sha256 if release.pack else ""
    return Rules(labs, values, release.seed, judge, whose, lent, isolation, pack, close_boxes)


def titles_of(release: Release, rules: Rules) -> dict[str, str]:
    """What pages call exercises ("05.2") and labs ("lab 05")."""
    labs = {f"lab {number}": text.title for number, text in rules.labs.items() if text.title}
    labs |= {id: "Prediction" for text in rules.labs.values() for id in text.predicts}
    return labs | {one.id: one.title for lab in release.labs for one in release.values(lab.number)}
