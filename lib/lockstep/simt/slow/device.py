"""What `cuda` is to a slowly run thread.

Floor 0. Attributes are looked up while the thread runs, so they are those of the thread that asks.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from lockstep.simt import rules
from lockstep.simt.places import WARP
from lockstep.simt.slow.memory import SlowArray
from lockstep.simt.slow.numbers import Number

CHANGES = {
    **{"add": np.add, "sub": np.subtract},
    "max": lambda old, new: new if new > old else old,
    "min": lambda old, new: new if new < old else old,
    **{"and_": np.bitwise_and, "or_": np.bitwise_or, "xor": np.bitwise_xor, "exch": lambda old, new: new},
}
EVERYBODY = Number(0xFFFFFFFF)


class Device:
    """The module `cuda` for one launch."""

    warpsize = Number(WARP, rules.INT32)

    def __init__(self, executor) -> None:
        self.executor = executor
        self.shared = SimpleNamespace(array=lambda shape, dtype: executor.declared("shared", shape, dtype))
        self.local = SimpleNamespace(array=lambda shape, dtype: executor.declared("local", shape, dtype))
        self.const = SimpleNamespace(array_like=lambda array: array)
        self.atomic = SimpleNamespace(
            **{name: self._atomic(change) for name, change in CHANGES.items()},
            cas=self._cas,
            compare_and_swap=lambda array, old, new: self._cas(array, Number(0), old, new),
        )

    threadIdx = property(lambda self: _dim(self.executor.thread))
    blockIdx = property(lambda self: _dim(self.executor.block))
    blockDim = property(lambda self: _dim(self.executor.places.block, 1))
    gridDim = property(lambda self: _dim(self.executor.places.grid, 1))
    laneid = property(lambda self: Number(self.executor.number % WARP, rules.INT32))

    def grid(self, ndim: Number) -> Number | tuple[Number, ...]:
        here, dim, block = self.threadIdx, self.blockDim, self.blockIdx
        found = [getattr(block, axis) * getattr(dim, axis) + getattr(here, axis) for axis in "xyz"]
        return found[0] if int(ndim) == 1 else tuple(found[: int(ndim)])

    def gridsize(self, ndim: Number) -> Number | tuple[Number, ...]:
        found = [getattr(self.blockDim, axis) * getattr(self.gridDim, axis) for axis in "xyz"]
        return found[0] if int(ndim) == 1 else tuple(found[: int(ndim)])

    def _atomic(self, change):
        def apply(array: SlowArray, index: object, value: Number) -> Number:
            return array.change(index, lambda old: change(old, Number(value, array.kind).value))

        return apply

    def _cas(self, array: SlowArray, index: object, expected: Number, value: Number) -> Number:
        wanted, new = Number(expected, array.kind).value, Number(value, array.kind).value
        return array.change(index, lambda old: new if old == wanted else old)

    # Barriers: the executor answers when everybody is there.

    def syncthreads(self) -> None:
        self.executor.wait("block", "syncthreads", None, Number(0), None)

    def syncthreads_count(self, predicate: Number) -> Number:
        return self.executor.wait("block", "syncthreads_count", None, predicate, None)

    def syncthreads_and(self, predicate: Number) -> Number:
        return self.executor.wait("block", "syncthreads_and", None, predicate, None)

    def syncthreads_or(self, predicate: Number) -> Number:
        return self.executor.wait("block", "syncthreads_or", None, predicate, None)

    def syncwarp(self, members: Number = EVERYBODY) -> None:
        self.executor.wait("warp", "syncwarp", members, Number(0), None)

    def __getattr__(self, name: str):
        if name.startswith("shfl_") or name in ("all_sync", "any_sync", "eq_sync", "ballot_sync"):
            return lambda members, value, argument=None: self.executor.wait("warp", name, members, value, argument)
        if name.startswith("threadfence"):
            return lambda: None
        raise AttributeError(name)

    def fma(self, a: Number, b: Number, c: Number) -> Number:
        return a * b + c

    def popc(self, value: Number) -> Number:
        width = 8 * value.kind.itemsize
        return Number(bin(int(value) & ((1 << width) - 1)).count("1"), value.kind)


def _dim(index: tuple[int, ...], missing: int = 0) -> SimpleNamespace:
    x, y, z = (*index, missing, missing)[:3]
    return SimpleNamespace(x=Number(x, rules.INT32), y=Number(y, rules.INT32), z=Number(z, rules.INT32))
