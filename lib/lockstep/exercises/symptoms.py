"""Symptoms of a mistake that many students share: the words of an error, or a deadlock.

Floor 4, room `exercises`. See `Mistake.symptom`; labs have more of their own.
"""

from __future__ import annotations

import re

from lockstep.exercises.exercise import Case, Symptom
from lockstep.exercises.observe import Observation


def says(*words: str) -> Symptom:
    """An error whose message holds all of the words."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        return seen.error is not None and all(word in seen.error.message for word in words)

    return symptom


def raises(type: str, *words: str) -> Symptom:
    """An error of this type whose message holds all of the words."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        return says(*words)(case, seen, expected) and seen.error.type == type

    return symptom


def matches(pattern: str) -> Symptom:
    """An error whose message holds this regular expression."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        return seen.error is not None and re.search(pattern, seen.error.message) is not None

    return symptom


def is_deadlock(case: Case, seen: Observation, expected: Observation) -> bool:
    """Some rank waits for ever."""
    return seen.error is not None and seen.error.type == "Deadlock"
