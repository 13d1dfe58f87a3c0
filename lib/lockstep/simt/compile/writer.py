"""The Python text under construction: lines, names, constants.

Floor 0. Generated names cannot meet a student's: variables carry their kind as a suffix, the rest is upper case.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np

from lockstep.simt.run.batch import Site


class Writer:
    """Lines of one function, and the objects that they name (`namespace`, shared by a program's functions)."""

    def __init__(self, namespace: dict[str, object], sites: list[Site], part: int) -> None:
        self.namespace, self.sites, self.part = namespace, sites, part
        self.lines: list[str] = []
        self.depth = 1
        self.count = 0
        self.constants: dict[tuple, str] = {}

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    @contextlib.contextmanager
    def inside(self, head: str) -> Iterator[None]:
        """Lines within a block; an empty one becomes `pass`."""
        self.line(head)
        self.depth += 1
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.line("pass")
        self.depth -= 1

    def fresh(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def named(self, value: object, letter: str = "K") -> str:
        """A name for an object that the text needs."""
        name = f"{letter}{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def constant(self, value: object, kind: np.dtype) -> str:
        """A name for a NumPy scalar of `kind`."""
        scalar = kind.type(value)
        key = (kind, scalar.tobytes())
        if key not in self.constants:
            self.constants[key] = self.named(scalar)
        return self.constants[key]

    def key(self, line: int) -> str:
        """What counters know a line by: the function's number and the line's, since two cells have the same lines."""
        return f"({self.part}, {line})"

    def site(self, line: int, text: str = "") -> str:
        """A name for a place in the kernel's text."""
        found = Site(len(self.sites), line, text, (self.part, line))
        self.sites.append(found)
        return self.named(found, "S")
