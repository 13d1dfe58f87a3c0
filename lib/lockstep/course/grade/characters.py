"""Text from students made fit for any file: half a character can be in a Python string, and can be written nowhere.

Floor 4, room `course`. Used wherever such text comes in: names of files, notebooks, what a student's process says.
"""

from __future__ import annotations

import ast
import re
from typing import Any

LONGEST = 20_000  # characters of one value that are kept


def writable(text: str) -> str:
    r"""The text with each lone surrogate spelled out: `\ud800`, or `\udcff` for a byte of a name that is not UTF-8.

    Spelled out and not left out, so that two names stay two, and a literal in a program keeps its value.
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    r"""The text with control characters spelled out, `\x1b`, and those that turn the direction of writing.

    A terminal obeys them: the name of a file could wipe out the line above it. Line ends and tabs stay.
    """
    return HIDDEN.sub(lambda one: one[0].encode("unicode_escape").decode(), text)


def as_text(value: Any) -> str:
    """A value as text; a sentence for one that Python does not print, such as a number of thousands of digits."""
    try:
        return writable(str(value))[:LONGEST]
    except (ValueError, RecursionError, MemoryError):
        return f"(a value of type {type(value).__name__} that is too large to be shown)"


def unparsed(node: ast.AST) -> str:
    """`ast.unparse`, and "" for what Python reads and cannot write: thousands of digits or of brackets."""
    try:
        return writable(ast.unparse(node))
    except (ValueError, RecursionError, MemoryError):
        return ""
