"""Expressions as NumPy text: operands cast to the kind that the operation has, then the operator.

Floor 0, after `inference`. `value(node)` returns text for a value of exactly `node.kind`; loads and calls become
statements before it. `mask` is the name of the mask under which it is computed.
"""

from __future__ import annotations

import ast

import numpy as np

from lockstep.simt import rules
from lockstep.simt.compile import emit_calls
from lockstep.simt.compile.expressions import SIGNS
from lockstep.simt.compile.kinds import Array, Static, Tuple, is_number, suffix
from lockstep.simt.compile.writer import Writer

# "Integer division and modulo are costly as they compile to up to 20 instructions": CUDA C++ Programming Guide,
# "Arithmetic Instructions".
DIVISION = 20
GRID = {"threadIdx": "thread", "blockIdx": "block", "blockDim": "block_dim", "gridDim": "grid_dim"}
SMALL_POWERS = range(2, 9)


class Values:
    """Text for expressions; part of `Statements`."""

    out: Writer
    mask: str

    def value(self, node: ast.expr) -> str:
        if node.const is not None:
            return self.constant(node.const, node.kind)
        return getattr(self, f"value_{type(node).__name__}")(node)

    def constant(self, value: object, kind: object) -> str:
        if isinstance(kind, Tuple):
            return "(" + "".join(f"{self.constant(v, k)}, " for v, k in zip(value, kind.items, strict=True)) + ")"
        if isinstance(kind, Array):
            return self.constant_array(value)
        return self.out.constant(value, kind)

    def constant_array(self, value: np.ndarray) -> str:
        frozen = self.out.named(np.ascontiguousarray(value).copy())
        return f"R.constant_array({frozen})"

    def cast(self, text: str, before: object, after: object) -> str:
        """`text`, of kind `before`, as `after`."""
        if before == after:
            return text
        if isinstance(before, Tuple):
            name = self.temporary(text)
            parts = [
                self.cast(f"{name}[{at}]", a, b)
                for at, (a, b) in enumerate(zip(before.items, after.items, strict=True))
            ]
            return f"({', '.join(parts)},)"
        if after == rules.BOOL:
            return f"({text} != {self.out.constant(0, before)})"
        return f"{text}.astype({self.out.named(after, 'D')})"

    def as_kind(self, node: ast.expr, kind: object) -> str:
        if node.const is not None and is_number(kind) and is_number(node.kind):
            return self.out.constant(node.kind.type(node.const).astype(kind), kind)
        return self.cast(self.value(node), node.kind, kind)

    def truth(self, node: ast.expr) -> str:
        return self.as_kind(node, rules.BOOL)

    def temporary(self, text: str) -> str:
        if text.isidentifier():
            return text
        name = self.out.fresh("T")
        self.out.line(f"{name} = {text}")
        return name

    # Names.

    def value_Name(self, node: ast.Name) -> str:
        name = f"{node.id}_{suffix(node.kind)}"
        if node.uncertain:
            self.out.line(f"R.defined(DEF_{node.id}, {self.mask}, {self.out.site(node.lineno, node.id)})")
        return name

    def value_Attribute(self, node: ast.Attribute) -> str:
        if isinstance(node.value.kind, Array):
            return f"{self.value(node.value)}.{node.attr}"
        if node.attr == "laneid":
            return "R.lane"
        if node.attr == "warpsize":
            return self.out.constant(32, rules.INT32)
        owner = node.value.kind.path.rpartition(".")[2]
        return f"R.{GRID[owner]}[{'xyz'.index(node.attr)}]"

    def value_Tuple(self, node: ast.Tuple) -> str:
        return "(" + "".join(f"{self.value(element)}, " for element in node.elts) + ")"

    # Operators.

    def value_BinOp(self, node: ast.BinOp) -> str:
        if isinstance(node.kind, Tuple):
            return f"({self.value(node.left)} + {self.value(node.right)})"
        return self.binary(node, node.left, self.value(node.left), node.right)

    def binary(self, node: ast.BinOp | ast.AugAssign, left: ast.expr, left_text: str, right: ast.expr) -> str:
        """`left operator right` in the kind of `node`."""
        kind, sign = node.kind, SIGNS[type(node.op)]
        left_kind = node.old if isinstance(node, ast.AugAssign) else left.kind
        self.count(self.cost(sign, kind, right), flops=int(rules.is_float(kind)))
        if sign == "**":
            return self._power(node, self.cast(left_text, left_kind, kind), right)
        a, b = self.cast(left_text, left_kind, kind), self.as_kind(right, kind)
        if kind == rules.BOOL:
            return f"({a} {sign} {b})"
        if sign in ("//", "%") and not rules.is_float(kind) and not right.const:
            site = self.out.site(node.lineno, ast.unparse(node))
            b = f"R.divisor({b}, {self.mask}, {site})"
        return f"({a} {sign} {b})"

    def cost(self, sign: str, kind: np.dtype, right: ast.expr) -> int:
        """Instructions of an operator; a constant power of two is divided by with a shift."""
        by = right.const
        shift = isinstance(by, int) and by > 0 and by & (by - 1) == 0
        return DIVISION if sign in ("//", "%") and not rules.is_float(kind) and not shift else 1

    def _power(self, node, base: str, exponent: ast.expr) -> str:
        if type(exponent.const) is int and exponent.const in SMALL_POWERS:
            self.count(exponent.const - 2, flops=exponent.const - 2 if rules.is_float(node.kind) else 0)
            name = self.temporary(base)
            return "(" + " * ".join([name] * exponent.const) + ")"
        text = self.as_kind(exponent, node.kind)
        if rules.is_float(node.kind):
            return f"np.power({base}, {text})"
        return f"R.power({base}, {text}, {self.mask}, {self.out.site(node.lineno, ast.unparse(node))})"

    def value_UnaryOp(self, node: ast.UnaryOp) -> str:
        sign = SIGNS[type(node.op)]
        self.count(1)
        if sign == "not":
            return f"(~{self.truth(node.operand)})"
        return f"({sign}{self.as_kind(node.operand, node.kind)})"

    def value_Compare(self, node: ast.Compare) -> str:
        operands = [node.left, *node.comparators]
        self.count(len(node.ops))
        texts = [self.value(operand) for operand in operands]
        if len(texts) > 2:
            texts = [self.temporary(text) for text in texts]
        parts = []
        for at, sign in enumerate(node.ops):
            a, b = operands[at], operands[at + 1]
            left, right = texts[at], texts[at + 1]
            if rules.is_float(a.kind) or rules.is_float(b.kind):
                kind = rules.arithmetic(a.kind, b.kind)
                left, right = self.cast(left, a.kind, kind), self.cast(right, b.kind, kind)
            parts.append(f"({left} {SIGNS[type(sign)]} {right})")
        return parts[0] if len(parts) == 1 else "(" + " & ".join(parts) + ")"

    # Expressions that not every lane evaluates.

    def value_BoolOp(self, node: ast.BoolOp) -> str:
        return self._chain(node, node.values)

    def _chain(self, node: ast.BoolOp, values: list[ast.expr]) -> str:
        first, rest = values[0], values[1:]
        if not rest:
            return self.as_kind(first, node.kind)
        both = isinstance(node.op, ast.And)
        sign = "&" if both else "|"
        if node.kind == rules.BOOL and all(is_total(value) for value in rest):
            return "(" + f" {sign} ".join(self.as_kind(value, rules.BOOL) for value in values) + ")"
        known = self.temporary(self.as_kind(first, node.kind))
        decided = self.temporary(self.cast(known, node.kind, rules.BOOL))
        result = self.out.fresh("T")
        self.out.line(f"{result} = {known}")
        with self.under(decided if both else f"~{decided}", node.lineno):
            other = self._chain(node, rest)
            arms = (other, known) if both else (known, other)
            self.out.line(f"{result} = R.choose({decided}, {arms[0]}, {arms[1]})")
        return result

    def value_IfExp(self, node: ast.IfExp) -> str:
        if node.decided is not None:
            return self.as_kind(node.body if node.decided else node.orelse, node.kind)
        test = self.temporary(self.truth(node.test))
        if is_total(node.body) and is_total(node.orelse):
            yes, no = self.as_kind(node.body, node.kind), self.as_kind(node.orelse, node.kind)
            return f"R.choose({test}, {yes}, {no})"
        result = self.out.fresh("T")
        self.out.line(f"{result} = None")
        for condition, arm in ((test, node.body), (f"~{test}", node.orelse)):
            with self.under(condition, node.lineno) as mask:
                text = self.as_kind(arm, node.kind)
                self.out.line(f"{result} = R.merge({mask}, {text}, {result})")
        return result

    # Elements and calls.

    def value_Subscript(self, node: ast.Subscript) -> str:
        if isinstance(node.value.kind, Tuple):
            return f"{self.value(node.value)}[{node.slice.const}]"
        owner, index, site = self.element(node.value, node.slice, node.lineno)
        name = self.out.fresh("T")
        self.out.line(f"{name} = {owner}.load({index}, {self.mask}, {site})")
        return name

    def element(self, owner: ast.expr, index: ast.expr, line: int) -> tuple[str, str, str]:
        """(array, index tuple, site) of an access."""
        text = self.temporary(self.value(owner))
        self.count(1)
        if isinstance(index.kind, Tuple):
            if isinstance(index, ast.Tuple):
                parts = [self.as_kind(element, rules.INT64) for element in index.elts]
            else:
                whole = self.temporary(self.value(index))
                parts = [self.cast(f"{whole}[{at}]", kind, rules.INT64) for at, kind in enumerate(index.kind.items)]
        else:
            parts = [self.as_kind(index, rules.INT64)]
        return text, self.temporary(f"({', '.join(parts)},)"), self.out.site(line, ast.unparse(owner))

    def value_Call(self, node: ast.Call) -> str:
        return emit_calls.text(self, node)


def is_total(node: ast.expr) -> bool:
    """Whether evaluating it for lanes that do not need it is harmless: no access, no call, nothing that may fail."""
    for part in ast.walk(node):
        if getattr(part, "const", None) is not None:
            continue
        if isinstance(part, ast.Subscript) and isinstance(part.value.kind, Array):
            return False
        if isinstance(part, ast.Name) and getattr(part, "uncertain", False):
            return False
        if isinstance(part, ast.BinOp) and SIGNS[type(part.op)] in ("//", "%", "**") and not part.right.const:
            return False
        if isinstance(part, ast.Call) and isinstance(part.func.kind, Static):
            path = part.func.kind.path
            if not path.startswith(("number ", "math.")) and path not in emit_calls.HARMLESS:
                return False
    return True
