"""One-operator mutants of a reference: each is wrong in one place, and a check that accepts it is blind there.

Floor 4, room `exercises`; used by the tests. A mutant is compiled in the reference's own module. Its description,
"line 3: if a < b: -> if a <= b:" (lines count from the `def`), is what `equivalent_mutants` lists.

| kind       | change                                                     |
|------------|------------------------------------------------------------|
| comparison | < <= > >= == != is in, to its neighbour or opposite         |
| arithmetic | + and -, * and //, / and *, // and /, % and *, ** and *     |
| boolean    | and/or swapped, `not x` to `not not x`                             |
| constant   | a number to one more and one less, True and False swapped   |
| slice      | lower and upper bound one more                              |
| call       | a call as a statement removed                               |
| return     | the returned value negated, unless it is a name or a tuple  |

DeMillo, Lipton and Sayward 1978, "Hints on test data selection", is the source of the idea.
"""

from __future__ import annotations

import ast
import copy
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lockstep.exercises.source import source_of
from lockstep.simt.compile.source import receive

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.Div: ast.Mult, ast.FloorDiv: ast.Div,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitAnd,
}  # fmt: skip
TURNS = 100_000  # of all loops of a mutant together, before it counts as endless


@dataclass(frozen=True)
class Mutant:
    """A changed reference; `description` names the change."""

    description: str
    function: Callable[..., Any]


class EndlessMutant(RuntimeError):
    """A mutant's loop that does not end; a fault like any other."""


class _Turns:
    """Counts the turns of a mutant's loops; a plain object, so that it can be sent to ranks."""

    def __init__(self) -> None:
        self.left = TURNS

    def __call__(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise EndlessMutant(f"more than {TURNS:,} turns of a loop")


def mutants(reference: Callable[..., Any]) -> list[Mutant]:
    """All mutants of a function written with `def`, in the order of its lines; equal code is listed once.

    Raises ValueError when the function has no source.
    """
    source = source_of(reference)
    if source is None:
        raise ValueError(f"{reference!r} has no source to change")
    tree, twins = ast.parse(source), {}
    counted = _CountTurns().visit(copy.deepcopy(tree, twins))  # its loops count; a change is made in both trees
    original, found, scope = ast.unparse(tree), {}, _scope(reference)
    for node in _inside(tree):
        twin = twins[id(node)]
        for (field, value), (_, same) in zip(_ways(node), _ways(twin), strict=True):
            with _changed(node, field, value), _changed(twin, field, same):
                code = ast.unparse(tree)
                if code != original and code not in found:
                    description = f"line {_line(node)}: {_difference(original, code)}"
                    found[code] = Mutant(description, _compiled(code, counted, reference, scope))
    return list(found.values())


@contextmanager
def _changed(node: ast.AST, field: str, value: Any) -> Iterator[None]:
    before = getattr(node, field)
    setattr(node, field, value)
    try:
        yield
    finally:
        setattr(node, field, before)


def _line(node: ast.AST) -> int:
    """The line of a node, counted from the `def`; a slice has none, but what is in it has."""
    return next(inner.lineno for inner in ast.walk(node) if hasattr(inner, "lineno"))


def _difference(original: str, code: str) -> str:
    """The first line that differs, before and after."""
    pairs = zip(original.splitlines(), code.splitlines(), strict=False)
    return next(f"{old.strip()} -> {new.strip()}" for old, new in pairs if old != new)


def _inside(tree: ast.Module) -> list[ast.AST]:
    """The nodes that may change: bodies, without docstrings, annotations, defaults of the signature and decorators."""
    nodes: list[ast.AST] = []
    for statement in tree.body[0].body:
        if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            nodes.extend(ast.walk(statement))
    return sorted(nodes, key=lambda node: (getattr(node, "lineno", 0), getattr(node, "col_offset", 0)))


def _ways(node: ast.AST) -> list[tuple[str, Any]]:
    """The changes that a node allows: another value in one of its fields."""
    if isinstance(node, ast.Compare):
        swap = [COMPARISONS[type(op)]() for op in node.ops]
        return [("ops", [*node.ops[:i], new, *node.ops[i + 1 :]]) for i, new in enumerate(swap)]
    if isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in ARITHMETIC:
        return [("op", ARITHMETIC[type(node.op)]())]
    if isinstance(node, ast.BoolOp):
        return [("op", ast.Or() if isinstance(node.op, ast.And) else ast.And())]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return [("operand", ast.UnaryOp(ast.Not(), node.operand))]
    if isinstance(node, ast.Constant):
        return [("value", new) for new in _neighbours(node.value)]
    if isinstance(node, ast.Slice):
        bounds = [(name, getattr(node, name)) for name in ("lower", "upper")]
        one_more = [(name, ast.BinOp(bound, ast.Add(), ast.Constant(1))) for name, bound in bounds if bound is not None]
        return [(name, value) for name, value in one_more]
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return [("value", ast.Constant(None))]
    if isinstance(node, ast.Return) and isinstance(node.value, (ast.BinOp, ast.Call, ast.Compare, ast.BoolOp)):
        opposite = ast.Not() if isinstance(node.value, (ast.Compare, ast.BoolOp)) else ast.USub()
        return [("value", ast.UnaryOp(opposite, node.value))]
    return []


def _neighbours(value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    return [value + 1, value - 1] if isinstance(value, (int, float)) else []


def _scope(reference: Callable[..., Any]) -> dict[str, Any]:
    """What the names in the reference stand for."""
    if hasattr(reference, "py_func"):
        return dict(reference.py_func.__globals__)
    scope = dict(getattr(reference, "__globals__", vars(inspect.getmodule(reference))))
    return scope | inspect.getclosurevars(reference).nonlocals if inspect.isfunction(reference) else scope


def _compiled(code: str, counted: ast.Module, reference: Callable[..., Any], scope: dict[str, Any]) -> Any:
    """The changed function in a copy of `scope`, with a limit on the turns of its loops.

    A GPU kernel is compiled from its text, which goes along; the simulator has a limit of its own.
    """
    own, is_kernel = {**scope, "_turn": _Turns()}, hasattr(reference, "py_func")
    changed = code if is_kernel else ast.fix_missing_locations(counted)
    exec(compile(changed, f"<mutant of {reference.__name__}>", "exec"), own)  # our own source, one operator changed
    function = own[counted.body[0].name]
    if is_kernel:
        receive({function.py_func.__code__: (code.splitlines(keepends=True), 1)})
    return function


class _CountTurns(ast.NodeTransformer):
    def visit_While(self, node: ast.While) -> ast.AST:
        self.generic_visit(node)
        node.body.insert(0, ast.Expr(ast.Call(ast.Name("_turn", ast.Load()), [], [])))
        return node

    visit_For = visit_While
