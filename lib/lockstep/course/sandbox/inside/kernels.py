"""A kernel taken out of the program that made it, and made again where nothing else of that program has run.

Floor 4, room `course`. A launch is counted by the library beside the kernel. What the compiler reads of a kernel is its
text, and what the names in it stand for: that is all that is carried over. Decorators, defaults and annotations are
Python's own to run, and are left behind; of what is left the compiler knows a few dozen things, and runs no other.

Legend: a kernel as plain data is a list of functions, the kernel first; each is [text, file, line, is it a device
function, names], and `names` gives each name outside it a pair: what it is, and which.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import math
import re
import textwrap
import types
from typing import Any

import numpy as np

from lockstep.exercises.plain import plain
from lockstep.simt import cuda, rules
from lockstep.simt.compile.names import BUILTINS, CUDA_MODULES
from lockstep.simt.compile.source import Source, read, receive, text_of
from lockstep.simt.errors import Unsupported
from lockstep.simt.kernel import Kernel

MOST = 50  # functions of one kernel
CELL = re.compile(r"<cell \d{1,6}>")


def described(kernel: Any) -> list[Any] | None:
    """The kernel as plain data; None for what is none, and for one whose text is not at hand."""
    functions: list[tuple[Any, bool]] = [(getattr(kernel, "py_func", None), bool(getattr(kernel, "is_device", False)))]
    found = []
    for function, is_device in functions:
        try:
            source = read(function)
        except Unsupported:
            return None
        lines, first = text_of(function)
        names = {}
        for name in sorted(_outside(source)):
            value = _meaning(source, name)
            if inspect.isfunction(getattr(value, "py_func", None)):
                one = value.py_func, bool(getattr(value, "is_device", False))
                functions += [] if one in functions else [one]
                names[name] = ["kernel", functions.index(one)]
            else:
                names[name] = _as_data(value)
        found.append(["".join(lines), function.__code__.co_filename, first, is_device, names])
        if len(functions) > MOST:
            return None
    return found


def _outside(source: Source) -> set[str]:
    """The names in a function's body that it does not give a value to."""
    used = [node for part in source.tree.body for node in ast.walk(part) if isinstance(node, ast.Name)]
    own = {node.id for node in used if isinstance(node.ctx, ast.Store)} | set(source.parameters)
    return {node.id for node in used} - own


def _meaning(source: Source, name: str) -> Any:
    try:
        return source.meaning(name, 0)
    except Unsupported:
        return _MISSING


_MISSING = object()


def _as_data(value: Any) -> list[Any]:
    """What a name stands for: a number, something that the compiler knows, or only of which kind it is."""
    if value is _MISSING:
        return ["missing", ""]
    if isinstance(value, (int, float, np.generic, np.ndarray, tuple, type(None))):
        return ["value", plain(_exactly(value))]
    if isinstance(value, types.ModuleType):
        return ["module", "lockstep.simt.cuda" if value is cuda else value.__name__]
    if isinstance(getattr(value, "lockstep_path", None), str):
        return ["cuda", value.lockstep_path]
    if any(value is getattr(builtins, name) for name in (*BUILTINS, "print")):
        return ["builtin", value.__name__]
    if getattr(value, "__module__", None) == "math":
        return ["math", value.__name__]
    try:
        return ["type", str(rules.scalar(value))]
    except (rules.TypeRefused, TypeError, ValueError):
        return [
            "class" if isinstance(value, type) else "function" if callable(value) else "object",
            type(value).__name__,
        ]


def _exactly(value: Any) -> Any:
    """A number of a class of its own, such as an IntEnum, as the number that it is; named tuples as tuples."""
    if isinstance(value, tuple):
        return tuple(map(_exactly, value))
    if isinstance(value, (bool, np.generic)):
        return value
    return next((kind(value) for kind in (int, float) if isinstance(value, kind)), value)


def remade(functions: list[Any]) -> Kernel:
    """The kernel again, from plain data; raises ValueError for what `described` would not have given."""
    made = [_made(*one[:4]) for one in functions]
    for kernel, (*_, names) in zip(made, functions, strict=True):
        space = kernel.py_func.__globals__
        space |= {name: _value(what, which, made) for name, (what, which) in names.items() if what != "missing"}
    return made[0]


def _made(text: str, file: str, first: int, is_device: bool) -> Kernel:
    definition = ast.parse(textwrap.dedent(text)).body[0]
    if not isinstance(definition, ast.FunctionDef):
        raise ValueError("a kernel is no function")
    plain_arguments = [ast.arg(one.arg) for one in (*definition.args.posonlyargs, *definition.args.args)]
    bare = ast.FunctionDef(
        definition.name, ast.arguments([], plain_arguments, None, [], [], None, []), definition.body, [],
        **({"type_params": []} if "type_params" in ast.FunctionDef._fields else {}),
    )  # fmt: skip
    module = ast.fix_missing_locations(ast.Module([ast.copy_location(bare, definition)], []))
    ast.increment_lineno(module, first - 1)
    space: dict[str, Any] = {}
    exec(compile(module, file if CELL.fullmatch(file) else "<cell 0>", "exec", dont_inherit=True), space)
    function = space[definition.name]
    receive({function.__code__: (text.splitlines(keepends=True), first)})
    return Kernel(function, is_device)


def _value(what: str, which: Any, made: list[Kernel]) -> Any:
    if what == "value":
        return _with_scalars(which)
    if what == "kernel":
        return made[which]
    if what == "module":
        known = {"numpy": np, "math": math, **dict.fromkeys(CUDA_MODULES, cuda)}
        return known.get(which) or types.ModuleType(str(which)[:100])
    if what == "cuda":
        return cuda._Inside(str(which))
    if what in ("builtin", "math"):
        return getattr(builtins if what == "builtin" else math, which)
    if what == "type":
        return np.dtype(which).type
    kind = type(str(which)[:100], (), {})
    return {"class": kind, "function": lambda: None}.get(what) or kind()


def _with_scalars(value: Any) -> Any:
    """Plain data again as numbers of NumPy, which travel as arrays without dimensions."""
    if isinstance(value, tuple):
        return tuple(map(_with_scalars, value))
    return value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value
