"""A kernel as its author wrote it: its syntax tree, its lines, and what its names mean.

Floor 0, read first. Line numbers are those of the file or notebook cell.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType

from lockstep.simt.errors import Unsupported


@dataclass(frozen=True, eq=False)
class Source:
    """`tree` is the function's definition; `lines` maps a line's number to its text."""

    function: Callable
    tree: ast.FunctionDef
    lines: dict[int, str]

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(argument.arg for argument in self.tree.args.args)

    def meaning(self, name: str, line: int) -> object:
        """What a name that the kernel does not assign stands for; Unsupported where it is not defined."""
        code = self.function.__code__
        if name in code.co_freevars:
            cell = self.function.__closure__[code.co_freevars.index(name)]
            try:
                return cell.cell_contents
            except ValueError:
                raise Unsupported(f"{name} is used before it is defined", line) from None
        if name in self.function.__globals__:
            return self.function.__globals__[name]
        if hasattr(builtins, name):
            return getattr(builtins, name)
        raise Unsupported(f"{name} is not defined", line)


# The text of functions that came by value from another process, where their file or cell is not known.
_received: dict[CodeType, tuple[list[str], int]] = {}


def text_of(function: Callable) -> tuple[list[str], int] | None:
    """(a function's lines, the number of the first), to be sent along with it; None where they are not at hand."""
    try:
        return _received.get(function.__code__) or inspect.getsourcelines(function)
    except (OSError, TypeError):
        return None


def texts_of(function: Callable) -> dict[CodeType, tuple[list[str], int]]:
    """The texts of a function and of the device functions that it names, Numba's too, which leave theirs behind."""
    found: dict[CodeType, tuple[list[str], int]] = {}
    following = [function]
    while following:
        one = following.pop()
        text = text_of(one)
        if one.__code__ not in found and text is not None:
            found[one.__code__] = text
            named = inspect.getclosurevars(one)
            values = [*named.globals.values(), *named.nonlocals.values()]
            following += [value.py_func for value in values if inspect.isfunction(getattr(value, "py_func", None))]
    return found


def quoted(function: Callable, lines: tuple[int, ...]) -> tuple[tuple[int, str], ...]:
    """(line, its text) for those `lines` of a kernel or its device functions that only one of them can mean.

    Lines count within a notebook cell, so two functions may have the same.
    """
    found = []
    for line in sorted(set(lines)):
        texts = [text[line - first] for text, first in texts_of(function).values() if 0 <= line - first < len(text)]
        found += [(line, texts[0].strip())] if len(texts) == 1 else []
    return tuple(found)


def receive(texts: dict[CodeType, tuple[list[str], int]]) -> None:
    """Keep texts that were sent along with a function."""
    _received.update(texts)


def read(function: Callable) -> Source:
    """Parse `function`; Unsupported where its text is not at hand or it is no plain function."""
    if not inspect.isfunction(function):
        raise Unsupported(f"a kernel is a plain function, not {function!r}")
    try:
        text, first = text_of(function)
        tree = ast.parse(textwrap.dedent("".join(text)))
    except (OSError, SyntaxError, TypeError):
        raise Unsupported(
            f"the source of {function.__name__} is not at hand: define it with `def` in a file or a notebook cell"
        ) from None
    ast.increment_lineno(tree, first - 1)
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        raise Unsupported(f"{function.__name__} is a lambda or async: define it with `def`", first)
    _plain_parameters(definition)
    lines = {first + offset: line.rstrip("\n") for offset, line in enumerate(text)}
    return Source(function, definition, lines)


def _plain_parameters(definition: ast.FunctionDef) -> None:
    arguments = definition.args
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.posonlyargs or arguments.defaults:
        raise Unsupported(
            f"{definition.name} takes plain parameters only: no defaults, no *args, no keywords", definition.lineno
        )
