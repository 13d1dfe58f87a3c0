"""What a name outside the kernel means to the compiler: a number, a constant array, `cuda`, `math`, a device function.

Floor 0. `cuda` may be ours or Numba's: a kernel's text is the same for both.
"""

from __future__ import annotations

import builtins
import inspect
import math

import numpy as np

from lockstep.simt import rules
from lockstep.simt.compile.kinds import NOTHING, Array, Static, Tuple
from lockstep.simt.errors import Unsupported

BUILTINS = ("range", "len", "min", "max", "abs", "int", "float", "bool", "round")
CUDA_MODULES = ("lockstep.simt.cuda", "numba.cuda")


def kind_of(value: object, name: str, line: int) -> tuple[object, object]:
    """The kind of a value from outside, and the value itself where the compiler can compute with it, else None.

    Raises Unsupported for what a kernel cannot hold.
    """
    if value is None:
        return NOTHING, None
    if isinstance(value, (bool, int, float, np.generic)):
        try:
            return rules.literal(value), value
        except rules.TypeRefused as refused:
            raise Unsupported(f"{name}: {refused}", line) from None
    if isinstance(value, tuple):
        inner = [kind_of(item, name, line) for item in value]
        return Tuple(tuple(kind for kind, _ in inner)), value
    if isinstance(value, np.ndarray):
        return Array(rules.scalar(value.dtype), value.ndim, "const"), value
    return Static(_path(value, name, line), value), None


def _path(value: object, name: str, line: int) -> str:
    module = getattr(value, "__name__", "")
    if value is math:
        return "math"
    if value is np:
        return "numpy"
    if module in CUDA_MODULES or module.startswith("numba.cuda.simulator"):
        return "cuda"
    if getattr(value, "lockstep_path", None):
        return value.lockstep_path
    for builtin in BUILTINS:
        if value is getattr(builtins, builtin):
            return builtin
    if getattr(value, "__module__", None) == "math":
        return f"math.{module}"
    if hasattr(value, "py_func"):
        return "device function"
    try:
        return f"number {rules.scalar(value)}"
    except rules.TypeRefused:
        pass
    if module == "numba":
        return "numba"
    if value is print:
        raise Unsupported("print does not work in a kernel here: store the value in an array and look at it", line)
    if inspect.isbuiltin(value) or inspect.isclass(value):
        raise Unsupported(f"{name} is Python's own, and kernels know only {', '.join(BUILTINS)}", line)
    kind = "a function without @cuda.jit(device=True)" if callable(value) else f"a {type(value).__name__}"
    raise Unsupported(f"{name} is {kind}, which a kernel cannot use", line)


def attribute(owner: Static, name: str, line: int) -> tuple[object, object]:
    """The kind (and value, where known) of `owner.name` for a module or a namespace."""
    path = f"{owner.path}.{name}"
    if owner.path in ("math", "numpy", "numba"):
        if not hasattr(owner.value, name):
            raise Unsupported(f"{path} does not exist", line)
        value = getattr(owner.value, name)
        if owner.path == "numpy" and not isinstance(value, (float, type)):
            instead = f"math.{name}, not NumPy's functions" if hasattr(math, name) else "loops, not NumPy's functions"
            if name in ("array", "empty", "full", "ones", "zeros"):
                instead = "cuda.shared.array and cuda.local.array, which begin with whatever was there before"
            raise Unsupported(f"{path}: kernels use {instead}", line)
        return kind_of(value, path, line)
    return Static(path), None
