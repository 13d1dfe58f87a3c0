"""The library as it was before the student's first line, put back before anything is observed.

Floor 4, room `course`. Counts of a launch, hooks of a model and times of a rank are read off by the library beside the
student's code: a program that sets an attribute of it would choose them. What a program does while a case runs is
not undone.
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

OURS = ("lockstep", "cloudpickle", "pickle")  # what is observed with, and what brings it here
PARTS = ("__code__", "__defaults__", "__kwdefaults__")  # of a function


class Unchanged:
    """Names of our modules and classes, and the code of our functions; `restore()` gives each its value again."""

    def __init__(self) -> None:
        self._modules = {name: one for name, one in sys.modules.items() if name.split(".")[0] in OURS}
        spaces = [builtins, *self._modules.values()]
        self._names = [(one, dict(vars(one))) for one in spaces if isinstance(one, types.ModuleType)]
        classes = {id(one): one for _, names in self._names for one in names.values() if _is_ours(one)}
        self._classes = [(one, dict(vars(one))) for one in classes.values()]
        values = [value for _, names in (*self._names, *self._classes) for value in names.values()]
        functions = {id(one): one for value in values for one in _functions(value) if _is_ours(one)}
        self._code = [(one, [getattr(one, part) for part in PARTS]) for one in functions.values()]

    def restore(self) -> None:
        """Put back what differs, take away what came, and let nobody watch what follows."""
        sys.settrace(None)
        sys.setprofile(None)
        threading.settrace(None)
        threading.setprofile(None)
        gc.callbacks.clear()
        sys.modules.update(self._modules)
        for function, parts in self._code:
            for name, value in zip(PARTS, parts, strict=True):
                if getattr(function, name) is not value:
                    setattr(function, name, value)
        for module, names in self._names:
            added = [name for name, value in vars(module).items() if name not in names and not _is_module(value)]
            for name in added:
                del vars(module)[name]
            vars(module).update(names)
        for owner, names in self._classes:
            self._restore_class(owner, names)

    def _restore_class(self, owner: type, names: dict[str, Any]) -> None:
        now = dict(vars(owner))
        with contextlib.suppress(AttributeError, TypeError):  # an attribute that Python itself sets, and nobody can
            for name in now.keys() - names.keys():
                type.__delattr__(owner, name)
            for name, value in names.items():
                if now.get(name) is not value:
                    type.__setattr__(owner, name, value)


def _is_ours(thing: Any) -> bool:
    home = getattr(thing, "__module__", None)
    ours = isinstance(home, str) and home.split(".")[0] in OURS
    return ours and isinstance(thing, (type, types.FunctionType))


def _is_module(value: Any) -> bool:
    return isinstance(value, types.ModuleType)


def _functions(value: Any) -> Iterator[types.FunctionType]:
    inside = (getattr(value, name, None) for name in ("__func__", "fget", "fset", "__wrapped__", "func"))
    yield from (one for one in (value, *inside) if isinstance(one, types.FunctionType))
