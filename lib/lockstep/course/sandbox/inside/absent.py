"""Packages that a box does not have, and that a notebook imports beside what it defines.

Floor 4, room `course`. Figures, widgets and the exercises' own functions: their names can be imported, and what they
name does nothing. So the line that imports them takes nothing along.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from typing import Any

OUTSIDE = ("IPython", "ipywidgets", "matplotlib", "pandas", "sklearn", "mlxtend", "PIL", "tqdm")
OURS = ("lockstep.viz", "lockstep.train", "lockstep.course", "lockstep.exercises")


class Nothing:
    """Whatever is done with it gives itself."""

    def __call__(self, *_: Any, **__: Any) -> Nothing:
        return self

    def __getattr__(self, name: str) -> Nothing:
        if name.startswith("__"):
            raise AttributeError(name)
        return self


def nothing(name: str) -> Nothing:
    """The attribute of an absent module."""
    if name.startswith("__"):
        raise AttributeError(name)
    return Nothing()


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds absent packages before anybody looks for them on disk."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        if name in sys.modules or not any(name == one or name.startswith(one + ".") for one in (*OUTSIDE, *OURS)):
            return None
        if name.startswith(("lockstep.course.sandbox", "lockstep.exercises.")) and path:
            found = importlib.machinery.PathFinder.find_spec(name, path)
            if found is not None:
                return found
        if name in ("lockstep.course", "lockstep.exercises"):
            return importlib.machinery.PathFinder.find_spec(name, path)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        module.__getattr__ = nothing
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass
