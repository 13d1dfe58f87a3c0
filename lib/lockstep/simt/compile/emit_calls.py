"""The NumPy text of a call; its kind is in `calls`.

Floor 0, part of `values`. Every function takes the value writer and the call's node.
"""

from __future__ import annotations

import ast
from functools import reduce

from lockstep.simt import rules
from lockstep.simt.compile import calls
from lockstep.simt.compile.kinds import NOTHING

# A multiprocessor has an eighth as many units for these as for additions.
SPECIAL = 8
SIMPLE = ("fabs", "floor", "ceil", "trunc", "isnan", "isinf", "copysign")
HARMLESS = ("len", "min", "max", "abs", "int", "float", "bool", "cuda.grid", "cuda.gridsize", "cuda.fma", "cuda.popc")


def text(emit, node: ast.Call) -> str:
    """Text for the value of a call, or for its effect where it has none."""
    function = node.func.kind.path
    path, _, name = function.rpartition(".")
    if function.startswith("number ") or function in ("int", "float", "bool"):
        return emit.as_kind(node.args[0], node.kind)
    if path == "math":
        return _math(emit, node, name)
    if path == "cuda.atomic":
        return _atomic(emit, node, name)
    return KNOWN[function](emit, node, name)


def _math(emit, node: ast.Call, name: str) -> str:
    function = rules.MATH_UNARY.get(name) or rules.MATH_BINARY[name]
    emit.count(1 if name in SIMPLE else SPECIAL, flops=1)
    kind = rules.FLOAT32 if all(argument.kind == rules.FLOAT32 for argument in node.args) else rules.FLOAT64
    arguments = ", ".join(emit.as_kind(argument, kind) for argument in node.args)
    return f"np.{function}({arguments})"


def _least(emit, node: ast.Call, name: str) -> str:
    texts = [emit.as_kind(argument, node.kind) for argument in node.args]
    emit.count(len(texts) - 1, flops=(len(texts) - 1) * int(rules.is_float(node.kind)))
    if not rules.is_float(node.kind):
        return reduce(lambda a, b: f"np.{name}imum({a}, {b})", texts)
    if len(texts) == 2 and all(rules.is_float(argument.kind) for argument in node.args):
        return f"np.f{name}({texts[0]}, {texts[1]})"  # the GPU's own instruction: a NaN loses
    result, sign = emit.temporary(texts[0]), "<" if name == "min" else ">"
    for text in texts[1:]:  # else Numba compares one after the other, as Python does
        other = emit.temporary(text)
        result = emit.temporary(f"R.choose({other} {sign} {result}, {other}, {result})")
    return result


def _abs(emit, node: ast.Call, name: str) -> str:
    return f"np.abs({emit.value(node.args[0])})"


def _round(emit, node: ast.Call, name: str) -> str:
    return emit.cast(f"np.rint({emit.value(node.args[0])})", node.args[0].kind, rules.INT64)


def _len(emit, node: ast.Call, name: str) -> str:
    return f"{emit.temporary(emit.value(node.args[0]))}.shape[0]"


def _grid(emit, node: ast.Call, name: str) -> str:
    method = "position" if name == "grid" else "extent"
    parts = [f"R.{method}({axis})" for axis in range(node.args[0].const)]
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"


def _declared(emit, node: ast.Call, name: str) -> str:
    space = node.func.kind.path.split(".")[1]
    key = emit.out.named(node.origin, "N")
    dtype = emit.out.named(node.dtype, "D")
    if space == "shared":
        return f"R.shared({key}, {node.shape}, {dtype}, {emit.watched(node.origin)})"
    return f"R.local({key}, {node.shape}, {dtype}, {emit.mask})"


def _constant_array(emit, node: ast.Call, name: str) -> str:
    return emit.constant_array(node.args[0].const)


def _atomic(emit, node: ast.Call, name: str) -> str:
    owner = node.args[0]
    if name == "compare_and_swap":
        array, site = emit.temporary(emit.value(owner)), emit.out.site(node.lineno, ast.unparse(owner))
        index, values = f"({emit.out.constant(0, rules.INT64)},)", node.args[1:]
    else:
        array, index, site = emit.element(owner, node.args[1], node.lineno)
        values = node.args[2:]
    texts = "".join(f"{emit.as_kind(value, owner.kind.dtype)}, " for value in values)
    table = "EFFECTS" if getattr(node, "dropped", False) else "ATOMICS"
    return emit.temporary(f"{array}.update({index}, ({texts}), {emit.mask}, {site}, {table}[{name!r}])")


def _barrier(emit, node: ast.Call, name: str) -> str:
    return f"syncthreads(R, {emit.mask}, {emit.out.site(node.lineno, 'barrier')}, {emit.levels()})"


def _barrier_vote(emit, node: ast.Call, name: str) -> str:
    site = emit.out.site(node.lineno, "barrier")
    return emit.temporary(
        f"barrier_vote(R, {name!r}, {emit.value(node.args[0])}, {emit.mask}, {site}, {emit.levels()})"
    )


def _syncwarp(emit, node: ast.Call, name: str) -> str:
    members = emit.as_kind(node.args[0], rules.INT64) if node.args else emit.out.constant(0xFFFFFFFF, rules.INT64)
    return f"syncwarp(R, {members}, {emit.mask}, {emit.out.site(node.lineno, 'syncwarp')})"


def _shuffle(emit, node: ast.Call, name: str) -> str:
    members, value, argument = (emit.value(argument) for argument in node.args)
    site = emit.out.site(node.lineno, name)
    return emit.temporary(f"shuffle(R, {name!r}, {members}, {value}, {argument}, {emit.mask}, {site})")


def _vote(emit, node: ast.Call, name: str) -> str:
    members, predicate = (emit.value(argument) for argument in node.args)
    site = emit.out.site(node.lineno, name)
    return emit.temporary(f"warp_vote(R, {name!r}, {members}, {predicate}, {emit.mask}, {site})")


def _active_mask(emit, node: ast.Call, name: str) -> str:
    return emit.temporary(f"active(R, {emit.mask})")


def _count_bits(emit, node: ast.Call, name: str) -> str:
    return emit.cast(f"popc({_unsigned(emit, node.args[0])})", rules.scalar("uint8"), node.kind)


def _unsigned(emit, node: ast.expr) -> str:
    return emit.cast(emit.value(node), node.kind, rules.scalar(f"uint{node.kind.itemsize * 8}"))


def _fused(emit, node: ast.Call, name: str) -> str:
    emit.count(1, flops=2)
    a, b, c = (emit.value(argument) for argument in node.args)
    return f"({a} * {b} + {c})"


def _free(emit, node: ast.Call, name: str) -> str:
    return "None"


def _device(emit, node: ast.Call, name: str) -> str:
    arguments = "".join(f", {emit.temporary(emit.value(argument))}" for argument in node.args)
    call = f"{node.callee.name}(R, {emit.mask}{arguments})"
    return call if node.kind is NOTHING else emit.temporary(call)


KNOWN = {
    **{"len": _len, "min": _least, "max": _least, "abs": _abs, "round": _round, "device function": _device},
    **{"cuda.grid": _grid, "cuda.gridsize": _grid, "cuda.shared.array": _declared, "cuda.local.array": _declared},
    **{"cuda.const.array_like": _constant_array, "cuda.syncthreads": _barrier, "cuda.syncwarp": _syncwarp},
    **{f"cuda.{name}": _barrier_vote for name in calls.BARRIER_VOTES},
    **{f"cuda.{name}": _shuffle for name in calls.SHUFFLES},
    **{f"cuda.{name}": _vote for name in calls.VOTES},
    **{f"cuda.{name}": _free for name in calls.FENCES},
    **{"cuda.activemask": _active_mask, "cuda.popc": _count_bits, "cuda.fma": _fused},
}
