"""Variants: one exercise in several forms, so that a neighbour's right answer is wrong here.

Floor 4, room `exercises`; read `exercise.py` first. A lab's module may have `VARIANTS`: for an exercise's id its
variants, two or more. A variant changes one stated *parameter* (the ring's direction, the axis that varies fastest),
and exercises with the same parameter share the choice, so that what builds on two of them fits together.

Which one a student has follows from a key and the student's name alone, by a keyed hash (HMAC-SHA256, RFC 2104): nobody
keeps a list, and grading finds the same. The key is in the notebook and tells nothing of the seed that it comes from.

A variant either *narrows* the exercise (what is right in it is also right without it), or says how to turn an answer
into one that the lab's other cells can use (`as_asked`).
"""

from __future__ import annotations

import hmac
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from lockstep.exercises import keep, registry
from lockstep.exercises.card import Card, Row
from lockstep.exercises.exercise import Exercise, Mistake
from lockstep.exercises.judge import Judge, all_of

Answer = Callable[..., Any]

NAME_FIRST = (
    "This comes in variants, chosen by your name. Write it, as your instructor asked for it, between the quotes of "
    '`STUDENT = ""` at the top of the notebook, and run that cell.'
)

_unnamed: set[str] = set()  # exercises of a notebook with variants that does not know its student yet
_here: dict[str, str] = {}  # this kernel's variants by exercise, also where `my/` cannot be written


@dataclass(frozen=True)
class Variant:
    """One form of an exercise.

    parameter: what varies: "ring direction". name: its value: "to the left". says: the sentence that students read.
    make(exercise): the exercise in this form. as_asked(answer): the answer in the form that the lab's other cells
    expect; None where it is in that form already.
    """

    parameter: str
    name: str
    says: str
    make: Callable[[Exercise], Exercise]
    as_asked: Callable[[Answer], Answer] | None = None


@dataclass(frozen=True, kw_only=True)
class Narrowed:
    """Makes a variant that asks for more: the exercise's own judge first, then `judge`.

    mistakes: come before those of the exercise, which still fail; `without` names those of them that do not fit.
    hints: in place of the exercise's; () keeps them.
    """

    reference: Answer
    also_right: tuple[Answer, ...]
    judge: Judge
    mistakes: tuple[Mistake, ...]
    without: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    equivalent_mutants: tuple[str, ...] | None = None

    def __call__(self, exercise: Exercise) -> Exercise:
        kept = tuple(one for one in exercise.mistakes if one.name not in self.without)
        alike = exercise.equivalent_mutants if self.equivalent_mutants is None else self.equivalent_mutants
        return replace(
            exercise,
            reference=self.reference,
            also_right=self.also_right,
            judge=all_of(exercise.judge, self.judge),
            mistakes=(*self.mistakes, *kept),
            hints=self.hints or exercise.hints,
            equivalent_mutants=alike,
        )


def same_name(student: str) -> str:
    """A student's name in the one spelling in which names are compared: case, white space and accents' coding fold."""
    return " ".join(unicodedata.normalize("NFKC", student).casefold().split())


def choose(key: str, student: str, id: str) -> Variant | None:
    """The variant of exercise `id` that this student has under this key; None when it has none."""
    among = registry.variants(id)
    if not among:
        return None
    said = f"{among[0].parameter}\0{same_name(student)}".encode()
    return among[int.from_bytes(hmac.digest(key.encode(), said, "sha256")) % len(among)]


@lru_cache
def varied(exercise: Exercise, name: str) -> Exercise:
    """The exercise in the variant of that name, its sentence in the task; "" is the exercise itself."""
    if not name:
        return exercise
    variant = _named(exercise.id, name)
    made = variant.make(exercise)
    return replace(made, asks=f"{made.asks} In your variant: {variant.says}")


def _named(id: str, name: str) -> Variant:
    there = registry.variants(id)
    for one in there:
        if one.name == name:
            return one
    listed = ", ".join(repr(one.name) for one in there) or "none"
    raise registry.Unknown(f"Exercise {id} has no variant {name!r}. There are: {listed}.")


def use_variants(student: str, key: str, lab: str) -> Card:
    """Say who you are in a notebook with variants: from here on `check` and `hint` are about yours. Kept in `my/`."""
    forms = {one.id: registry.variants(one.id) for one in registry.all() if one.lab == lab}
    if not isinstance(student, str) or not same_name(student):
        _unnamed.update(id for id, among in forms.items() if among)
        return Card("Your variants", "who are you?", "open", (Row("Next", NAME_FIRST),))
    own = {id: choose(key, student, id) for id, among in forms.items() if among}
    _here.update({id: one.name for id, one in own.items()})
    _unnamed.difference_update(own)
    with keep.change() as record:
        kept = record.get("variants")
        record["variants"] = {**(kept if isinstance(kept, dict) else {}), **_here}
    rows = {one.parameter: Row(one.parameter.capitalize(), one.says) for one in own.values()}
    return Card(f"Your variants, {student.strip()}", "chosen by your name", "note", tuple(rows.values()))


def undecided(id: str) -> str:
    """What to do first where a notebook with variants does not know its student yet; "" otherwise."""
    return NAME_FIRST if id in _unnamed and not chosen(id) else ""


def chosen(id: str) -> str:
    """The name of the student's variant of an exercise; "" without one."""
    if id in _here:
        return _here[id]
    kept = keep.read().get("variants")
    name = kept.get(id, "") if isinstance(kept, dict) else ""
    return name if name in {one.name for one in registry.variants(id)} else ""


def variant(id: str) -> Card:
    """What is different in your form of an exercise: `variant("04.2")`."""
    name = chosen(id)
    if name:
        return Card(f"Your variant of {id}", name, "note", (Row("In yours", _named(id, name).says),))
    if registry.variants(id):
        _unnamed.add(id)
    text = NAME_FIRST if registry.variants(id) else "There is one form of it."
    return Card(f"Your variant of {id}", "", "open", (Row("Next", text),))


def in_variant(exercise: Exercise) -> Exercise:
    """The exercise as this student has it."""
    return varied(exercise, chosen(exercise.id)) if registry.variants(exercise.id) else exercise


def passed_in(id: str) -> str:
    """The name of the variant that the student's function passed in; "" where it was the exercise itself."""
    name = keep.entry(keep.read(), id).get("variant") or ""
    return name if name in {one.name for one in registry.variants(id)} else ""


def as_asked(id: str, name: str, answer: Answer) -> Answer:
    """An answer to the variant `name`, in the form that the lab's other cells expect."""
    turn = _named(id, name).as_asked if name else None
    return answer if turn is None else turn(answer)
