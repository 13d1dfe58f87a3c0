"""What one exercise of one submission earned.

Floor 4, room `course`. It holds nothing of a hidden case that a student may not read.
"""

from __future__ import annotations

from dataclasses import dataclass

VERDICTS = (
    "passed", "partial", "wrong", "crashed", "timed out", "out of memory", "forbidden", "unstable", "not attempted",
    "needs marking",
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """One exercise's result.

    exercise: "05.2"; version: of the exercise. verdict: one of VERDICTS. points: earned, `of`: to be had.
    sentence: what is wrong, for the student. mistake: the name of the known mistake it behaves like, or "". hint: what
    the feedback page offers next. seconds: of the student's code. level: the isolation it ran under. by_hand: why a
    person set these points, or "".
    """

    exercise: str
    verdict: str
    points: float
    of: float
    sentence: str = ""
    mistake: str = ""
    hint: str = ""
    seconds: float = 0.0
    level: str = ""
    version: int = 1
    by_hand: str = ""

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"a verdict is one of {', '.join(VERDICTS)}, not {self.verdict!r}")
        if not 0 <= self.points <= self.of:
            raise ValueError(f"{self.exercise} earned {self.points} of {self.of} points")
