"""A reference as text that runs by itself in a notebook: with its imports, and with what else of its file it uses.

Floor 4, room `exercises`.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from lockstep.exercises.source import source_of

_ROOM = "lockstep.exercises"


def standalone(reference: Callable[..., Any]) -> str:
    """The source of `reference` below the imports, numbers and functions of its own file that it needs."""
    imports: dict[str, str] = {}
    texts: dict[str, str] = {}
    _collect(reference, vars(sys.modules[reference.__module__]), imports, texts)
    heads = sorted(set(imports.values()), key=lambda line: (line.startswith("from"), line))
    numbers = [text for text in texts.values() if "\n" not in text]
    functions = [text for text in texts.values() if "\n" in text]
    parts = ["\n".join(heads), "\n".join(numbers), "\n\n".join(functions)]
    return "\n\n".join(part for part in parts if part)


def _collect(thing: Any, names: dict[str, Any], imports: dict[str, str], texts: dict[str, str]) -> None:
    """Add the text of `thing` after the texts of what it uses."""
    source = source_of(thing) or ""
    texts.setdefault(thing.__name__, "")  # a function may call itself
    for name in _names(source):
        if name in texts or name in imports or name not in names or hasattr(builtins, name):
            continue
        value = names[name]
        home = getattr(value, "__module__", None) or _found_in(names["__name__"], name) or _ROOM
        if isinstance(value, ModuleType):
            imports[name] = _import_of(value.__name__, name)
        elif not home.startswith(_ROOM):
            imports[name] = _from(home, getattr(value, "__name__", name), name)
        elif inspect.isfunction(value) or inspect.isclass(value):
            _collect(value, vars(sys.modules[home]), imports, texts)
        else:
            texts[name] = f"{name} = {value!r}"
    texts[thing.__name__] = texts.pop(thing.__name__) or source.strip() + "\n"


def _names(source: str) -> Iterator[str]:
    """Names that the text reads, in order."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id


def _found_in(module: str, name: str) -> str | None:
    """The module that the file of `module` imports `name` from; None where it makes it itself."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any((alias.asname or alias.name) == name for alias in node.names):
            return node.module
    return None


def _import_of(module: str, name: str) -> str:
    parent, _, last = module.rpartition(".")
    if module == name:
        return f"import {module}"
    return f"from {parent} import {last}" if last == name else f"import {module} as {name}"


def _from(module: str | None, name: str, known_as: str) -> str:
    return f"from {module} import {name}" + (f" as {known_as}" if known_as != name else "")
