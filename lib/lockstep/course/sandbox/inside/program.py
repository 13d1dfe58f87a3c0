"""Run a program statement by statement, so that one that fails costs only what it would have defined.

Floor 4, room `course`.
"""

from __future__ import annotations

import ast
import linecache
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

SHOWN = 300  # characters of an error


class Endless(BaseException):
    """A statement that came to no end."""


def file_of(cell: int) -> str:
    """The name under which a cell's code is known in tracebacks."""
    return f"<cell {cell}>"


def remember_lines(statements: Sequence[tuple[str, int, int]]) -> None:
    """Let tracebacks, and whoever asks for a source, find the text of (text, cell, first line) where it was.

    Cells of another program are forgotten.
    """
    for file in [one for one in linecache.cache if one.startswith("<cell ")]:
        del linecache.cache[file]
    cells: dict[int, dict[int, str]] = {}
    for text, cell, first in statements:
        for offset, line in enumerate(text.splitlines()):
            cells.setdefault(cell, {})[first + offset] = line
    for cell, known in cells.items():
        lines = [known.get(n, "") + "\n" for n in range(1, max(known) + 1)]
        linecache.cache[file_of(cell)] = (sum(map(len, lines)), None, lines, file_of(cell))


def define(statements: Sequence[tuple[str, int, int]], namespace: dict[str, Any], seconds: float) -> list[list[Any]]:
    """Run them in `namespace`, each for at most `seconds`; gives (cell, line, error) of those that failed."""
    remember_lines(statements)
    problems = []
    for text, cell, first in statements:
        for code, line in _compiled(text, cell, first, problems):
            try:
                with _in_time(seconds):
                    exec(code, namespace)
            except BaseException as error:  # sys.exit, an interrupt, an exception of the student's own: all of them
                problems.append([cell, line, _said(error)])
    return problems


def _compiled(text: str, cell: int, first: int, problems: list[list[Any]]) -> Iterator[tuple[Any, int]]:
    try:
        tree = ast.parse(text, file_of(cell))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        problems.append([cell, first, _said(error)])
        return
    ast.increment_lineno(tree, first - 1)
    for node in tree.body:
        for one in _one_by_one(node):
            module = ast.Module([one], [])
            try:
                yield compile(module, file_of(cell), "exec", dont_inherit=True), node.lineno
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                problems.append([cell, node.lineno, _said(error)])


def _one_by_one(node: ast.stmt) -> list[ast.stmt]:
    """An import of several names as several, so that a missing one does not take the others along."""
    if isinstance(node, (ast.ImportFrom, ast.Import)) and len(node.names) > 1:
        return [
            ast.copy_location(type(node)(**{**dict(ast.iter_fields(node)), "names": [n]}), node) for n in node.names
        ]
    return [node]


def _said(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:SHOWN]
    except BaseException:  # an exception of the student's own may do anything here
        return type(error).__name__


@contextmanager
def _in_time(seconds: float) -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise Endless(f"it takes more than {seconds:g} s")

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
