"""What one student has for one lab, once everything that counts has been put together.

Floor 4, room `course`. Every file that grading writes is made from these values.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from datetime import datetime

from lockstep.course.grade.outcome import Outcome
from lockstep.course.grade.submission import Submission


@dataclass(frozen=True)
class Result:
    """pseudonym: what stands for the student where no name may. hours_late: None when the time is not known.

    penalty: points taken off for lateness by the policy. failure: why there is no result, or "". kept: exercises whose
    higher mark of an earlier run was kept. doubt: what only a person can decide, not for the student to read.
    """

    submission: Submission
    outcomes: tuple[Outcome, ...]
    pseudonym: str
    due: datetime | None = None
    hours_late: float | None = None
    penalty: float = 0.0
    failure: str = ""
    kept: tuple[str, ...] = ()
    doubt: str = ""

    @property
    def student(self) -> str:
        return self.submission.student

    @property
    def lab(self) -> str:
        return self.submission.lab

    @property
    def raw(self) -> float:
        """Points earned, whatever the time."""
        return round(sum(one.points for one in self.outcomes), 6)

    @property
    def of(self) -> float:
        return round(sum(one.of for one in self.outcomes), 6)

    @property
    def points(self) -> float:
        """What goes into the gradebook."""
        return round(max(0.0, self.raw - self.penalty), 6)

    @property
    def open(self) -> tuple[str, ...]:
        """What a person still has to mark."""
        return tuple(one.exercise for one in self.outcomes if one.verdict == "needs marking")

    @property
    def file(self) -> str:
        """A name for this student's own files: readable, and no two alike."""
        plain = unicodedata.normalize("NFKD", self.student).encode("ascii", "ignore").decode()
        words = re.sub(r"[^A-Za-z0-9]+", "-", plain)[:40].strip("-")
        return f"{words}-{self.pseudonym}" if words else self.pseudonym

    def outcome(self, exercise: str) -> Outcome | None:
        return next((one for one in self.outcomes if one.exercise == exercise), None)


def number(points: float) -> str:
    """Points as people write them: 7, 7.5, 6.67."""
    return f"{points:.2f}".rstrip("0").rstrip(".")
