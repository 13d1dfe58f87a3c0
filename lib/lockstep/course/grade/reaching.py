"""What a program reaches for that no exercise needs, for a person to look at. It is never scored.

Floor 4, room `course`. Most of what a grader sees it sees from outside. What is measured beside a student's code (bytes
held, times, what was left behind) a program can change while it runs, if it finds the way: through frames, the
collector, private attributes, or a function of a library put in place of another. Such ways are rare in honest code.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import lru_cache

from lockstep.course.grade.characters import unparsed
from lockstep.course.grade.statements import CANNOT, parse
from lockstep.course.grade.submission import Program

MODULES = frozenset((
    "_thread", "atexit", "builtins", "code", "ctypes", "dis", "faulthandler", "gc", "importlib", "inspect", "marshal", "mmap",
    "multiprocessing", "os", "pathlib", "pickle", "pkgutil", "resource", "runpy", "shutil", "signal", "site", "socket",
    "subprocess", "sys", "sysconfig", "tempfile", "threading", "trace", "traceback", "tracemalloc", "types", "unittest",
    "cloudpickle", "torch.library", "torch.overrides", "torch.utils._python_dispatch", "lockstep.course",
))  # fmt: skip
FUNCTIONS = frozenset(("__import__", "compile", "eval", "exec", "globals", "locals", "open", "breakpoint"))
INSIDES = frozenset((
    "__builtins__", "__bases__", "__closure__", "__code__", "__defaults__", "__dict__", "__globals__", "__mro__",
    "__reduce__", "__reduce_ex__", "__subclasses__", "__torch_dispatch__", "__torch_function__", "__traceback__",
    "__wrapped__", "cell_contents", "cr_frame", "f_back", "f_builtins", "f_globals", "f_locals", "gi_frame", "py_func",
    "tb_frame", "tb_next", "register_module_forward_hook", "register_module_forward_pre_hook",
    "register_module_full_backward_hook", "register_module_full_backward_pre_hook",
))  # fmt: skip
MOST = 6  # named in the sentence


def reaching(program: Program) -> str:
    """A sentence that names cells and what they reach for; "" where they do not."""
    imported = {name for one in program.statements for name in _imported(one.text)}
    found: dict[str, None] = {}
    for one in program.statements:
        for what in _reached(one.text, frozenset(imported)):
            found.setdefault(f"{what} (cell {one.cell})")
    if not found:
        return ""
    more = f" and {len(found) - MOST} more" if len(found) > MOST else ""
    return f"the notebook reaches for what no exercise needs: {', '.join(list(found)[:MOST])}{more}"


@lru_cache(maxsize=4096)
def _imported(text: str) -> frozenset[str]:
    nodes = [node for node in _walk(text) if isinstance(node, (ast.Import, ast.ImportFrom))]
    return frozenset(one.asname or one.name.partition(".")[0] for node in nodes for one in node.names)


@lru_cache(maxsize=4096)
def _reached(text: str, imported: frozenset[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(what for node in _walk(text) for what in _of(node, imported)))


def _walk(text: str) -> Iterable[ast.AST]:
    try:
        return list(ast.walk(parse(text)))
    except CANNOT:
        return []


def _of(node: ast.AST, imported: frozenset[str]) -> Iterator[str]:
    """What one node of the tree reaches for, in the words of the program."""
    if isinstance(node, ast.Import):
        yield from (f"import {one.name}" for one in node.names if _is_module(one.name))
    elif isinstance(node, ast.ImportFrom):
        names = [f"{node.module}.{one.name}" for one in node.names]
        yield from (f"import {name}" for name in names if _is_module(name))
    elif isinstance(node, ast.Name) and node.id in FUNCTIONS and isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.Attribute):
        root = _root(node.value)
        private = node.attr.startswith("_") and not node.attr.endswith("__") and root not in ("self", "cls")
        if private or node.attr in INSIDES:
            yield f"{root or '…'}.{node.attr}"
        elif isinstance(node.ctx, ast.Store) and (
            root in (imported | {"comm"}) or (node.attr == "forward" and root not in ("self", "cls"))
        ):
            yield f"{unparsed(node)[:60]} = …"
    elif isinstance(node, ast.FunctionDef) and node.name in INSIDES:
        yield node.name
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("setattr", "delattr"):
        root = _root(node.args[0]) if node.args else ""
        if root in (imported | {"comm"}):
            yield f"{node.func.id}({root}, …)"


def _is_module(name: str) -> bool:
    parts = name.split(".")
    return any(".".join(parts[:end]) in MODULES for end in range(1, len(parts) + 1)) or any(
        part.startswith("_") and part != "__future__" for part in parts
    )


def _root(node: ast.AST) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
