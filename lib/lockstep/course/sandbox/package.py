"""A copy of the library without answers: what a box imports.

Floor 4, room `course`. Of the exercises it has the plain data, the observers and what refuses; of the course the files
that run in the box. No exercise, no solution, nothing that draws cases or judges.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import lockstep

HOME = Path(lockstep.__file__).resolve().parent
LEFT_OUT = ("exercises", "course", "viz", "train", "__pycache__")
KEPT = ("exercises/plain.py", "exercises/observe.py", "exercises/forbidden.py", "course/sandbox/wire.py")
INSIDE = "course/sandbox/inside"
EMPTY = "from lockstep.course.sandbox.inside.absent import nothing as __getattr__\n"


def copy_package(place: Path) -> Path:
    """Write the copy below `place`; gives the folder to put on the import path."""
    target = place / "lib" / "lockstep"
    shutil.copytree(HOME, target, ignore=_left_out)
    shutil.copytree(HOME / INSIDE, target / INSIDE, ignore=shutil.ignore_patterns("__pycache__"))
    for name in KEPT:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(HOME / name, target / name)
    (target / "exercises/__init__.py").write_text(EMPTY)
    for empty in ("course", "course/sandbox"):
        (target / empty / "__init__.py").write_text("")
    return place / "lib"


def _left_out(folder: str, names: list[str]) -> set[str]:
    """Whole rooms at the top; compiled files, which hold what their sources hold, everywhere."""
    top = Path(folder) == HOME
    return {name for name in names if name == "__pycache__" or (top and name in LEFT_OUT)}
