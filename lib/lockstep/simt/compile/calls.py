"""What a kernel may call, and of which kind the result is. The other half, the code for a call, is in `emit_calls`.

Floor 0. The kinds were taken from Numba's typing of each call (`tests/simt/test_numba_types.py` compares them).
"""

from __future__ import annotations

import ast
from functools import reduce

import numpy as np

from lockstep.simt import rules
from lockstep.simt.compile.kinds import NOTHING, Array, Static, Tuple
from lockstep.simt.errors import Unsupported

AXES = ("x", "y", "z")
VALUES = {
    f"cuda.{name}.{axis}": rules.INT32 for name in ("threadIdx", "blockIdx", "blockDim", "gridDim") for axis in AXES
} | {"cuda.laneid": rules.INT32, "cuda.warpsize": rules.INT32}

INTEGERS = tuple(np.dtype(name) for name in ("int32", "int64", "uint32", "uint64"))
SIGNED_WORDS = tuple(np.dtype(name) for name in ("int32", "int64", "float32", "float64"))
ATOMICS = {
    **{name: (*INTEGERS, rules.FLOAT32, rules.FLOAT64) for name in ("add", "sub", "max", "min")},
    **{name: INTEGERS for name in ("exch", "and_", "or_", "xor", "cas", "compare_and_swap")},
}
SHUFFLES = ("shfl_sync", "shfl_up_sync", "shfl_down_sync", "shfl_xor_sync")
VOTES = {"all_sync": rules.BOOL, "any_sync": rules.BOOL, "eq_sync": rules.BOOL, "ballot_sync": rules.INT32}
BARRIER_VOTES = ("syncthreads_count", "syncthreads_and", "syncthreads_or")
FENCES = ("threadfence", "threadfence_block", "threadfence_system")


def kind(typer, node: ast.Call, function: Static) -> object:
    """The kind of a call's result; annotates its arguments. Raises Unsupported by name and line."""
    path, _, name = function.path.rpartition(".")
    _only_keywords_of(node, function.path)
    if function.path.startswith("number "):
        _count(node, 1)
        typer.number(node.args[0])
        return rules.scalar(function.path.removeprefix("number "))
    if path == "math" and name in rules.MATH_UNARY:
        _count(node, 1)
        return rules.math_unary(name, typer.number(node.args[0]))
    if path == "math" and name in rules.MATH_BINARY:
        _count(node, 2)
        return rules.math_binary(name, *map(typer.number, node.args))
    if path == "cuda.atomic" and name in ATOMICS:
        return _atomic(typer, node, name)
    known = KNOWN.get(function.path)
    if known is None:
        raise Unsupported(f"a kernel cannot call {ast.unparse(node.func)}", node.lineno)
    return known(typer, node, function)


def _only_keywords_of(node: ast.Call, path: str) -> None:
    allowed = ("shape", "dtype") if path in ("cuda.shared.array", "cuda.local.array") else ()
    for keyword in node.keywords:
        if keyword.arg not in allowed:
            raise Unsupported(f"{ast.unparse(node.func)} takes no {keyword.arg}= here", node.lineno)
    if any(isinstance(argument, ast.Starred) for argument in node.args):
        raise Unsupported(f"{ast.unparse(node)[:60]}: spell the arguments out, without *", node.lineno)


def _count(node: ast.Call, *counts: int) -> None:
    if len(node.args) not in counts:
        expected = " or ".join(map(str, counts))
        raise Unsupported(f"{ast.unparse(node.func)} takes {expected} arguments, not {len(node.args)}", node.lineno)


# Python's own functions.


def _len(typer, node: ast.Call, function: Static) -> np.dtype:
    _count(node, 1)
    found = typer.visit(node.args[0])
    if isinstance(found, Tuple):
        node.const = len(found.items)
    elif not isinstance(found, Array):
        raise Unsupported(f"{ast.unparse(node)}: {found} has no length", node.lineno)
    return rules.INT64


def _least(typer, node: ast.Call, function: Static) -> np.dtype:
    if len(node.args) < 2:
        raise Unsupported(f"{function.path} takes two or more numbers", node.lineno)
    return reduce(rules.unify, [typer.number(argument) for argument in node.args])


def _converted(rule):
    def convert(typer, node: ast.Call, function: Static) -> np.dtype:
        _count(node, 1)
        return rule(typer.number(node.args[0]))

    return convert


def _abs(operand: np.dtype) -> np.dtype:
    if operand == rules.BOOL:
        raise rules.TypeRefused("abs() of a bool")
    return operand


def _round(operand: np.dtype) -> np.dtype:
    if not rules.is_float(operand):
        raise rules.TypeRefused(f"round({operand}) takes a float")
    return rules.INT64


def _range(typer, node: ast.Call, function: Static) -> object:
    raise Unsupported("range belongs into `for i in range(...)`", node.lineno)


def _device(typer, node: ast.Call, function: Static) -> object:
    kinds = tuple(typer.visit(argument) for argument in node.args)
    node.callee = typer.program.specialise(function.value, kinds, node.lineno)
    return node.callee.returns


# The grid.


def _grid(typer, node: ast.Call, function: Static) -> object:
    _count(node, 1)
    typer.visit(node.args[0])
    if node.args[0].const not in (1, 2, 3):
        raise Unsupported(f"{ast.unparse(node)}: the number of dimensions is a constant: 1, 2 or 3", node.lineno)
    count = node.args[0].const
    return rules.INT64 if count == 1 else Tuple((rules.INT64,) * count)


# Memory.


def _declared(typer, node: ast.Call, function: Static) -> Array:
    given = dict(zip(("shape", "dtype"), node.args, strict=False)) | {word.arg: word.value for word in node.keywords}
    if set(given) != {"shape", "dtype"} or len(node.args) > 2:
        raise Unsupported(f"{function.path} takes a shape and a dtype", node.lineno)
    typer.visit(given["shape"])
    shape = given["shape"].const
    sums = [part for part in ast.walk(given["shape"]) if isinstance(part, ast.BinOp)]
    if any(isinstance(part, ast.Name) for one in sums for part in ast.walk(one)):  # Python itself folds 32 * 32
        raise Unsupported(
            f"{ast.unparse(node)}: Numba takes numbers and names as a shape: compute it outside the kernel", node.lineno
        )
    shape = (shape,) if isinstance(shape, (int, np.integer)) else shape
    if not isinstance(shape, tuple) or not all(isinstance(size, (int, np.integer)) and size >= 0 for size in shape):
        raise Unsupported(
            f"{ast.unparse(node)}: the shape must be a constant, known when the kernel is compiled", node.lineno
        )
    named = typer.visit(given["dtype"])
    if isinstance(given["dtype"], ast.Constant) or not str(named).startswith("number "):
        raise Unsupported(f"{ast.unparse(node)}: the dtype is a type such as np.float32", node.lineno)
    node.shape = tuple(int(size) for size in shape)
    node.dtype = rules.scalar(named.path.removeprefix("number "))
    space = function.path.split(".")[1]
    if 0 in node.shape and (space == "local" or node.shape != (0,)):
        raise Unsupported(f"{ast.unparse(node)}: an array without elements", node.lineno)
    node.origin = typer.declare(node, space)
    return Array(node.dtype, len(node.shape), space, node.origin)


def _constant_array(typer, node: ast.Call, function: Static) -> Array:
    _count(node, 1)
    found = typer.visit(node.args[0])
    if not isinstance(found, Array) or node.args[0].const is None:
        raise Unsupported(f"{ast.unparse(node)} takes a NumPy array defined outside the kernel", node.lineno)
    return Array(found.dtype, found.ndim, "const")


def _atomic(typer, node: ast.Call, name: str) -> np.dtype:
    swaps = name in ("cas", "compare_and_swap")
    _count(node, 4 if name == "cas" else 3)
    owner = typer.visit(node.args[0])
    if not isinstance(owner, Array) or owner.space not in ("global", "shared"):
        raise Unsupported(f"{ast.unparse(node)}: atomics work on global and shared arrays", node.lineno)
    if owner.dtype not in ATOMICS[name]:
        raise Unsupported(f"cuda.atomic.{name} has no {owner.dtype}: {', '.join(map(str, ATOMICS[name]))}", node.lineno)
    typer.touches(owner, "a")
    if name == "compare_and_swap":
        if owner.ndim != 1:
            raise Unsupported(f"{ast.unparse(node)} takes a 1-D array and swaps its first element", node.lineno)
    else:
        typer.indices(node.args[1], owner, node)
    for argument in node.args[1:] if name == "compare_and_swap" else node.args[2:]:
        given = typer.number(argument)
        if swaps and rules.is_float(given):
            raise Unsupported(f"{ast.unparse(node)} swaps integers, not {given}", node.lineno)
    return owner.dtype


# Barriers and the warp.


def _barrier(typer, node: ast.Call, function: Static) -> object:
    _count(node, 0)
    return NOTHING


def _barrier_vote(typer, node: ast.Call, function: Static) -> np.dtype:
    _count(node, 1)
    if typer.number(node.args[0]).kind not in "iu":
        raise Unsupported(f"{ast.unparse(node)} takes an integer: wrap a condition in int(...)", node.lineno)
    return rules.INT32


def _syncwarp(typer, node: ast.Call, function: Static) -> object:
    _count(node, 0, 1)
    for argument in node.args:
        typer.number(argument)
    return NOTHING


def _shuffle(typer, node: ast.Call, function: Static) -> np.dtype:
    _count(node, 3)
    _, value, _ = map(typer.number, node.args)
    if value not in SIGNED_WORDS:
        raise Unsupported(
            f"{ast.unparse(node)}: shuffles pass int32, int64, float32, float64, not {value}", node.lineno
        )
    return value


def _vote(typer, node: ast.Call, function: Static) -> np.dtype:
    _count(node, 2)
    for argument in node.args:
        typer.number(argument)
    return VOTES[function.path.removeprefix("cuda.")]


def _active_mask(typer, node: ast.Call, function: Static) -> np.dtype:
    _count(node, 0)
    return rules.UINT32


def _count_bits(typer, node: ast.Call, function: Static) -> np.dtype:
    _count(node, 1)
    found = typer.number(node.args[0])
    if found not in INTEGERS:
        raise Unsupported(f"{ast.unparse(node)} counts the bits of an int32, int64, uint32 or uint64", node.lineno)
    return found


def _fused(typer, node: ast.Call, function: Static) -> np.dtype:
    _count(node, 3)
    kinds = {typer.number(argument) for argument in node.args}
    if len(kinds) != 1 or not rules.is_float(*kinds):
        raise Unsupported(f"{ast.unparse(node)} takes three float32 or three float64", node.lineno)
    return kinds.pop()


def _free(typer, node: ast.Call, function: Static) -> object:
    _count(node, 0)
    return NOTHING


KNOWN = {
    **{"len": _len, "min": _least, "max": _least, "range": _range, "device function": _device},
    **{"abs": _converted(_abs), "round": _converted(_round), "bool": _converted(lambda operand: rules.BOOL)},
    **{"int": _converted(rules.to_int), "float": _converted(rules.to_float)},
    **{"cuda.grid": _grid, "cuda.gridsize": _grid, "cuda.shared.array": _declared, "cuda.local.array": _declared},
    **{"cuda.const.array_like": _constant_array, "cuda.syncthreads": _barrier, "cuda.syncwarp": _syncwarp},
    **{f"cuda.{name}": _barrier_vote for name in BARRIER_VOTES},
    **{f"cuda.{name}": _shuffle for name in SHUFFLES},
    **{f"cuda.{name}": _vote for name in VOTES},
    **{f"cuda.{name}": _free for name in FENCES},
    **{"cuda.activemask": _active_mask, "cuda.popc": _count_bits, "cuda.fma": _fused},
}
