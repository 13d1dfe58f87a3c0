"""Which kind each expression has, and its value where the compiler can already tell.

Floor 0, part of `inference`. What a call may be, and of which kind, is the table in `calls`.
"""

from __future__ import annotations

import ast
import operator

import numpy as np

from lockstep.simt import rules
from lockstep.simt.compile import calls, names
from lockstep.simt.compile.kinds import Array, Binding, Conflict, Environment, Static, Tuple, is_number, unite
from lockstep.simt.compile.source import Source
from lockstep.simt.errors import Unsupported

SIGNS = {
    **{ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**"},
    **{ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^"},
    **{ast.USub: "-", ast.UAdd: "+", ast.Invert: "~", ast.Not: "not"},
    **{ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="},
}
FOLDED = {
    **{"+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod},
    **{"/": operator.truediv, "**": operator.pow, "<<": operator.lshift, ">>": operator.rshift},
}
ORDER = {
    **{ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge},
    **{ast.Eq: operator.eq, ast.NotEq: operator.ne},
}
NEGATED = {"-": operator.neg, "+": operator.pos}


class Expressions:
    """`visit(node)` returns the node's kind and notes it as `node.kind`; `node.const` is its value, or None."""

    def __init__(self, source: Source, program, key: str, is_kernel: bool) -> None:
        self.source = source
        self.program = program  # follows device functions on demand
        self.key = key
        self.is_kernel = is_kernel
        self.called: list = []
        self.environment: Environment = {}
        self.variables: set[tuple[str, str]] = set()  # (name, suffix of its kind)
        self.accesses: set[tuple[str, str]] = set()  # (an array's origin, "r", "w" or "a" for atomic)
        self.declared: dict[str, ast.Call] = {}  # shared and local arrays, by origin
        self.assigned = set(source.parameters) | {
            node.id for node in ast.walk(source.tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }

    def visit(self, node: ast.expr) -> object:
        node.const = None
        method = getattr(self, f"visit_{type(node).__name__}", None)
        if method is None:
            raise Unsupported(f"a kernel cannot use {ast.unparse(node)[:60]}", node.lineno)
        try:
            node.kind = method(node)
        except rules.TypeRefused as refused:
            raise Unsupported(f"{ast.unparse(node)[:60]}: {refused}", node.lineno) from None
        return node.kind

    def number(self, node: ast.expr) -> np.dtype:
        """The kind of an expression that has to be a number."""
        kind = self.visit(node)
        if not is_number(kind):
            raise Unsupported(f"{ast.unparse(node)[:60]} is {kind}, not a number", node.lineno)
        return kind

    # Names and constants.

    def visit_Constant(self, node: ast.Constant) -> object:
        if isinstance(node.value, (str, bytes, complex)):
            raise Unsupported(f"a kernel cannot use {node.value!r}", node.lineno)
        kind, node.const = names.kind_of(node.value, repr(node.value), node.lineno)
        return kind

    def visit_Name(self, node: ast.Name) -> object:
        binding: Binding | None = self.environment.get(node.id)
        node.outside = binding is None and node.id not in self.assigned
        node.uncertain = False
        if node.outside:
            kind, node.const = names.kind_of(self.source.meaning(node.id, node.lineno), node.id, node.lineno)
            return kind
        if binding is None:
            raise Unsupported(f"{node.id} is read before anything is assigned to it", node.lineno)
        if isinstance(binding.kind, Conflict):
            raise Unsupported(f"{node.id} is {binding.kind}", node.lineno)
        node.uncertain = not binding.certain
        node.kind, node.const = binding.kind, None
        return binding.kind

    def visit_Attribute(self, node: ast.Attribute) -> object:
        owner = self.visit(node.value)
        if isinstance(owner, Array):
            if node.attr == "shape":
                return Tuple((rules.INT64,) * owner.ndim)
            if node.attr == "ndim":
                node.const = owner.ndim
            if node.attr in ("size", "ndim"):
                return rules.INT64
            if node.attr == "dtype":
                return Static(f"number {owner.dtype}", owner.dtype)
        if not isinstance(owner, Static):
            raise Unsupported(f"a kernel cannot use {ast.unparse(node)}", node.lineno)
        kind, node.const = names.attribute(owner, node.attr, node.lineno)
        if isinstance(kind, Static) and kind.path in calls.VALUES:
            return calls.VALUES[kind.path]
        return kind

    # Operators.

    def operation(self, node: ast.BinOp | ast.AugAssign, left: object, right: object) -> np.dtype:
        for kind in (left, right):
            if not is_number(kind):
                raise Unsupported(f"{ast.unparse(node)[:60]}: {kind} is not a number", node.lineno)
        try:
            return rules.binary(SIGNS[type(node.op)], left, right)
        except (rules.TypeRefused, KeyError) as refused:
            raise Unsupported(f"{ast.unparse(node)[:60]}: {refused}", node.lineno) from None

    def visit_BinOp(self, node: ast.BinOp) -> object:
        left, right = self.visit(node.left), self.visit(node.right)
        if isinstance(left, Tuple) and isinstance(right, Tuple) and isinstance(node.op, ast.Add):
            return Tuple(left.items + right.items)
        kind = self.operation(node, left, right)
        a, b = node.left.const, node.right.const
        if type(a) is int and type(b) is int and SIGNS[type(node.op)] in FOLDED:
            node.const = _fold(FOLDED[SIGNS[type(node.op)]], a, b, node.lineno)
            return rules.literal(node.const)
        return kind

    def visit_UnaryOp(self, node: ast.UnaryOp) -> np.dtype:
        kind, sign = self.number(node.operand), SIGNS[type(node.op)]
        if sign in NEGATED and type(node.operand.const) in (int, float):
            node.const = NEGATED[sign](node.operand.const)
        return rules.unary(sign, kind)

    def visit_BoolOp(self, node: ast.BoolOp) -> np.dtype:
        kinds = [self.number(value) for value in node.values]
        result = kinds[0]
        for kind in kinds[1:]:
            result = unite(result, kind)
        return result

    def visit_Compare(self, node: ast.Compare) -> np.dtype:
        for operand in (node.left, *node.comparators):
            self.number(operand)
        for sign in node.ops:
            if type(sign) not in SIGNS:
                raise Unsupported(f"{ast.unparse(node)}: kernels compare with < <= > >= == !=", node.lineno)
        return rules.BOOL

    def visit_IfExp(self, node: ast.IfExp) -> object:
        self.number(node.test)
        kind = unite(self.visit(node.body), self.visit(node.orelse))
        node.decided = decided(node.test)
        if node.decided is not None:
            kind = (node.body if node.decided else node.orelse).kind
        if isinstance(kind, (Conflict, Static)):
            raise Unsupported(f"{ast.unparse(node)} is {kind}", node.lineno)
        return kind

    # Tuples, arrays, calls.

    def visit_Tuple(self, node: ast.Tuple) -> Tuple:
        kinds = tuple(self.visit(element) for element in node.elts)
        constants = tuple(element.const for element in node.elts)
        if None not in constants:
            node.const = constants
        return Tuple(kinds)

    def visit_Subscript(self, node: ast.Subscript) -> object:
        owner = self.visit(node.value)
        if isinstance(owner, Tuple):
            self.visit(node.slice)
            at = node.slice.const
            if not isinstance(at, int) or not -len(owner.items) <= at < len(owner.items):
                raise Unsupported(
                    f"{ast.unparse(node)}: a tuple of {len(owner.items)} is indexed by a constant within it",
                    node.lineno,
                )
            if node.value.const is not None:
                node.const = node.value.const[at]
            return owner.items[at]
        if not isinstance(owner, Array):
            raise Unsupported(f"{ast.unparse(node)}: {owner} has no elements", node.lineno)
        self.indices(node.slice, owner, node)
        self.touches(owner, "r" if isinstance(node.ctx, ast.Load) else "w")
        return owner.dtype

    def touches(self, owner: Array, how: str) -> None:
        """Note that the function reads, writes or atomically changes an array."""
        self.accesses.add((owner.origin, how))

    def declare(self, node: ast.Call, space: str) -> str:
        """The origin of a shared or local array that a call declares."""
        origin = f"{space} {self.key} {node.lineno}:{node.col_offset}"
        self.declared[origin] = node
        return origin

    def indices(self, index: ast.expr, owner: Array, node: ast.expr) -> None:
        """Check that `index` has one integer for each axis of `owner`."""
        if any(isinstance(part, ast.Slice) for part in getattr(index, "elts", [index])):
            raise Unsupported(f"{ast.unparse(node)}: kernels here index single elements, not slices", node.lineno)
        kind = self.visit(index)
        kinds = kind.items if isinstance(kind, Tuple) else (kind,)
        if len(kinds) != owner.ndim:
            together = (
                f", all in one pair of brackets, as in [{', '.join('ijk'[: owner.ndim])}]" if owner.ndim > 1 else ""
            )
            raise Unsupported(
                f"{ast.unparse(node)}: a {owner.ndim}-D array is indexed by {owner.ndim}, not {len(kinds)}{together}",
                node.lineno,
            )
        for part in kinds:
            if not is_number(part) or rules.is_float(part):
                raise Unsupported(f"{ast.unparse(node)}: an index is an integer, not {part}", node.lineno)

    def visit_Call(self, node: ast.Call) -> object:
        function = self.visit(node.func)
        if not isinstance(function, Static):
            raise Unsupported(f"{ast.unparse(node.func)} cannot be called", node.lineno)
        return calls.kind(self, node, function)


def decided(test: ast.expr) -> bool | None:
    """Whether a visited condition is already known to hold, or not to: Numba leaves out the arm that is never taken.

    So `if PADDED:` with a constant from outside does not unite the kinds of its arms.
    """
    if test.const is not None:
        return bool(test.const)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = decided(test.operand)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        parts = [decided(value) for value in test.values]
        enough = isinstance(test.op, ast.Or)  # the value of one part that settles it
        return enough if enough in parts else (None if None in parts else not enough)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        a, b = test.left.const, test.comparators[0].const
        if isinstance(a, (int, float)) and isinstance(b, (int, float)):
            return ORDER[type(test.ops[0])](a, b)
    return None


def _fold(function, a: int, b: int, line: int) -> int | float:
    try:
        return function(a, b)
    except (ZeroDivisionError, ValueError, OverflowError) as wrong:
        raise Unsupported(f"{a} and {b}: {wrong}", line) from None
