"""A pack: an instructor's own exercises, and own cases for the course's, in a private folder.

Floor 4, room `course`; `exercise.py` of the room `exercises` says what an exercise is. Every Python file of the folder
may have::

    EXERCISES = (Exercise(id="05.21", ...), ...)     # asked at the end of lab 05, checked only when graded
    CASES = {"05.2": cases, ...}                     # `cases(rng)`, drawn after the exercise's own

The files are one package, so they may import each other (`from .shapes import draw`). The pack is never part of what
students get, but for the task and the stub of its exercises.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import numpy as np

from lockstep.exercises.assess import assess
from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.registry import of_lab
from lockstep.exercises.trial import observe_here


@dataclass(frozen=True)
class LoadedPack:
    """The exercises of a pack by id, and the cases it adds."""

    exercises: Mapping[str, Exercise]
    cases: Mapping[str, Callable[[np.random.Generator], Iterable[Case]]]

    def with_cases(self, exercise: Exercise) -> Exercise:
        """The exercise with the pack's cases after its own."""
        more = self.cases.get(exercise.id)
        return exercise if more is None else replace(exercise, cases=_Both(exercise.cases, more))


@dataclass(frozen=True)
class _Both:
    first: Callable[[np.random.Generator], Iterable[Case]]
    then: Callable[[np.random.Generator], Iterable[Case]]

    def __call__(self, rng: np.random.Generator) -> Iterable[Case]:
        yield from self.first(rng)
        yield from self.then(rng)


def digest(folder: Path) -> str:
    """SHA-256 over the names and bytes of the pack's files; raises ValueError when there is no such folder."""
    if not folder.is_dir():
        raise ValueError(f"there is no pack {folder}: --pack names a folder with Python files")
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            content = path.read_bytes()
            total.update(f"{path.relative_to(folder).as_posix()}\0{len(content)}\0".encode() + content)
    return total.hexdigest()


def load(folder: Path) -> LoadedPack:
    """The pack in a folder. Raises ValueError, naming the file, when one cannot be loaded or an id is not free."""
    return _loaded(folder.resolve(), digest(folder))


@cache
def _loaded(folder: Path, sha256: str) -> LoadedPack:
    exercises: dict[str, Exercise] = {}
    cases: dict[str, Any] = {}
    for module in _modules(folder, f"lockstep_pack_{sha256[:12]}"):
        file = Path(str(module.__file__)).name
        for one in getattr(module, "EXERCISES", ()):
            if not isinstance(one, Exercise):
                raise ValueError(f"{file}: EXERCISES holds {one!r:.60}, which is no Exercise")
            if _is_of_the_course(one.id) or one.id in exercises:
                raise ValueError(f"{file}: the id {one.id} is taken; a pack's exercises have ids of their own")
            exercises[one.id] = one
        for id, more in getattr(module, "CASES", {}).items():
            if not _is_of_the_course(id):
                raise ValueError(f"{file}: CASES has cases for {id}, which is no exercise of the course")
            if not callable(more) or id in cases:
                raise ValueError(f"{file}: CASES[{id!r}] must be one function `cases(rng)`")
            cases[id] = more
    if not exercises and not cases:
        raise ValueError(f"the pack {folder} holds neither EXERCISES nor CASES")
    return LoadedPack(exercises, cases)


def _is_of_the_course(id: str) -> bool:
    return any(one.id == id for one in of_lab(id[:2]))


def _modules(folder: Path, name: str) -> list[ModuleType]:
    """The folder's files as modules of one package, so that what is in them can be sent to another process by value."""
    package = ModuleType(name)
    package.__path__ = [str(folder)]
    sys.modules[name] = package
    modules = []
    for file in sorted(folder.glob("*.py")):
        try:
            modules.append(importlib.import_module(f"{name}.{file.stem}"))
        except Exception as error:
            raise ValueError(f"{file.name} of the pack cannot be loaded: {type(error).__name__}: {error}") from error
    cloudpickle.register_pickle_by_value(package)
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    return modules


def faults(exercise: Exercise, seed: int = 0) -> list[str]:
    """What a pack's exercise must not be released with, a sentence each: its own answers fail, or a mistake passes."""
    cases = exercise.draw(seed)
    expected = observe_here(exercise, exercise.reference, cases)

    def verdict(fn: Callable[..., Any]) -> Any:
        return assess(exercise, cases, observe_here(exercise, fn, cases), expected, lambda mistake: expected)

    said = []
    for fn in (exercise.reference, *exercise.also_right):
        found = verdict(fn)
        if not found.passed:
            said.append(f"{exercise.id}: the right answer `{fn.__name__}` does not pass: {found.seen}")
    said += [
        f"{exercise.id}: the mistake {one.name!r} passes" for one in exercise.mistakes if verdict(one.function).passed
    ]
    if verdict(exercise.stub).status != "not attempted":
        said.append(f"{exercise.id}: the stub must raise NotImplementedError and do nothing else")
    return said
