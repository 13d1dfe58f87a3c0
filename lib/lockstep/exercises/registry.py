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
def _labs() -> tuple[ModuleType, ...]:
    names = sorted(module.name for module in pkgutil.iter_modules(lockstep.exercises.__path__))
    return tuple(
        importlib.import_module(f"lockstep.exercises.{name}") for name in names if re.fullmatch(r"lab\d\d.*", name)
    )


def all() -> list[Exercise]:
    """Every exercise, in order of its id: 00.1, 00.2, 01.1."""
    return sorted((one for lab in _labs() for one in lab.EXERCISES), key=lambda e: (e.lab, int(e.id[3:])))


def questions() -> list[Question]:
    """Every question of every lab, in the order in which the labs ask them."""
    return [one for lab in _labs() for one in getattr(lab, "QUESTIONS", ())]


def find(id: str | Exercise) -> Exercise:
    """The exercise of that id, or the value itself; raises `Unknown` with the ids of its lab."""
    return id if isinstance(id, Exercise) else _one_of(all(), id, "exercise")


def question(id: str | Question) -> Question:
    """The question of that id, or the value itself; raises `Unknown` with the ids of its lab."""
    return id if isinstance(id, Question) else _one_of(questions(), id, "question")


def words(prediction: str) -> tuple[str, ...]:
    """The words of which a prediction asks for one (a lab's `WORDS`); none where it asks for a number."""
    return next((lab.WORDS[prediction] for lab in _labs() if prediction in getattr(lab, "WORDS", {})), ())


def variants(id: str) -> tuple[Any, ...]:
    """The variants of an exercise (a lab's `VARIANTS`), in the order of the choice; none where it has one form only."""
    return next((lab.VARIANTS[id] for lab in _labs() if id in getattr(lab, "VARIANTS", {})), ())


def _one_of(values: list, id: str, what: str):
    for one in values:
        if one.id == id:
            return one
    near = [one.id for one in values if isinstance(id, str) and one.id[:2] == id[:2]] or [one.id for one in values]
    raise Unknown(f"There is no {what} {id!r}. There are: {', '.join(near) or 'none'}.")
