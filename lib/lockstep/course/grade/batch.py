"""Every hand-in read and judged, side by side on the cores: a result for each, and nobody stops the others.

Floor 4, room `course`; read `reading` and `judging` first. A worker reads one student's files, takes what was judged
before from the cache, and has the rest judged in a sandbox.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import lockstep
from lockstep.course.grade.borrowed import borrowed
from lockstep.course.grade.cache import Cache, Key
from lockstep.course.grade.characters import visible, writable
from lockstep.course.grade.collect import Handin
from lockstep.course.grade.outcome import Outcome
from lockstep.course.grade.program import LabText
from lockstep.course.grade.reaching import reaching
from lockstep.course.grade.reading import read_handin
from lockstep.course.grade.rounds import Judge, judge_submission
from lockstep.course.grade.submission import Submission
from lockstep.course.grade.workers import Failure, run

PATIENCE = 1200.0  # seconds for one student's files; a sandbox has its own, shorter limits for each exercise


@dataclass(frozen=True)
class Graded:
    """One submission and what its exercises earned. failure: why there is no result, or "".

    doubt: what a person should look at and the student need not read, such as another name in the notebook.
    """

    submission: Submission
    outcomes: tuple[Outcome, ...] = ()
    failure: str = ""
    doubt: str = ""


@dataclass(frozen=True)
class Rules:
    """What a batch is judged by. values(lab, student): the exercises, in the student's variant; name of the variant.

    library: by exercise (its id, or the student's value) a pair, the text that defines the course's own function and its
    name, for `mine`.
    rest: what else verdicts depend on, such as the pack. goodbye: what a process that judged does before it ends.
    """

    labs: Mapping[str, LabText]
    values: Callable[[str, str], list[tuple[Any, str]]]
    seed: int
    judge: Judge
    whose: Callable[[Submission], tuple[str, str]] = lambda submission: (submission.student, "")
    library: Callable[[Any], tuple[str, str] | None] = lambda exercise: None
    isolation: str = "auto"
    rest: str = ""
    goodbye: Callable[[], None] = lambda: None


def grade_all(
    handins: Sequence[Handin], rules: Rules, cache: Cache, *, jobs: int = 1, patience: float = PATIENCE
) -> Iterator[tuple[int, list[Graded]]]:
    """The graded submissions of each hand-in with its place in `handins`, as they become ready."""

    def work(handin: Handin) -> list[Graded]:
        return [_graded(one, rules, cache) for one in read_handin(handin, rules.labs)]

    for index, result in run(work, handins, jobs=jobs, patience=patience, goodbye=rules.goodbye):
        if isinstance(result, Failure):
            handin = handins[index]
            lab = next(iter(rules.labs)) if len(rules.labs) == 1 else ""
            origin = handin.pieces[0].path if handin.pieces else None
            lost = Submission(handin.student, lab, origin, when=handin.when, lms_id=handin.lms_id)
            result = [Graded(lost, (), f"{result.why[:1].upper()}{result.why[1:]}.")]
        yield index, result


def _graded(submission: Submission, rules: Rules, cache: Cache) -> Graded:
    """Judge one submission, or say why nothing in it can be judged."""
    if not submission.lab:
        return Graded(submission)
    try:
        return _judged(submission, rules, cache)
    except Exception as error:  # our fault, not the student's: no result rather than a wrong one
        why = f"Grading itself failed: {type(error).__name__}: {str(error)[:300]}."
        return Graded(submission, (), writable(why))


def _judged(submission: Submission, rules: Rules, cache: Cache) -> Graded:
    name, doubt = rules.whose(submission)
    doubt = "; ".join(filter(None, (doubt, reaching(submission.program))))
    values = rules.values(submission.lab, name)
    if submission.problem:
        return Graded(submission, tuple(_unread(value, submission.problem) for value, _ in values), "", doubt)
    versions = {value.id: value.version for value, _ in values}
    own = {value.id: value for value, _ in values}  # what `mine` lends is in the student's variant too
    keys = {value.id: _key(submission, value, variant, rules, versions) for value, variant in values}
    known = {id: cache.get(key) for id, key in keys.items()}
    missing = [value for value, _ in values if known[value.id] is None]
    fresh = judge_submission(
        submission, missing, rules.labs[submission.lab].functions, rules.seed, judge=rules.judge,
        library=lambda id: rules.library(own.get(id, id)), isolation=rules.isolation, known=known,
    )  # fmt: skip
    fresh = {id: _writable(outcome) for id, outcome in fresh.items()}
    for id, outcome in fresh.items():
        cache.put(keys[id], outcome)
    return Graded(submission, tuple(fresh.get(value.id) or known[value.id] for value, _ in values), "", doubt)


def _key(submission: Submission, value: Any, variant: str, rules: Rules, versions: Mapping[str, int]) -> Key:
    lent = as_digest(rules.rest, *sorted(f"{id} {versions.get(id)}" for id in borrowed(submission.program)))
    return Key(
        submission.digest, value.id, value.version, variant, float(value.points), rules.seed, lockstep.__version__, lent
    )  # fmt: skip


def _writable(outcome: Outcome) -> Outcome:
    """A sentence may quote what the student's function returned or raised."""
    return replace(outcome, sentence=visible(writable(outcome.sentence)), hint=writable(outcome.hint))


def _unread(value: Any, why: str) -> Outcome:
    return Outcome(value.id, "not attempted", 0.0, float(value.points), sentence=why, version=value.version)


def as_digest(*parts: str) -> str:
    """One short text for several, that changes when any of them does."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
