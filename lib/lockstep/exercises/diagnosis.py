"""`diagnose()`: the run of a random known mistake, to be named.

Floor 4, room `exercises`. Reading somebody else's fault from a timeline is what the labs train for. Sometimes
nothing is wrong.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lockstep.comm import Traffic
from lockstep.exercises import registry
from lockstep.exercises.card import Card, Row
from lockstep.exercises.compare import alike, differs
from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import changed_in_place, judged, left_in
from lockstep.exercises.observe import Failure, Observation
from lockstep.exercises.plain import Words, plain, short
from lockstep.exercises.trial import observe_here
from lockstep.trace import Trace

FEW = 5  # options shown at most
ROWS = 4  # ranks shown at most
EVENTS = 12  # of a trace that is given, at most
SITE = re.compile(r" \(the call: .*\)(?=: it belongs)", re.DOTALL)  # the world's words for a buffer changed too early
RIGHT_ONES = 1 / 6  # how often nothing is wrong

_last: dict[str, tuple[str, str]] = {}  # lab to exercise and fault of the last riddle, so that the next one differs


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """A run of an unknown function; `options` maps letters to what may be wrong. `answer("b")` says whether it is.

    places: of the arguments that are to be changed in place, and are shown. expected: what a right solution does.
    """

    exercise: Exercise
    case: Case
    seen: Observation
    options: dict[str, str]
    right: str
    sentence: str
    expected: Observation
    places: tuple[int, ...] = ()

    def answer(self, choice: str) -> Card:
        """Was it that? With the sentence of what it was."""
        letter = choice.strip().lower()
        if letter not in self.options:
            return Card(
                "Diagnosis", "open", "open", (Row("Answer", f"{choice!r} is not one of {', '.join(self.options)}."),)
            )
        hit = letter == self.right
        rows = [Row("You say", self.options[letter])]
        if hit:
            rows.append(Row("Because", self.sentence))
        else:
            where = "each rank's messages and what it returns" if self.case.ranks else "every number"
            rows.append(Row("Look again", f"Compare {where} with what it should be."))
        return Card("Diagnosis", "right" if hit else "not that", "good" if hit else "bad", tuple(rows))

    @property
    def card(self) -> Card:
        rows = [
            Row("Asked", self.exercise.asks),
            Row("Run", self.case.name),
            *_evidence(self.case, self.seen, self.expected, self.places),
        ]
        rows += [Row(f"{letter})", text) for letter, text in self.options.items()]
        rows.append(Row("To answer", '`d = diagnose(...)` keeps this run; `d.answer("a")` names what is wrong.'))
        return Card(f"What is wrong here? ({self.exercise.id} {self.exercise.title})", "", "note", tuple(rows))

    def __repr__(self) -> str:
        return self.card.text

    def _ipython_display_(self) -> None:
        from IPython.display import display

        trace = self.seen.trace or _given(self.case)
        if trace is not None:
            from lockstep.viz import timeline

            display(timeline(trace, title=f"{self.exercise.title}: {self.case.name}"))
        display(self.card)


def diagnose(lab: str, seed: int | None = None) -> Diagnosis | Card:
    """Show a run of a known mistake of `lab` (or, now and then, of a right solution), to be named from a list.

    seed: the same run again; None draws another one than the time before.
    """
    rng = np.random.default_rng(seed)
    own = [one for one in registry.all() if one.lab == lab and _readable(one)]
    if not own:
        return Card(f"Lab {lab} has no exercise whose runs one can read.", "", "note")
    drawn = [one for one in own if _readable(one)[0].ranks or _given(_readable(one)[0])]
    chosen = drawn or own  # a timeline says more than numbers
    exercise = chosen[rng.integers(len(chosen))]
    cases = _readable(exercise)
    case = cases[rng.integers(len(cases))]
    nothing, *faults = _told_apart(exercise, case, rng)
    order = [nothing, *faults] if rng.random() < RIGHT_ONES else [*faults, nothing]
    before = _last.get(lab) if seed is None else None
    shown = next((one for one in order if (exercise.id, one.name) != before), order[0])
    _last[lab] = (exercise.id, shown.name)
    offered = [one for one in (shown, *faults) if one is not nothing]
    offered = list(dict.fromkeys(one.name for one in offered))[: FEW - 1]
    names = [offered[i] for i in rng.permutation(len(offered))] + [nothing.name]
    letters = dict(zip("abcdefgh", names, strict=False))
    right = next(letter for letter, name in letters.items() if name == shown.name)
    places = changed_in_place(case, nothing.seen)
    return Diagnosis(exercise, case, shown.seen, letters, right, shown.sentence, nothing.seen, places)


@dataclass(frozen=True)
class _Suspect:
    """What may be wrong, and what it does on the drawn case."""

    name: str
    sentence: str
    seen: Observation


def _told_apart(exercise: Exercise, case: Case, rng: np.random.Generator) -> list[_Suspect]:
    """The right solution, then the mistakes in random order; of those that look alike on this case only the first."""
    (expected,) = observe_here(exercise, exercise.reference, [case])
    places = changed_in_place(case, expected)
    right = "Every rank returns what was asked, and sends what is needed." if case.ranks else "It does what was asked."
    found = [_Suspect("nothing is wrong", right, expected)]
    for i in rng.permutation(len(exercise.mistakes)):
        if len(found) > FEW:
            break
        mistake = exercise.mistakes[i]
        (seen,) = observe_here(exercise, mistake.function, [case])
        wrong = judged(exercise.judge, case, seen, expected) is not None
        if wrong and not any(_look_alike(seen, other.seen, places) for other in found):
            found.append(_Suspect(mistake.name, mistake.sentence, seen))
    return found


def _look_alike(one: Observation, other: Observation, places: tuple[int, ...] = ()) -> bool:
    """True when neither what is returned or left in place, nor what is called and sent, nor the error differs."""
    if one.error is not None and other.error is not None:
        return (one.error.type, one.error.message, one.error.waits) == (
            other.error.type, other.error.message, other.error.waits,
        )  # fmt: skip
    if one.error is not None or other.error is not None:
        return False
    if one.counts != other.counts:
        return False
    shown = [
        [who.value, [left_in(places, own) for own in (who.arguments if who.traffic else [who.arguments]) if places]]
        for who in (one, other)
    ]
    return (one.collectives, one.traffic) == (other.collectives, other.traffic) and alike(*shown)


def _readable(exercise: Exercise) -> list[Case]:
    """The cases of few enough ranks and events for a timeline that one can read, of several ranks where there are such.

    Of another plain function, all cases.
    """
    few = [case for case in exercise.draw() if (case.ranks or 0) <= ROWS and len(_events(_given(case))) <= EVENTS]
    return [case for case in few if (case.ranks or 0) > 1] or few


def _given(case: Case) -> Trace | None:
    """The trace that the function is given, if it is given one."""
    return next((one for one in case.args if isinstance(one, Trace)), None)


def _events(trace: Trace | None) -> list[str]:
    """What happens in it, in order of its begin."""
    if trace is None:
        return []
    told = [(s.start, f"rank {s.rank} {s.name}: {s.start:g} to {s.end:g} s") for s in trace.spans]
    told += [(m.sent, f"message {m.src} to {m.dst}: {m.sent:g} to {m.received:g} s") for m in trace.messages]
    return [words for _, words in sorted(told)]


def _shown(value: Any) -> str:
    return str(value) if isinstance(value, Words) else short(value)


def _counted(what: str, number: float) -> str:
    return f"{number:.1%}" if what.startswith("share") else f"{number:g}"


def _evidence(case: Case, seen: Observation, expected: Observation, places: tuple[int, ...] = ()) -> list[Row]:
    """What the run did beside what it should: whether a number is wrong can only be told beside the right one."""
    lines = _events(_given(case)) or list(map(short, plain(list(case.args))))
    given = [Row("It is given", "\n".join(lines), True)] if case.args and case.ranks is None else []
    if seen.error is not None:
        return [*given, Row("It ends with", _without_lines(seen.error).riddle)]
    if case.ranks is not None:
        return _of_ranks(seen, expected, places)
    rows = []
    if seen.value is not None or not places:
        rows += [Row("It returns", _shown(seen.value), True), Row("It should return", _shown(expected.value), True)]
    if places:
        rows.append(Row("It leaves in place", short(left_in(places, seen.arguments)), True))
        rows.append(Row("It should leave", short(left_in(places, expected.arguments)), True))
    if seen.counts:
        counted = (f"{what}: {_counted(what, number)}" for what, number in seen.counts.items())
        rows.append(Row("Counted", "; ".join(counted)))
    return [*given, *rows]


def _without_lines(error: Failure) -> Failure:
    """The lines are those of a function in the library, which nobody is shown."""
    return replace(error, file="", line=0, message=SITE.sub("", error.message), waiting=error.waits)


def _of_ranks(seen: Observation, expected: Observation, places: tuple[int, ...]) -> list[Row]:
    rows, sent = [], []
    for rank, (one, other) in enumerate(zip(_left(seen, places), _left(expected, places), strict=True)):
        said = "; ".join(_said(verb, value) for verb, value in one.items())
        gap = next((gap for verb, value in other.items() if (gap := _gap(one.get(verb), value))), None)
        rows.append(Row(f"Rank {rank}", f"{said}, as asked" if gap is None else f"{said}\n{gap}", True))
    for rank, (one, other) in enumerate(zip(seen.traffic, expected.traffic, strict=True)):
        same = (one.messages_sent, one.bytes_sent) == (other.messages_sent, other.bytes_sent)
        sent.append(f"rank {rank}: {_messages(one)}" + ("" if same else f" (it should be {_messages(other)})"))
    return [*rows, Row("Sent", ", ".join(sent))]


def _said(verb: str, value: Any) -> str:
    """A dictionary holds what the exercise has noted, by name."""
    if isinstance(value, dict):
        return "; ".join(f"{key}: {short(one)}" for key, one in value.items())
    return str(value) if isinstance(value, Words) else f"{verb} {short(value)}"


def _gap(got: Any, want: Any) -> str | None:
    if isinstance(want, Words):
        return None if got == want else f"it should be: {want}"
    if isinstance(want, dict) and isinstance(got, dict) and set(got) == set(want):
        gaps = ((key, differs(got[key], one, rtol=1e-4, atol=1e-6)) for key, one in want.items())
        return next((f"{key}: {gap}" for key, gap in gaps if gap), None)
    return differs(got, want, rtol=1e-4, atol=1e-6)


def _left(seen: Observation, places: tuple[int, ...]) -> list[dict[str, Any]]:
    """By rank, what is shown of its result: what it leaves in place and what it returns."""
    return [
        ({"leaves in place": left_in(places, own)} if places else {})
        | ({"returns": value} if value is not None or not places else {})
        for value, own in zip(seen.value, seen.arguments, strict=True)
    ]


def _messages(one: Traffic) -> str:
    return f"{one.messages_sent} messages, {one.bytes_sent:,} bytes"
