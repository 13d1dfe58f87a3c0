"""The library as it was before the student's first line, put back before anything is observed.

Floor 4, room `course`. Hooks of a model, bytes held and times of a rank are read off by the library, with torch's help,
beside the student's code: a program that sets an attribute of them would choose what is seen. What a program does while
a case runs is not undone.
"""

from __future__ import annotations

import builtins
import gc
import sys
import threading
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

import torch

OURS = ("lockstep", "cloudpickle", "pickle")  # what is observed with, and what brings it here
# What of torch and Python it is read off with. Names that torch adds to itself later stay.
THEIRS = (
    "torch", "torch._tensor", "torch.storage", "torch.random", "torch.autograd", "torch.autograd.graph", "torch.autograd.function",
    "torch.nn", "torch.nn.parameter", "torch.nn.functional", "torch.nn.modules.module", "torch.nn.modules.linear",
    "torch.nn.modules.container", "torch.utils.hooks", "numpy", "weakref", "copy", "math", "time", "random",
)  # fmt: skip
# Bound here: when it comes to restoring, a program may have put others in their places.
UNWATCH = (sys.settrace, sys.setprofile, threading.settrace, threading.setprofile)
MODES = (
    (torch._C._len_torch_function_stack, torch._C._pop_torch_function_stack),
    (torch._C._len_torch_dispatch_stack, lambda: torch._C._pop_torch_dispatch_stack(None)),
)
PARTS = ("__code__", "__defaults__", "__kwdefaults__")  # of a function


def sealed() -> Unchanged:
    """One whose functions, globals and builtins no program finds by a name, and so cannot replace before `restore`."""
    space = {"__builtins__": dict(vars(builtins)), "__name__": f"{__name__} (sealed)"}
    exec(_CODE, space)
    return space["Unchanged"]()


class Unchanged:
    """Names of our modules and classes, and the code of our functions; `restore()` gives each its value again."""

    def __init__(self) -> None:
        self._modules = {name: one for name, one in sys.modules.items() if _is_watched(name)}
        spaces = [builtins, *self._modules.values()]
        self._names = [(one, dict(vars(one)), type(one)) for one in spaces if isinstance(one, ModuleType)]
        classes = {
            id(one): one
            for _, names, _ in self._names
            for one in names.values()
            if _is_ours(one) and isinstance(one, type)
        }
        self._classes = [(one, dict(vars(one)), one.__bases__) for one in classes.values()]
        values = [value for _, names, *_ in (*self._names, *self._classes) for value in names.values()]
        functions = {id(one): one for value in values for one in _functions(value) if _is_ours(one)}
        self._code = [(one, [getattr(one, part) for part in PARTS]) for one in functions.values()]

    def restore(self) -> None:
        """Put back what differs, take away what came, and let nobody watch what follows."""
        for watch in UNWATCH:
            watch(None)
        gc.callbacks.clear()
        for depth, leave in MODES:  # of torch: a program's own would stand between it and the library
            while depth():
                leave()
        sys.modules.update(self._modules)
        for function, parts in self._code:
            for name, value in zip(PARTS, parts, strict=True):
                if getattr(function, name) is not value:
                    setattr(function, name, value)
        for module, names, kind in self._names:
            if type(module) is not kind:
                object.__setattr__(module, "__class__", kind)
            added = [name for name, value in vars(module).items() if name not in names and not _is_module(value)]
            added = [] if module.__name__ in THEIRS else added
            for name in added:
                del vars(module)[name]
            vars(module).update(names)
        for owner, names, bases in self._classes:
            if owner.__bases__ != bases:
                owner.__bases__ = bases
            self._restore_class(owner, names)

    def _restore_class(self, owner: type, names: dict[str, Any]) -> None:
        now = dict(vars(owner))
        changed = [name for name, value in names.items() if now.get(name) is not value]
        for name in (*(now.keys() - names.keys()), *changed):
            try:
                if name in names:
                    type.__setattr__(owner, name, names[name])
                else:
                    type.__delattr__(owner, name)
            except (AttributeError, TypeError):  # an attribute that Python itself sets, and nobody can
                pass


def _is_watched(module: str) -> bool:
    return module.split(".")[0] in OURS or module in THEIRS


def _is_ours(thing: Any) -> bool:
    home = getattr(thing, "__module__", None)
    ours = isinstance(home, str) and _is_watched(home)
    return ours and isinstance(thing, (type, FunctionType))


def _is_module(value: Any) -> bool:
    return isinstance(value, ModuleType)


def _functions(value: Any) -> Iterator[FunctionType]:
    inside = (getattr(value, name, None) for name in ("__func__", "fget", "fset", "__wrapped__", "func"))
    yield from (one for one in (value, *inside) if isinstance(one, FunctionType))


if __name__ == "lockstep.course.sandbox.inside.unchanged":
    _CODE = __spec__.loader.get_code(__name__)
