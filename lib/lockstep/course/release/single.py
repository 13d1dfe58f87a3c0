"""One student's files, graded on their own: what Gradescope and GitHub Classroom ask for at every hand-in.

Floor 4, room `course`; the rules and the reading are those of `lockstep grade`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from lockstep.course.grade.archive import Piece
from lockstep.course.grade.batch import Graded, Rules, grade_all
from lockstep.course.grade.cache import Cache
from lockstep.course.grade.collect import Handin
from lockstep.course.grade.outcome import Outcome
from lockstep.course.grade.result import Result
from lockstep.course.grade.submission import Submission

NOT_THERE = "No notebook of this lab was handed in."


def grade_one(student: str, files: Iterable[Path], rules: Rules, when: datetime | None = None) -> Result:
    """All labs of the rules as one result; the exercises of a lab that was not handed in are not attempted.

    Raises RuntimeError, with a sentence, when grading itself fails: a student's fault becomes an outcome.
    """
    handin = Handin(student, tuple(Piece(path) for path in sorted(files)), when=when)
    with TemporaryDirectory() as place:
        ((_, graded),) = grade_all([handin], rules, Cache(Path(place)))
    failed = next((one.failure for one in graded if one.failure), "")
    if failed:
        raise RuntimeError(failed)
    by_lab = {one.submission.lab: one for one in graded}
    name, _ = rules.whose(graded[0].submission)
    outcomes: list[Outcome] = []
    for lab in rules.labs:
        outcomes += by_lab[lab].outcomes if lab in by_lab else not_there(rules, lab, name)
    return Result(_together(graded), tuple(outcomes), student)


def not_there(rules: Rules, lab: str, student: str) -> list[Outcome]:
    """The outcomes of a lab that was not handed in."""
    values = [value for value, _ in rules.values(lab, student)]
    return [Outcome(one.id, "not attempted", 0, one.points, NOT_THERE, version=one.version) for one in values]


def _together(graded: list[Graded]) -> Submission:
    """The first submission, with what there is to say of all."""
    submissions = [one.submission for one in graded]
    said = [sentence for one in submissions for sentence in (one.problem, *one.warnings) if sentence]
    return replace(submissions[0], warnings=tuple(dict.fromkeys(said)), problem="")
