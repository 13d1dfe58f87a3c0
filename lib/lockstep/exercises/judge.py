"""Judges: what is wrong with an observation, if anything. They run in the parent, where the expected values are.

Floor 4, room `exercises`. A judge is a function `judge(case, seen, expected) -> Finding | None`; `expected` is
the observation of the reference on the same case. Ready-made: `same_value`, `same_arguments`, `same_traffic`,
`same_collectives`, joined by `all_of`. A judge with a sentence of the subject is an ordinary function::

    def nobody_sends_more_than_its_share(case, seen, expected):
        most = max(t.bytes_sent for t in seen.traffic)
        if most > 2 * case.each[0][0].nbytes:
            return Finding(f"A rank sends {most} bytes: ...", evidence=most)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lockstep.exercises.compare import alike, differs
from lockstep.exercises.observe import Observation
from lockstep.exercises.plain import plain, short


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, in a sentence; `expected` and `got` are short texts for the verdict.

    evidence: plain data (numbers, tensors) that shows the fault; a known mistake with the same sentence and
    evidence on every case is taken to be the one that was made.
    """

    sentence: str
    expected: str = ""
    got: str = ""
    evidence: Any = None

    def like(self, other: Finding | None) -> bool:
        """True when both show the same fault: by evidence where there is any, otherwise by their texts."""
        if other is None:
            return False
        if self.evidence is not None and other.evidence is not None:
            return alike(self.evidence, other.evidence)
        return (self.sentence, self.got) == (other.sentence, other.got)


Judge = Callable[[Any, Observation, Observation], Finding | None]


def judged(judge: Judge, case: Any, seen: Observation, expected: Observation) -> Finding | None:
    """What `judge` finds on one case; an error that the reference does not raise is found here, before the judge."""
    if seen.error is not None:
        if expected.error is not None and expected.error.type == seen.error.type:
            return None
        return Finding(
            seen.error.sentence, _outcome(case, expected), seen.error.headline, (seen.error.type, seen.error.fault)
        )
    if expected.error is not None:
        return Finding(
            f"This input is not valid: the function must raise {expected.error.type}, but it returns a value.",
            f"{expected.error.type} is raised",
            short(seen.value),
            ("returns", seen.value),
        )
    return judge(case, seen, expected)


def _outcome(case: Any, expected: Observation) -> str:
    """What should have come of it: a value, or what the arguments hold when nothing is returned."""
    if expected.error:
        return expected.error.headline
    if any(one is not None for one in by_rank(case, expected.value)):
        return short(expected.value)
    places = changed_in_place(case, expected)
    if not places:
        return "nothing is returned, and the arguments stay as they are"
    left = [left_in(places, own) for own in by_rank(case, expected.arguments)]
    if all(alike(one, left[0]) for one in left):
        return ("on every rank, " if len(left) > 1 else "") + f"in place: {short(left[0])}"
    return f"in place, by rank: {short(left)}"


def by_rank(case: Any, seen: Any) -> list[Any]:
    """`value` or `arguments` of an observation as one entry for each rank; a plain function is one rank."""
    return [seen] if case.ranks is None else list(seen)


def changed_in_place(case: Any, expected: Observation) -> tuple[int, ...]:
    """The places of the arguments that the reference changes, where it returns nothing; () otherwise."""
    if expected.error is not None or any(one is not None for one in by_rank(case, expected.value)):
        return ()
    places = set()
    for rank, after in enumerate(by_rank(case, expected.arguments)):
        own = () if case.each is None else case.each[rank]
        before = plain([*own, *case.args, *case.kwargs.values()])
        places |= {i for i, (had, has) in enumerate(zip(before, after, strict=False)) if not alike(had, has)}
    return tuple(sorted(places))


def left_in(places: tuple[int, ...], arguments: Any) -> Any:
    """The arguments at `places`; a single one by itself."""
    left = [arguments[place] for place in places]
    return left[0] if len(left) == 1 else left


def all_of(*judges: Judge) -> Judge:
    """The first finding of several judges, in their order: what matters most comes first."""

    def judge(case: Any, seen: Observation, expected: Observation) -> Finding | None:
        return next((found for one in judges if (found := one(case, seen, expected)) is not None), None)

    return judge


def same_value(rtol: float = 1e-5, atol: float = 1e-8) -> Judge:
    """The function returns what the reference returns (on every rank): types, shapes, and numbers within tolerance."""

    def judge(case: Any, seen: Observation, expected: Observation) -> Finding | None:
        if case.ranks is None:
            difference = differs(seen.value, expected.value, rtol, atol)
            return None if difference is None else _value_finding(difference, seen.value, expected.value, seen.value)
        for rank, (got, want) in enumerate(zip(seen.value, expected.value, strict=True)):
            difference = differs(got, want, rtol, atol)
            if difference is not None:
                return _value_finding(f"rank {rank}: {difference}", got, want, seen.value)
        return None

    return judge


def _value_finding(difference: str, got: Any, want: Any, evidence: Any) -> Finding:
    if got is None and want is not None:
        return Finding("The function returns None: is there a `return` on every path?", short(want), "None", "None")
    sentence = difference[0].upper() + difference[1:] + "."
    return Finding(sentence, short(want), short(got), (evidence,))


def same_arguments(rtol: float = 1e-5, atol: float = 1e-8) -> Judge:
    """The arguments are left as the reference leaves them: unchanged, or changed in place in the same way."""

    def judge(case: Any, seen: Observation, expected: Observation) -> Finding | None:
        difference = differs(seen.arguments, expected.arguments, rtol, atol)
        if difference is None:
            return None
        return Finding(
            f"The arguments are not left as they should be: {difference}.",
            short(expected.arguments),
            short(seen.arguments),
            (seen.arguments,),
        )

    return judge


def same_traffic(bytes_only: bool = False) -> Judge:
    """Every rank sends as many bytes, and as many messages, as in the reference: no more and no fewer.

    bytes_only: the number of messages is free (empty chunks may or may not be sent).
    """

    def judge(case: Any, seen: Observation, expected: Observation) -> Finding | None:
        for unit in ("bytes",) if bytes_only else ("bytes", "messages"):
            got = [getattr(one, f"{unit}_sent") for one in seen.traffic]
            want = [getattr(one, f"{unit}_sent") for one in expected.traffic]
            for rank, (g, w) in enumerate(zip(got, want, strict=True)):
                if g != w:
                    sentence = f"The numbers are right, but rank {rank} sends {g:,} {unit} where {w:,} are enough."
                    if g < w:
                        sentence = f"Rank {rank} sends only {g:,} {unit}; {w:,} are needed."
                    return Finding(sentence, f"{short(want)} {unit} sent, by rank", short(got), (unit, got))
        return None

    return judge


def same_collectives() -> Judge:
    """Every rank calls as many collectives as in the reference, whichever they are."""

    def judge(case: Any, seen: Observation, expected: Observation) -> Finding | None:
        for rank, (got, want) in enumerate(zip(seen.collectives, expected.collectives, strict=True)):
            if len(got) != len(want):
                listed = ", ".join(got) or "none"
                many = f"{len(want)} collective" + ("" if len(want) == 1 else "s")
                return Finding(
                    f"Rank {rank} calls {len(got)} collectives ({listed}); {many} would do.",
                    many,
                    f"{len(got)}: {listed}",
                    [len(one) for one in seen.collectives],
                )
        return None

    return judge
