"""The library's function of an exercise as text, for submissions that ask `mine` for one they have not passed.

Floor 4, room `course`.
"""

from __future__ import annotations

from functools import cache

from lockstep.exercises.registry import Unknown, find
from lockstep.exercises.standalone import standalone


@cache
def lent(id: str) -> tuple[str, str] | None:
    """Text that defines it, and its name; None for an exercise that is not the course's."""
    try:
        reference = find(id).reference
        return standalone(reference), reference.__name__
    except (Unknown, OSError, TypeError, SyntaxError):
        return None
