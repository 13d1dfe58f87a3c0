"""All exercises and questions, found in the modules `labNN*.py` of this room.

Floor 4, room `exercises`. A lab's module has `EXERCISES` and may have `QUESTIONS`; nothing else registers them.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from functools import cache
from types import ModuleType
from typing import Any

import lockstep.exercises
from lockstep.exercises.exercise import Exercise
from lockstep.exercises.questions import Question


class Unknown(LookupError):
    """There is no exercise or question of that id; the message lists what there is."""


@cache
def _labs(number: str = "") -> tuple[ModuleType, ...]:
    """The modules of lab "05", or of all. Of one lab no other is imported, so that none that is broken stops it."""
    names = sorted(module.name for module in pkgutil.iter_modules(lockstep.exercises.__path__))
    wanted = [name for name in names if re.match(r"lab\d\d", name) and name[3:].startswith(number)]
    return tuple(importlib.import_module(f"lockstep.exercises.{name}") for name in wanted)


def all() -> list[Exercise]:
    """Every exercise, in order of its id: 00.1, 00.2, 01.1."""
    return _in_order(_labs())


def of_lab(number: str) -> list[Exercise]:
    """The exercises of lab "05", in order; none where there is no such lab. Imports no other."""
    return _in_order(_labs(number)) if re.fullmatch(r"\d\d", number) else []


def _in_order(labs: tuple[ModuleType, ...]) -> list[Exercise]:
    return sorted((one for lab in labs for one in lab.EXERCISES), key=lambda e: (e.lab, int(e.id[3:])))


def questions() -> list[Question]:
    """Every question of every lab, in the order in which the labs ask them."""
    return [one for lab in _labs() for one in getattr(lab, "QUESTIONS", ())]


def find(id: str | Exercise) -> Exercise:
    """The exercise of that id, or the value itself; raises `Unknown` with the ids of its lab."""
    if isinstance(id, Exercise):
        return id
    near = of_lab(id[:2]) if isinstance(id, str) else []
    return next((one for one in near if one.id == id), None) or _one_of(all(), id, "exercise")


def question(id: str | Question) -> Question:
    """The question of that id, or the value itself; raises `Unknown` with the ids of its lab."""
    return id if isinstance(id, Question) else _one_of(questions(), id, "question")


def words(prediction: str) -> tuple[str, ...]:
    """The words of which a prediction asks for one (a lab's `WORDS`); none where it asks for a number."""
    return next((lab.WORDS[prediction] for lab in _labs() if prediction in getattr(lab, "WORDS", {})), ())


def variants(id: str) -> tuple[Any, ...]:
    """The variants of an exercise (a lab's `VARIANTS`), in the order of the choice; none where it has one form only."""
    return next((lab.VARIANTS[id] for lab in _labs(id[:2]) if id in getattr(lab, "VARIANTS", {})), ())


def _one_of(values: list, id: str, what: str):
    for one in values:
        if one.id == id:
            return one
    near = [one.id for one in values if isinstance(id, str) and one.id[:2] == id[:2]] or [one.id for one in values]
    raise Unknown(f"There is no {what} {id!r}. There are: {', '.join(near) or 'none'}.")
