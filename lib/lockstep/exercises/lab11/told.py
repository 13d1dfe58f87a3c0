"""What the exercises of lab 11 share: an observer that keeps apart what is read and what is judged, and symptoms.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lockstep.exercises.compare import alike
from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.judge import Judge
from lockstep.exercises.lab05.likeness import FailsAlike
from lockstep.exercises.observe import Observation
from lockstep.exercises.plain import plain

NO_RETURN = "The function returns None: is there a `return` on every path?"


@dataclass(frozen=True)
class Told:
    """Observes as `observe` does; what is judged stands in `arguments` then, and `value` is that in words.

    A verdict on a crash, and `diagnose`, show `value` as it is, and what is judged is made for no reader.
    words(value, seconds): seconds of the simulated run, 0 where there is none.
    """

    observe: Callable[..., Observation]
    words: Callable[[Any, float], Any]

    def __call__(self, fn: Callable[..., Any], case: Case) -> Observation:
        return self.of(self.observe(fn, case))

    def of(self, seen: Observation) -> Observation:
        """What `observe` saw, as it is shown and judged."""
        if seen.error is not None:
            return seen
        return replace(seen, value=self.words(seen.value, seen.seconds), arguments=seen.value)


@dataclass(frozen=True)
class AloneAlike:
    """A symptom: on the smallest failing case this mistake, and none of `others`, finds the same wrong.

    What several mistakes have in common there says nothing about which of them was made.
    """

    own: FailsAlike
    others: tuple[Mistake, ...]

    def __call__(self, case: Case, seen: Observation, expected: Observation) -> bool:
        return self.beside(self.own.observe(self.own.function, case), case, seen, expected)

    def beside(self, theirs: Observation, case: Case, seen: Observation, expected: Observation) -> bool:
        if not self.own.beside(theirs, case, seen, expected):
            return False
        rest = (replace(self.own, function=other.function) for other in self.others)
        return not any(one(case, seen, expected) for one in rest)


def by_what_it_alone_does(
    observe: Callable[..., Observation], judge: Judge, mistakes: Sequence[Mistake]
) -> tuple[Mistake, ...]:
    """The mistakes, each without a symptom now with `AloneAlike`."""
    return tuple(
        one
        if one.symptom
        else replace(
            one,
            symptom=AloneAlike(
                FailsAlike(observe, judge, one.function), tuple(other for other in mistakes if other is not one)
            ),
        )
        for one in mistakes
    )


def changes_an_argument(case: Case, seen: Observation, expected: Observation | None = None) -> int | None:
    """The place of the first argument that is not left as it was; None when there is none, or nobody knows."""
    if seen.arguments is None:
        return None
    pairs = zip(seen.arguments, plain([*case.args]), strict=False)
    return next((place for place, (left, given) in enumerate(pairs) if not alike(left, given)), None)


def never_ends(case: Case, seen: Observation, expected: Observation) -> bool:
    return seen.error is not None and seen.error.type == "Timeout"
