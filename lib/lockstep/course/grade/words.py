"""Points for words: predictions for being made and reasoned, answers for what a person finds them worth.

Floor 4, room `course`; read `policy` and `written` first. How close a prediction came is never looked at.
"""

from __future__ import annotations

from collections.abc import Callable

from lockstep.course.grade.by_hand import Mark, marked
from lockstep.course.grade.outcome import Outcome
from lockstep.course.grade.policy import Policy
from lockstep.course.grade.program import LabText
from lockstep.course.grade.submission import Submission

FEWEST_WORDS = 3  # of a reason


def of_words(submission: Submission, lab: LabText, policy: Policy, mark: Callable[[str], Mark | None]) -> list[Outcome]:
    """Outcomes of a submission's predictions and answers; none where the policy gives no points for them.

    mark: what a person gave for a question of this student, or None.
    """
    found = [_prediction(id, submission, policy.predictions) for id in lab.predicts if policy.predictions]
    found += [_answer(id, submission, asked.points) for id, asked in policy.answers.items() if id[:2] == submission.lab]
    return [marked(one, mark(one.exercise)) for one in found]


def _prediction(id: str, submission: Submission, points: float) -> Outcome:
    made = submission.predictions.get(id)
    if made is None or made.get("late"):
        why = "No prediction was made." if made is None else "The prediction came after the value had been shown."
        return Outcome(id, "not attempted", 0.0, points, why)
    reasoned = len(str(made.get("reason") or "").split()) >= FEWEST_WORDS
    if not reasoned:
        return Outcome(id, "partial", points / 2, points, "A prediction without a reason in your own words.")
    return Outcome(id, "passed", points, points, "A prediction with a reason.")


def _answer(id: str, submission: Submission, points: float) -> Outcome:
    if not submission.answers.get(id):
        return Outcome(id, "not attempted", 0.0, points, "Nothing was written here.")
    return Outcome(id, "needs marking", 0.0, points, "A person reads this answer.")
