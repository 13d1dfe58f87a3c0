"""One run of grading: from the folder of submissions to results, in the order in which things count.

Floor 4, room `course`. Judged, or found in the cache; never lower than the last run for the same files; words marked;
set by hand; and only then late. What is written down is `writing`'s matter, what is shown is `show`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from lockstep.course.grade.batch import Graded, Rules, grade_all
from lockstep.course.grade.by_hand import Mark, Marks, marked, read_marks, read_overrides
from lockstep.course.grade.cache import Cache
from lockstep.course.grade.collect import Handin, collect
from lockstep.course.grade.deadline import Deadlines, hours_late, read_due, read_extensions, read_times
from lockstep.course.grade.ledger import Change, Entry, changes, not_lower, read_ledger, write_ledger
from lockstep.course.grade.outcome import Outcome
from lockstep.course.grade.policy import Policy, read_policy
from lockstep.course.grade.private import private_folder, pseudonym
from lockstep.course.grade.result import Result
from lockstep.course.grade.words import of_words


@dataclass(frozen=True)
class Request:
    """What an instructor asks for. submissions: folder or zip. out: the folder of grades. The others: see the command.

    fresh: judge again what is in the cache. lower: let marks fall below those of the last run. keep: write this run
    down as the last one.
    """

    submissions: Path
    out: Path
    due: Sequence[str] = ()
    extensions: Path | None = None
    times: Path | None = None
    policy: Path | None = None
    marks: Path | None = None
    overrides: Path | None = None
    jobs: int = 1
    fresh: bool = False
    lower: bool = False
    keep: bool = True

    @property
    def cache(self) -> Path:
        """The folder of what need not be worked out again."""
        return self.out / ".cache"


@dataclass(frozen=True)
class Batch:
    """Results in the order of students and labs, sentences for the instructor, and what changed since the last run."""

    results: tuple[Result, ...]
    policy: Policy
    marks: Marks
    said: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every submission has a result."""
        return not any(one.failure for one in self.results)


def grade(request: Request, rules: Rules, progress: Callable[[int, int], None] = lambda done, of: None) -> Batch:
    """Grade everything; progress(done, of) is called after each hand-in. Raises ValueError for what cannot be meant."""
    if request.out.resolve().is_relative_to(request.submissions.resolve()):
        raise ValueError(f"{request.out} lies among what was handed in, and would be a student's: name another --out")
    out = private_folder(request.out)
    policy, marks, overrides = (
        read_policy(request.policy),
        read_marks(request.marks),
        read_overrides(_overrides(request)),
    )
    before = read_ledger(out / "ledger.json")
    handins, said = collect(request.submissions, [text.name for text in rules.labs.values() if text.name])
    if not handins:
        raise ValueError(f"nothing was handed in: {request.submissions} holds no folder, notebook or zip")
    students = [(one.student, one.lms_id) for one in handins]
    deadlines, times = _times(request, students, rules, said)  # before the work of an hour
    graded = _judge(handins, rules, Cache(request.cache, request.fresh), request.jobs, progress)
    results, judged = [], {}
    for one in graded:
        key = (one.submission.student, one.submission.lab)
        outcomes, kept = one.outcomes, ()
        if not request.lower:
            outcomes, kept = not_lower(before.get(key), one.submission.digest, outcomes)
        if not one.failure:
            judged[key] = Entry(one.submission.digest, outcomes, 0.0)
        results.append(_result(one, outcomes, kept, rules, policy, marks, overrides, deadlines, times))
    unused = set(overrides) - {(who, what) for r in results for who in _names(r) for what in _exercises(r)}
    said += [f"{overrides[key].where}: there is no {key[1]} of {key[0]!r}; it was left out." for key in sorted(unused)]
    found = tuple(changes(before, judged))
    if request.keep:
        write_ledger(out / "ledger.json", before, results, judged)
    return Batch(tuple(results), policy, marks, tuple(said), found)


def _overrides(request: Request) -> Path | None:
    """The file that was named, else `overrides.csv` in the folder of grades if somebody put one there."""
    own = request.out / "overrides.csv"
    return request.overrides or (own if own.is_file() else None)


def _judge(
    handins: Sequence[Handin], rules: Rules, cache: Cache, jobs: int, progress: Callable[[int, int], None]
) -> list[Graded]:
    found: dict[int, list[Graded]] = {}
    progress(0, len(handins))
    for index, graded in grade_all(handins, rules, cache, jobs=jobs):
        found[index] = graded
        progress(len(found), len(handins))
    return [one for index in sorted(found) for one in found[index]]


def _times(
    request: Request, students: Sequence[tuple[str, str]], rules: Rules, said: list[str]
) -> tuple[Deadlines, dict[tuple[str, str], datetime]]:
    due = read_due(request.due)
    if strange := sorted(set(due) - {"", *rules.labs}):
        raise ValueError(f"--due is given for lab {strange[0]}, and released are {', '.join(rules.labs)}")
    extended = read_extensions(request.extensions, due, students, said)
    return Deadlines(due, extended), read_times(request.times, students, said)


def _result(
    one: Graded, outcomes: Sequence[Outcome], kept: tuple[str, ...], rules: Rules, policy: Policy, marks: Marks,
    overrides: Marks, deadlines: Deadlines, times: dict[tuple[str, str], datetime],
) -> Result:  # fmt: skip
    submission = one.submission
    when = times.get((submission.student, submission.lab)) or times.get((submission.student, "")) or submission.when
    name = pseudonym(rules.seed, submission.student)
    if submission.lab in rules.labs and not one.failure:
        outcomes = (
            *outcomes,
            *of_words(submission, rules.labs[submission.lab], policy, lambda id: marks.get((name, id))),
        )
    names = (submission.student, submission.lms_id, name)
    outcomes = tuple(marked(outcome, _mark(overrides, names, outcome.exercise)) for outcome in outcomes)
    due = deadlines.of(submission.student, submission.lab)
    late = hours_late(when, due)
    raw = sum(outcome.points for outcome in outcomes)
    penalty = policy.late.penalty(raw, late)
    submission = replace(submission, when=when)
    return Result(submission, outcomes, name, due, late, penalty, one.failure, kept, one.doubt)


def _mark(marks: Marks, names: Sequence[str], exercise: str) -> Mark | None:
    return next((marks[name, exercise] for name in names if name and (name, exercise) in marks), None)


def _names(result: Result) -> tuple[str, ...]:
    return result.student, result.submission.lms_id, result.pseudonym


def _exercises(result: Result) -> list[str]:
    return [one.exercise for one in result.outcomes]
