"""What a top-level statement gives names to, and which names it needs: at once, or when its functions are called.

Floor 4, room `course`. The scopes are Python's own (`symtable`), so a function's local `model` is not the notebook's.
"""

from __future__ import annotations

import ast
import builtins
import symtable
import warnings
from dataclasses import dataclass

from lockstep.course.grade.statements import Parsed

BUILTIN = frozenset(dir(builtins)) | {"__name__", "__file__", "get_ipython", "display", "In", "Out", "_"}
RUNS_AT_ONCE = ("listcomp", "setcomp", "dictcomp", "genexpr")
GROWS = ("append", "extend", "insert", "update", "add", "setdefault", "register")


@dataclass(frozen=True)
class Named:
    """A statement by its names. binds: gives a value to; changes: alters what already has one (`x[0] = 1`).

    at_once: names it needs to run; later: names that its functions need when they are called. star: `import *`.
    """

    parsed: Parsed
    cell: int
    tags: tuple[str, ...]
    binds: frozenset[str]
    changes: frozenset[str]
    at_once: frozenset[str]
    later: frozenset[str]
    star: bool = False

    @property
    def is_definition(self) -> bool:
        """An import, function or class, or a name for a plain value such as `EPS = 1e-5`."""
        node = self.parsed.node
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return True
        return isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None and _is_plain(node.value)

    @property
    def needs(self) -> frozenset[str]:
        return self.at_once | self.later


def named(parsed: Parsed, cell: int = 0, tags: tuple[str, ...] = ()) -> Named:
    """Look up a statement's names; raises SyntaxError for what parses but cannot be compiled (a stray `return`)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = symtable.symtable(parsed.text, "cell", "exec")
        compile(parsed.text, "cell", "exec", dont_inherit=True)
    at_once: set[str] = set()
    later: set[str] = set()
    binds = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()}
    at_once |= {s.get_name() for s in table.get_symbols() if s.is_referenced()}
    for child in table.get_children():
        _collect(child, at_once, later)
    star = isinstance(parsed.node, ast.ImportFrom) and any(one.name == "*" for one in parsed.node.names)
    own = frozenset(binds) if not isinstance(parsed.node, ast.AugAssign) else frozenset()
    changes = frozenset(_changed(parsed.node)) | (frozenset(binds) - own)
    return Named(parsed, cell, tags, own, changes, frozenset(at_once) - BUILTIN, frozenset(later) - BUILTIN - own, star)


def _collect(table: symtable.SymbolTable, at_once: set[str], later: set[str]) -> None:
    """Add the module's names that a scope needs: those of a class body and a comprehension are needed at once."""
    now = table.get_type() == "class" or table.get_name() in RUNS_AT_ONCE
    found = {s.get_name() for s in table.get_symbols() if s.is_global() and s.is_referenced()}
    (at_once if now else later).update(found)
    for child in table.get_children():
        _collect(child, at_once if now else later, later)


def _changed(statement: ast.stmt) -> set[str]:
    """Names whose values a statement alters at the top level: an item or attribute set, a list grown."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return set()
    found = set()
    for node in ast.walk(statement):
        if isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            found.add(_root(node))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in GROWS:
            found.add(_root(node.func))
    return found - {""}


def _root(node: ast.expr) -> str:
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_plain(value: ast.expr) -> bool:
    try:
        ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return isinstance(value, ast.Lambda)
    return True
