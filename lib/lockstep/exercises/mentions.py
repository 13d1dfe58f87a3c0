"""What an exercise may not call, found in the source of a function before it runs.

Floor 4, room `exercises`; read `forbidden` first, which says how names are written.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from lockstep.exercises.forbidden import resolve


def find_in_source(fn: Callable[..., Any], names: Sequence[str]) -> tuple[str, int] | None:
    """The first forbidden name that the source of `fn` mentions, and its line; None if none does or no source is found.

    Every mention counts, called or not, since `f = comm.all_reduce` is how a call is passed on.
    """
    try:
        tree, first = ast.parse(textwrap.dedent(inspect.getsource(fn))), _first_line(fn)
        forbidden = {id(resolve(name)): name for name in names if not name.startswith("comm.")}
    except (OSError, TypeError, SyntaxError):
        return None
    known = inspect.getclosurevars(fn) if inspect.isfunction(fn) else None
    scope = {} if known is None else {**known.globals, **known.nonlocals}
    comm = _first_parameter(tree)
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Attribute, ast.Name)):
            continue
        name = _mentioned(node, names, comm) or forbidden.get(id(_lookup(node, scope)))
        if name:
            return name, node.lineno + first - 1
    return None


def _first_line(fn: Callable[..., Any]) -> int:
    """The line, in its file or cell, of the source that `inspect.getsource(fn)` gives."""
    return max(1, inspect.getsourcelines(fn)[1])


def _first_parameter(tree: ast.Module) -> str | None:
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    parameters = functions[0].args.posonlyargs + functions[0].args.args if functions else []
    return parameters[0].arg if parameters else None


def _mentioned(node: ast.AST, names: Sequence[str], comm: str | None) -> str | None:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == comm:
        return f"comm.{node.attr}" if f"comm.{node.attr}" in names else None
    return None


_NOTHING = object()


def _lookup(node: ast.AST, scope: dict[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return scope.get(node.id, _NOTHING)
    if isinstance(node, ast.Attribute):
        owner = _lookup(node.value, scope)
        return _NOTHING if owner is _NOTHING else getattr(owner, node.attr, _NOTHING)
    return _NOTHING
