"""Who a notebook says that its student is; variants are chosen by it.

Floor 4, room `course`. The cell of a bundle with variants begins `STUDENT = "..."`; it is read here as text, never run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from lockstep.course.release.toml import Release
from lockstep.exercises.variants import same_name

NAME = "STUDENT"


def stated_student(statements: Iterable[str]) -> str | None:
    """The last text given to STUDENT among top-level statements; None when there is none, or only an empty one."""
    stated = None
    for text in statements:
        try:
            body = ast.parse(text).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        for node in body:
            names = (
                [one.id for one in node.targets if isinstance(one, ast.Name)] if isinstance(node, ast.Assign) else []
            )
            if NAME in names and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                stated = node.value.value if same_name(node.value.value) else None
    return stated


def mismatch(release: Release, lab: str, student: str, stated: str | None) -> str:
    """A sentence for a person when a notebook's name is not the one it was handed in by; "" when all is well.

    It is never scored: an LMS may call students otherwise than they call themselves.
    """
    if not release.has_variants or not any(one.variants for one in release.listed(lab)):
        return ""
    if stated is None:
        return f"the notebook of {student} does not say whose it is (`{NAME}`); the variant of {student} was taken"
    if same_name(stated) == same_name(student):
        return ""
    differ = [
        one.id for one in release.listed(lab) if release.variant(one.id, stated) != release.variant(one.id, student)
    ]
    which = f"they have different variants of {', '.join(differ)}" if differ else "their variants are the same"
    return f"handed in by {student}, but the notebook says {stated!r}: {which}"
