"""From observations to a verdict: pure, and the same for `check`, for grading and for the tests.

Floor 4, room `exercises`. Nothing runs a student's code here. The known mistakes are run (by `behaviour`) only
when something is wrong, to see which of them goes wrong in the same way on every case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.judge import Finding, judged
from lockstep.exercises.observe import PRINTED, Observation
from lockstep.exercises.plain import Strange
from lockstep.exercises.verdict import Verdict

LINES = 20  # of what a function printed
ATTEMPTS = 3  # different ones before the solution is shown
STATUS = {"Timeout": "timed out", "Killed": "crashed", "Deadlock": "wrong"}


def assess(
    exercise: Exercise,
    cases: Sequence[Case],
    seen: Sequence[Observation],
    expected: Sequence[Observation],
    behaviour: Callable[[Mistake], Sequence[Observation]],
) -> Verdict:
    """Judge what a function did on `cases`; `seen` may be shorter, when it was stopped at its last entry.

    expected: the reference on the same cases. behaviour(mistake): a known mistake on the same cases.
    """
    called = next((one.forbidden[0] for one in seen if one.forbidden), None)
    return (
        forbidden(exercise, f"`{called}` is called.") if called else weigh(exercise, cases, seen, expected, behaviour)
    )


def weigh(
    exercise: Exercise,
    cases: Sequence[Case],
    seen: Sequence[Observation],
    expected: Sequence[Observation],
    behaviour: Callable[[Mistake], Sequence[Observation]],
) -> Verdict:
    """As `assess`, of a function that calls nothing forbidden. Of `seen` only what the verdict needs is looked at."""
    if seen and _says_not_implemented(seen[0]):
        return not_attempted(exercise, printed=shown(seen[0].printed))
    if seen and _holds_ellipsis(seen[0]):
        return not_attempted(
            exercise, "There is still a `...` of the skeleton: put your code in its place.", shown(seen[0].printed)
        )

    @cache
    def finding(i: int) -> Finding | None:
        return judged(exercise.judge, cases[i], seen[i], expected[i])

    at = next((i for i in range(len(seen)) if finding(i) is not None), None)
    if at is None:
        return passed(exercise, cases, next((shown(one.printed) for one in seen if one.printed), ""))
    mistake = recognise(exercise, cases, seen, expected, at, finding, behaviour)
    return _wrong(exercise, cases, at, seen[at], finding(at), mistake)


def recognise(
    exercise: Exercise,
    cases: Sequence[Case],
    seen: Sequence[Observation],
    expected: Sequence[Observation],
    at: int,
    finding: Callable[[int], Finding | None],
    behaviour: Callable[[Mistake], Sequence[Observation]],
) -> Mistake | None:
    """The known mistake that explains the findings: one that gives the same finding on every case, or has the symptom.

    Among several that behave alike, one whose symptom is seen comes first, then the order of the list.
    at: the first case with a finding. finding(i): that of case i.
    """

    def has_symptom(mistake: Mistake) -> bool:
        if mistake.symptom is None:
            return False
        compared = getattr(mistake.symptom, "beside", None)  # with what the mistake does there, which is known here
        if compared is not None:
            return bool(compared(behaviour(mistake)[at], cases[at], seen[at], expected[at]))
        return bool(mistake.symptom(cases[at], seen[at], expected[at]))

    def tells(i: int) -> bool:
        """A case that never ended, after others that failed, tells nothing of what went wrong in those."""
        return i == at or not (seen[i].error and seen[i].error.type in ("Timeout", "Killed"))

    def same(theirs: Sequence[Observation], i: int) -> bool:
        return _same(finding(i), judged(exercise.judge, cases[i], theirs[i], expected[i]))

    alike = []
    for mistake in exercise.mistakes:
        theirs = behaviour(mistake)
        all_same = theirs is seen or all(same(theirs, i) for i in (at, *range(len(seen))) if tells(i))
        # Errors of one type are findings alike whatever caused them: their words, or the symptom, have to agree too.
        if all_same and (mistake.symptom is None or _same_words(seen[at], theirs[at]) or has_symptom(mistake)):
            alike.append(mistake)
    candidates = alike or exercise.mistakes
    fallback = alike[0] if alike else None
    return next((mistake for mistake in candidates if has_symptom(mistake)), fallback)


def _same(mine: Finding | None, other: Finding | None) -> bool:
    return other is None if mine is None else mine.like(other)


def _same_words(mine: Observation, other: Observation) -> bool:
    """True where there are no errors, or where both say the same, apart from lines."""
    if mine.error is None or other.error is None:
        return mine.error is other.error
    return (mine.error.message, mine.error.waits) == (other.error.message, other.error.waits)


def _says_not_implemented(seen: Observation) -> bool:
    return seen.error is not None and seen.error.type == "NotImplementedError" and seen.error.own


def _holds_ellipsis(seen: Observation) -> bool:
    """True when the `...` of the skeleton was returned, or handed to a call that could do nothing with it."""

    def within(value: Any) -> bool:
        if isinstance(value, (list, tuple)):
            return any(map(within, value))
        return isinstance(value, Strange) and value.type == "ellipsis"

    return within(seen.value) if seen.error is None else "llipsis" in seen.error.message


def _wrong(
    exercise: Exercise, cases: Sequence[Case], at: int, seen: Observation, found: Finding, mistake: Mistake | None
) -> Verdict:
    status = "wrong" if seen.error is None else STATUS.get(seen.error.type, "crashed")
    before = "" if at == 0 else " (the case before it passes)" if at == 1 else f" (the {at} cases before it pass)"
    return Verdict(
        exercise.id, exercise.title, status, exercise.asks, cases[at].name + before,
        found.expected, found.got if seen.error is None or not seen.error.waiting else "a deadlock", found.sentence,
        mistake.sentence if mistake else "", mistake.name if mistake else "", shown(seen.printed),
        next_hint(exercise), 0, exercise.points,
    )  # fmt: skip


def shown(printed: str) -> str:
    """The first lines of what a function printed."""
    lines = printed.rstrip().splitlines()
    cut = len(lines) > LINES or len(printed) >= PRINTED
    return "\n".join([*lines[:LINES], "…"] if cut else lines)


def next_hint(exercise: Exercise, seen: int = 0, tried: int = 0) -> str:
    """Where help is, when `seen` hints have been read and `tried` different attempts were made."""
    if seen >= len(exercise.hints):
        return f"You have read every hint. {after_hints(exercise.id, tried)}"
    return f'`hint("{exercise.id}")` gives hint {seen + 1} of {len(exercise.hints)}.'


def after_hints(id: str, tried: int, has_passed: bool = False) -> str:
    """What is left when every hint has been read."""
    if has_passed:
        return f'You have passed. `solution("{id}")` shows one way.'
    if tried >= ATTEMPTS:
        return f'`solution("{id}")` shows an answer now.'
    return f'After three different attempts `solution("{id}")` shows an answer.'


def passed(exercise: Exercise, cases: Sequence[Case], printed: str = "") -> Verdict:
    """Full points; it names the largest case, so that the student knows what was tried."""
    tried = f"All {len(cases)} cases, from {cases[0].name} to {cases[-1].name}."
    return Verdict(
        exercise.id, exercise.title, "passed", case=tried, printed=printed, points=exercise.points, of=exercise.points
    )  # fmt: skip


def forbidden(exercise: Exercise, seen: str) -> Verdict:
    """The function calls what this exercise asks to write."""
    names = ", ".join(f"`{name}`" for name in exercise.forbidden)
    return Verdict(
        exercise.id, exercise.title, "forbidden", exercise.asks, seen=seen,
        cause=f"Write this yourself: {names} may not be called in this exercise.",
        next=next_hint(exercise), of=exercise.points,
    )  # fmt: skip


def not_attempted(exercise: Exercise, why: str = "", printed: str = "") -> Verdict:
    """The stub as it was given, an empty body, or one that still holds what `why` says."""
    return Verdict(
        exercise.id, exercise.title, "not attempted", exercise.asks, seen=why, printed=printed,
        next=f"Write `{exercise.function}` in the cell above, run it, then run this cell again. {next_hint(exercise)}",
        of=exercise.points,
    )  # fmt: skip


def cannot_run(exercise: Exercise, why: str) -> Verdict:
    """What was given cannot be tried at all; `why` is a sentence."""
    return Verdict(
        exercise.id, exercise.title, "cannot run", exercise.asks, seen=why,
        next=f'`check("{exercise.id}", {exercise.function})` checks the function `{exercise.function}`.',
        of=exercise.points,
    )  # fmt: skip
