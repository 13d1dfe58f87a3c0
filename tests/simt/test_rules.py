"""The types of arithmetic, every pair, against Numba's CUDA target."""

import math
import operator

import numpy as np
import pytest

from lockstep.simt import rules

OPERATORS = {
    **{"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv},
    **{"%": operator.mod, "**": operator.pow, "<<": operator.lshift, ">>": operator.rshift},
    **{"&": operator.and_, "|": operator.or_, "^": operator.xor},
}


@pytest.fixture(scope="module")
def numba_type():
    """`numba_type(function, *dtypes)`: what Numba's typing says, or None."""
    numba = pytest.importorskip("numba")
    context = pytest.importorskip("numba.cuda.descriptor").cuda_target.typing_context
    context.refresh()

    def resolve(function, *kinds):
        kinds = tuple(numba.from_dtype(kind) for kind in kinds)
        try:
            found = context.resolve_function_type(function, kinds, {}).return_type
            return np.dtype(str(getattr(found, "dtype", found)).replace("boolean", "bool"))
        except Exception:  # Numba raises several kinds of error where it has no such operation
            return None

    resolve.unify = lambda *kinds: np.dtype(
        str(context.unify_types(*(numba.from_dtype(kind) for kind in kinds))).replace("boolean", "bool")
    )
    return resolve


def ours(rule, *arguments):
    try:
        return rule(*arguments)
    except rules.TypeRefused:
        return None


def test_every_pair_has_numba_s_type(numba_type):
    different = []
    for left in rules.SCALARS:
        for right in rules.SCALARS:
            for sign, function in OPERATORS.items():
                mine = ours(rules.binary, sign, left, right)
                if sign == "**" and mine is None:
                    continue  # a bool's power: Numba says float32 for one pair; ours is refused
                if mine != numba_type(function, left, right):
                    different.append((sign, left, right, mine))
            if rules.unify(left, right) != numba_type.unify(left, right):
                different.append(("unify", left, right))
            counted = ours(rules.ranged, left, right)
            if counted is not None and counted != numba_type(range, left, right):
                different.append(("range", left, right))
            for name in rules.MATH_BINARY:
                mine = ours(rules.math_binary, name, left, right)
                if mine is not None and mine != numba_type(getattr(math, name), left, right):
                    different.append((name, left, right, mine))
    assert not different


def test_one_operand_has_numba_s_type(numba_type):
    different = []
    for kind in rules.SCALARS:
        for sign, function in {
            "-": operator.neg,
            "+": operator.pos,
            "~": operator.invert,
            "not": operator.not_,
        }.items():
            if ours(rules.unary, sign, kind) != numba_type(function, kind):
                different.append((sign, kind))
        for name in rules.MATH_UNARY if str(kind) in ("int32", "float32", "float64") else ():
            if rules.math_unary(name, kind) != numba_type(getattr(math, name), kind):
                different.append((name, kind, numba_type(getattr(math, name), kind)))
        for rule, function in ((rules.to_int, int), (rules.to_float, float)):
            mine = ours(rule, kind)
            if mine is not None and mine != numba_type(function, kind):
                different.append((function, kind))
    assert not different


def test_the_surprising_ones():
    # FACTS that a NumPy user gets wrong, also where Numba is not installed.
    named = {str(kind): kind for kind in rules.SCALARS}
    table = {
        ("*", "int32", "int32"): "int64",
        ("*", "float32", "float64"): "float64",
        ("+", "float32", "int32"): "float64",
        ("+", "uint8", "uint8"): "uint64",
        ("+", "float32", "int16"): "float32",
        ("-", "int64", "uint64"): "int64",
        ("/", "int32", "int32"): "float64",
        ("**", "float32", "int64"): "float32",
    }
    for (sign, left, right), result in table.items():
        assert rules.binary(sign, named[left], named[right]) == named[result]
    assert rules.unify(named["uint16"], named["float32"]) == named["float32"]
    assert rules.scalar(np.float32) == rules.scalar("float32") == named["float32"]
    with pytest.raises(rules.TypeRefused, match="complex64"):
        rules.scalar(np.complex64)
