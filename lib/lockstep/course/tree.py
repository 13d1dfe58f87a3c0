"""Where the course's files are: the clone that this package was installed from.

Floor 4, room `course`. The commands work on a clone (labs, sources, tests); the package alone has none of them.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


class NoClone(RuntimeError):
    """The package is installed without its clone."""


@dataclass(frozen=True)
class Tree:
    """A clone of the course, by its top folder."""

    root: Path

    @property
    def labs(self) -> Path:
        return self.root / "labs"

    @property
    def solutions(self) -> Path:
        return self.root / "solutions"

    @property
    def runs(self) -> Path:
        """Notebooks as `run` executed them; not kept by git."""
        return self.root / "runs"

    @cached_property
    def project(self) -> dict:
        """The `[project]` table of pyproject.toml."""
        return tomllib.loads((self.root / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    def sources(self) -> list[Path]:
        """The source of every lab, in the order of their numbers."""
        return sorted(self.solutions.glob("[0-9][0-9]_*.py"))

    def find(self, lab: str) -> Path:
        """The source of the lab "04", "4" or "04_collectives"; raises ValueError with the labs that there are."""
        wanted = lab.zfill(2) if lab.isdigit() else lab
        for source in self.sources():
            if wanted in (source.stem, source.stem[:2]):
                return source
        there = ", ".join(source.stem for source in self.sources()) or "none yet"
        raise ValueError(f"there is no lab {lab!r}; there are: {there}")


def here() -> Tree:
    """The clone around this package; raises NoClone when there is none."""
    root = Path(__file__).resolve().parents[3]
    if not (root / "solutions").is_dir() or not (root / "pyproject.toml").is_file():
        raise NoClone("this command works on a clone of the course, and the package was installed without one")
    return Tree(root)
