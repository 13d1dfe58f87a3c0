"""The source of a function: is it still blank, and is it a different attempt than the one before?

Floor 4, room `exercises`. Works on notebook cells as on files; a function without source (a builtin,
one made by exec) is told apart by its bytecode.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable
from typing import Any


def source_of(fn: Callable[..., Any]) -> str | None:
    """The dedented source of a function or class, None when there is none to be found."""
    try:
        return textwrap.dedent(inspect.getsource(fn))
    except (OSError, TypeError, IndentationError, SyntaxError):
        return None


def is_blank(fn: Callable[..., Any], stub: Callable[..., Any]) -> bool:
    """True for a body without content (`pass`, `...`, a lone NotImplementedError) and for the stub as it was given."""
    body = _body(fn)
    if body is None:
        code = getattr(fn, "__code__", None)
        return code is not None and (code.co_code, code.co_names) == (_empty.__code__.co_code, ())
    return all(map(_says_nothing, body)) or body_text(body) == body_text(_body(stub) or [])


def _empty() -> None:
    pass


def _body(fn: Callable[..., Any]) -> list[ast.stmt] | None:
    """The statements of a function without its docstring; None without source, or when it is no plain `def`."""
    source = source_of(fn)
    try:
        tree = ast.parse(source) if source else None
    except SyntaxError:  # a lambda in the middle of an expression
        return None
    if tree is None or not tree.body or not isinstance(tree.body[0], (ast.FunctionDef, ast.ClassDef)):
        return None
    return _without_docstring(tree.body[0].body)


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0]
    has = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    return body[1:] if has else body


def _says_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return statement.value.value is Ellipsis
    if isinstance(statement, ast.Raise) and statement.exc is not None:
        raised = statement.exc.func if isinstance(statement.exc, ast.Call) else statement.exc
        return isinstance(raised, ast.Name) and raised.id == "NotImplementedError"
    return isinstance(statement, ast.Pass)


def body_text(body: list[ast.stmt]) -> str:
    """Statements in one spelling: comments, blank lines and quotes do not matter."""
    return "\n".join(map(ast.unparse, body))


def fingerprint(fn: Callable[..., Any]) -> str:
    """Equal for attempts that differ only in comments, layout, docstring or the function's name."""
    body = _body(fn)
    if body is not None:
        said = body_text(body)
    else:
        code = getattr(fn, "__code__", None)
        said = (
            repr((code.co_code, code.co_consts, code.co_names))
            if code
            else repr(type(fn)) + getattr(fn, "__name__", "")
        )
    return hashlib.sha256(said.encode()).hexdigest()[:16]
