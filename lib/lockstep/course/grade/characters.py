"""Text from students made fit for any file: half a character can be in a Python string, and can be written nowhere.

Floor 4, room `course`. Used wherever such text comes in: names of files, notebooks, what a student's process says.
"""

from __future__ import annotations

import ast
from typing import Any

LONGEST = 20_000  # characters of one value that are kept


def writable(text: str) -> str:
    r"""The text with each lone surrogate spelled out: `\ud800`, or `\udcff` for a byte of a name that is not UTF-8.

    Spelled out and not left out, so that two names stay two, and a literal in a program keeps its value.
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


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
