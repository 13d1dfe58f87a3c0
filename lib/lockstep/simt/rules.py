"""Which type a number has: the arithmetic of Numba's CUDA target, which differs from NumPy's.

Floor 0, read first of the compiler's files. Numba is the oracle: `tests/simt/test_rules.py` compares every table.
The rule behind them: integers are computed in 64 bits; float32 stays float32 only beside itself and integers that fit
its 24 bits (int8, int16, uint8, bool); anything wider makes float64. Only a store into a narrower array wraps.

    int32 * int32 -> int64        float32 * 0.5 -> float64        uint8 + uint8 -> uint64
    float32 + int32 -> float64    float32 + int16 -> float32      int64 + uint64 -> int64
"""

from __future__ import annotations

from functools import cache

import numpy as np

BOOL, INT32, INT64, UINT32, UINT64 = (np.dtype(name) for name in ("bool", "int32", "int64", "uint32", "uint64"))
FLOAT32, FLOAT64 = np.dtype("float32"), np.dtype("float64")
SCALARS = tuple(
    np.dtype(name)
    for name in ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")
)
FIT_FLOAT32 = frozenset(np.dtype(name) for name in ("bool", "int8", "int16", "uint8", "float32"))

# Functions of `math` with one argument: the type of a result is float32 for float32 and float64 for the rest.
MATH_UNARY = {
    **{name: name for name in ("sqrt", "exp", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan")},
    **{name: name for name in ("sinh", "cosh", "tanh", "floor", "ceil", "fabs", "trunc")},
    **{"asin": "arcsin", "acos": "arccos", "atan": "arctan", "isnan": "isnan", "isinf": "isinf"},
}
MATH_TESTS = ("isnan", "isinf")
MATH_BINARY = {"pow": "power", "atan2": "arctan2", "fmod": "fmod", "copysign": "copysign", "hypot": "hypot"}


class TypeRefused(TypeError):
    """These operands have no result in Numba, or one that we do not vouch for."""


def is_float(kind: np.dtype) -> bool:
    return kind.kind == "f"


@cache
def arithmetic(left: np.dtype, right: np.dtype) -> np.dtype:
    """The type of `+ - * // %`, and the one in which numbers of two types are compared."""
    if is_float(left) or is_float(right):
        return FLOAT32 if {left, right} <= FIT_FLOAT32 else FLOAT64
    return UINT64 if left.kind == right.kind == "u" else INT64


@cache
def binary(operator: str, left: np.dtype, right: np.dtype) -> np.dtype:
    """The type of `left operator right`; TypeRefused where Numba has none."""
    if operator in ("+", "-", "*", "//", "%"):
        return arithmetic(left, right)
    if operator == "/":
        result = arithmetic(left, right)
        return result if is_float(result) else FLOAT64
    if operator == "**":
        if BOOL in (left, right):
            raise TypeRefused("a bool has no power")
        if left == FLOAT32 and not is_float(right):
            return FLOAT32
        return arithmetic(left, right)
    if is_float(left) or is_float(right):
        raise TypeRefused(f"{left} {operator} {right}: `{operator}` takes integers")
    if operator in ("<<", ">>"):
        return UINT64 if left.kind == "u" else INT64
    return BOOL if left == right == BOOL else arithmetic(left, right)  # & | ^


def unary(operator: str, operand: np.dtype) -> np.dtype:
    """The type of `-x`, `+x`, `~x` and `not x`."""
    if operator == "not":
        return BOOL
    if operator == "~":
        if is_float(operand):
            raise TypeRefused(f"~{operand}: `~` takes integers")
        return BOOL if operand == BOOL else arithmetic(operand, operand)
    return arithmetic(operand, operand)


@cache
def unify(left: np.dtype, right: np.dtype) -> np.dtype:
    """The type of a value that comes from either of two places: two branches, `min`, `max`, a ternary. int64 with uint64: float64."""
    return np.promote_types(left, right)


def math_unary(name: str, operand: np.dtype) -> np.dtype:
    """The type of `math.name(operand)`."""
    if name in MATH_TESTS:
        return BOOL
    return FLOAT32 if operand == FLOAT32 else FLOAT64


def math_binary(name: str, left: np.dtype, right: np.dtype) -> np.dtype:
    """The type of `math.name(left, right)`; TypeRefused for integers, where Numba's rules vary by function."""
    if not (is_float(left) and is_float(right)):
        raise TypeRefused(f"math.{name}({left}, {right}) takes floats: convert with float(...) or np.float32(...)")
    return FLOAT32 if left == right == FLOAT32 else FLOAT64


def ranged(*bounds: np.dtype) -> np.dtype:
    """The type that `range` counts in."""
    if any(kind.kind not in "iu" for kind in bounds):
        raise TypeRefused(f"range takes integers, not {' and '.join(map(str, bounds))}")
    if all(kind.kind == "u" for kind in bounds):
        return UINT64
    if any(kind.kind == "u" for kind in bounds) and INT64 not in bounds:
        raise TypeRefused(f"range({', '.join(map(str, bounds))}) mixes signs: convert with np.int64(...)")
    return INT32 if all(kind.kind == "i" and kind.itemsize <= 4 for kind in bounds) else INT64


def to_int(operand: np.dtype) -> np.dtype:
    """The type of `int(x)`."""
    return INT64 if is_float(operand) or operand == BOOL else operand


def to_float(operand: np.dtype) -> np.dtype:
    """The type of `float(x)`: a float32 stays one."""
    if operand == BOOL:
        raise TypeRefused("float() of a bool: write 1.0 if x else 0.0")
    return operand if is_float(operand) else FLOAT64


def literal(value: bool | int | float) -> np.dtype:
    """The type of a number written in the source, or of a Python number that a launch is given."""
    if isinstance(value, np.generic):
        return scalar(value.dtype)
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, int):
        if -(2**63) <= value < 2**63:
            return INT64
        if value < 2**64:
            return UINT64
        raise TypeRefused(f"{value} does not fit 64 bits")
    if isinstance(value, float):
        return FLOAT64
    raise TypeRefused(f"{value!r} is no number that a kernel can hold")


def scalar(kind: object) -> np.dtype:
    """A NumPy dtype for anything that names one (`np.float32`, `"float32"`, Numba's `float32`); TypeRefused otherwise."""
    try:
        found = np.dtype(kind)
    except TypeError:
        try:
            found = np.dtype(str(kind))
        except TypeError:
            raise TypeRefused(f"{kind!r} is no type of number") from None
    if found not in SCALARS:
        raise TypeRefused(f"{found} is not a type that kernels hold here: {', '.join(map(str, SCALARS))}")
    return found
