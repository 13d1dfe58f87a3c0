"""A number that knows its kind: Numba's arithmetic, one value at a time.

Floor 0. Every literal, index and loaded element of a slowly run kernel is a `Number`.
"""

from __future__ import annotations

import operator
from functools import reduce

import numpy as np

from lockstep.simt import rules
from lockstep.simt.errors import DivisionByZero, KernelFault

COMPUTE = {
    **{"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv},
    **{"%": operator.mod, "**": np.power, "<<": operator.lshift, ">>": operator.rshift},
    **{"&": operator.and_, "|": operator.or_, "^": operator.xor},
}


class Number:
    """`value` is a NumPy scalar; its dtype is the number's kind."""

    __slots__ = ("value",)

    def __init__(self, value: object, kind: np.dtype | None = None) -> None:
        if isinstance(value, Number):
            value = value.value
        if kind is None:
            kind = rules.literal(value)
        if not isinstance(value, np.generic):
            value = np.asarray(value)[()]
        self.value = value if value.dtype is kind else value.astype(kind)

    @property
    def kind(self) -> np.dtype:
        return self.value.dtype

    def __index__(self) -> int:
        return int(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __repr__(self) -> str:
        return f"{self.kind}({self.value})"

    def __neg__(self) -> Number:
        kind = rules.unary("-", self.kind)
        return Number(-self.value.astype(kind), kind)

    def __pos__(self) -> Number:
        return Number(self.value, rules.unary("+", self.kind))

    def __invert__(self) -> Number:
        kind = rules.unary("~", self.kind)
        return Number(~self.value.astype(kind), kind)

    def __abs__(self) -> Number:
        return Number(abs(self.value), self.kind)

    def __hash__(self) -> int:
        return hash(self.value)


def binary(sign: str, left: Number, right: Number) -> Number:
    """`left sign right`; DivisionByZero for an integer divided by 0."""
    kind = rules.binary(sign, left.kind, right.kind)
    a, b = left.value.astype(kind), right.value.astype(kind)
    if sign in ("//", "%") and not rules.is_float(kind) and not b:
        raise DivisionByZero("an integer divided by 0")
    if sign == "**" and not rules.is_float(kind) and b < 0:
        raise KernelFault("an integer to a negative power")
    return Number(COMPUTE[sign](a, b), kind)


def compare(sign: str, left: Number, right: Number) -> Number:
    """`left sign right` for an order or an equality."""
    a, b = left.value, right.value
    if rules.is_float(left.kind) or rules.is_float(right.kind):
        kind = rules.arithmetic(left.kind, right.kind)
        a, b = a.astype(kind), b.astype(kind)
    else:
        a, b = int(a), int(b)
    function = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}[sign]
    return Number(bool(getattr(operator, function)(a, b)))


def _install() -> None:
    names = {"+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow"}
    names |= {"<<": "lshift", ">>": "rshift", "&": "and", "|": "or", "^": "xor"}
    for sign, name in names.items():
        setattr(Number, f"__{name}__", lambda self, other, sign=sign: binary(sign, self, other))
    for sign, name in {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}.items():
        setattr(Number, f"__{name}__", lambda self, other, sign=sign: compare(sign, self, other))


_install()


# Python's functions over numbers.


def least(*numbers: Number) -> Number:
    """`min`: of two floats a NaN loses; otherwise one is compared after the other."""
    return _pick(np.fmin, operator.lt, numbers)


def most(*numbers: Number) -> Number:
    """`max`, likewise."""
    return _pick(np.fmax, operator.gt, numbers)


def _pick(of_two_floats, better, numbers: tuple[Number, ...]) -> Number:
    kind = reduce(rules.unify, [number.kind for number in numbers])
    values = [number.value.astype(kind) for number in numbers]
    if len(values) == 2 and all(rules.is_float(number.kind) for number in numbers):
        return Number(of_two_floats(*values), kind)
    return Number(reduce(lambda best, value: value if better(value, best) else best, values), kind)


def counted(*bounds: Number):
    """`range`, in the kind that Numba counts in."""
    kind = rules.ranged(*(bound.kind for bound in bounds))
    for value in range(*(int(bound.value) for bound in bounds)):
        yield Number(value, kind)


def rounded(number: Number) -> Number:
    return Number(np.rint(number.value), rules.INT64)


def math_function(name: str):
    """`math.name` over numbers."""

    def apply(*numbers: Number) -> Number:
        if name in rules.MATH_UNARY:
            kind, function = rules.math_unary(name, numbers[0].kind), rules.MATH_UNARY[name]
        else:
            kind, function = rules.math_binary(name, *(number.kind for number in numbers)), rules.MATH_BINARY[name]
        inner = rules.FLOAT32 if all(number.kind == rules.FLOAT32 for number in numbers) else rules.FLOAT64
        return Number(getattr(np, function)(*(number.value.astype(inner) for number in numbers)), kind)

    return apply
