"""The source of a function: is it still blank, and is it a different attempt than the one before?

Floor 4, room `exercises`. Works on notebook cells as on files; a function without source (a builtin,
one made by exec) is told apart by its bytecode.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import linecache
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any


def source_of(fn: Callable[..., Any]) -> str | None:
    """The dedented source of a function or class, None when there is none to be found."""
    try:
        return textwrap.dedent(inspect.getsource(fn))
    except (OSError, TypeError, IndentationError, SyntaxError):
        return _class_source(fn) if inspect.isclass(fn) else None


def _class_source(cls: type) -> str | None:
    """That of a class of a notebook cell, which Python before 3.13 does not find: a method knows its file and line."""
    for method in filter(inspect.isfunction, vars(cls).values()):
        lines, line = linecache.getlines(method.__code__.co_filename), method.__code__.co_firstlineno
        try:
            nodes = list(ast.walk(ast.parse("".join(lines))))
        except SyntaxError:  # a magic in the same cell
            continue
        for node in nodes:
            if isinstance(node, ast.ClassDef) and node.name == cls.__name__ and node.lineno <= line <= node.end_lineno:
                return textwrap.dedent("".join(lines[_first_line(node) - 1 : node.end_lineno]))
    return None


def _first_line(node: ast.FunctionDef | ast.ClassDef) -> int:
    """Where a definition begins, its decorators included."""
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def at_home(fn: Callable[..., Any], file: Path) -> Callable[..., Any]:
    """`fn`, read back from a pickle that forgot its file, with the lines of `file`, so that a report can show them."""
    try:
        (tree,) = ast.parse(file.read_text(encoding="utf-8")).body
    except (OSError, ValueError, SyntaxError):
        return fn
    methods = vars(fn).values() if inspect.isclass(fn) else (getattr(fn, "py_func", fn),)  # py_func: of a GPU kernel
    for one in filter(inspect.isfunction, methods):
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == one.__name__:
                shift = _first_line(node) - one.__code__.co_firstlineno
                one.__code__ = _moved(one.__code__, str(file), shift)
                break
    return fn


def _moved(code: CodeType, file: str, shift: int) -> CodeType:
    inner = (_moved(one, file, shift) if isinstance(one, CodeType) else one for one in code.co_consts)
    return code.replace(co_filename=file, co_firstlineno=code.co_firstlineno + shift, co_consts=tuple(inner))


def is_blank(fn: Callable[..., Any], stub: Callable[..., Any]) -> bool:
    """True for a body without content (`pass`, `...`, a lone NotImplementedError) and for the stub as it was given."""
    body = _body(fn)
    if body is None:
        code = getattr(fn, "__code__", None)
        return code is not None and (code.co_code, code.co_names) == (_empty.__code__.co_code, ())
    return _is_blank_body(body, stub)


def is_blank_text(text: str, stub: Callable[..., Any]) -> bool:
    """As `is_blank`, of the text of a definition that has not been run."""
    body = _body_of(text)
    return body is not None and _is_blank_body(body, stub)


def _is_blank_body(body: list[ast.stmt], stub: Callable[..., Any]) -> bool:
    return all(map(_says_nothing, body)) or body_text(body) == body_text(_body(stub) or [])


def _empty() -> None:
    pass


def _body(fn: Callable[..., Any]) -> list[ast.stmt] | None:
    """The statements of a function without its docstring; None without source, or when it is no plain `def`."""
    source = source_of(fn)
    return _body_of(source) if source else None


def _body_of(source: str) -> list[ast.stmt] | None:
    try:
        tree = ast.parse(source)
    except SyntaxError:  # a lambda in the middle of an expression
        return None
    if not tree.body or not isinstance(tree.body[0], (ast.FunctionDef, ast.ClassDef)):
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
