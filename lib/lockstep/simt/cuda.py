"""The names that a kernel uses, as in `numba.cuda`: `from lockstep.simt import cuda`.

Floor 0. Inside a kernel they are read by the compiler; called outside of one, they say so.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lockstep.simt.arrays import DeviceArray, device_array, to_device
from lockstep.simt.compile import calls
from lockstep.simt.errors import Unsupported
from lockstep.simt.kernel import Kernel

__all__ = ["DeviceArray", "device_array", "jit", "to_device"]

IGNORED = ("debug", "opt", "lineinfo", "inline", "cache", "max_registers", "fastmath")


def jit(function: Callable | None = None, *, device: bool = False, **options: object) -> Kernel | Callable:
    """Make a function a kernel, or with `device=True` one that kernels call. Use it bare or with brackets.

    Options of Numba that change how fast a GPU runs and not what it computes are accepted and have no effect here.
    """
    unknown = set(options) - set(IGNORED)
    if unknown or isinstance(function, (str, list, tuple)):
        what = "a signature" if isinstance(function, (str, list, tuple)) else f"{', '.join(sorted(unknown))}="
        raise Unsupported(f"cuda.jit takes no {what} here: kinds come from the launch's arguments")
    if function is None:
        return lambda wrapped: Kernel(wrapped, device)
    return Kernel(function, device)


def device_array_like(array: np.ndarray | DeviceArray) -> DeviceArray:
    """Room for an array of the same shape and dtype."""
    return device_array(array.shape, array.dtype)


def synchronize() -> None:
    """Wait for the device, which here has always finished."""


def is_available() -> bool:
    """True: this GPU is always there."""
    return True


def close() -> None:
    """Give the device back."""


class _Inside:
    """A name with a meaning inside a kernel only."""

    def __init__(self, path: str) -> None:
        self.lockstep_path = path

    def __call__(self, *arguments: object) -> None:
        raise Unsupported(
            f"{self.lockstep_path} has a meaning inside a kernel only: launch it with kernel[grid, block]"
        )

    def __getattr__(self, name: str) -> _Inside:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Inside(f"{self.lockstep_path}.{name}")

    def __repr__(self) -> str:
        return f"<{self.lockstep_path}, for use inside kernels>"


threadIdx, blockIdx, blockDim, gridDim = (
    _Inside(f"cuda.{name}") for name in ("threadIdx", "blockIdx", "blockDim", "gridDim")
)
shared, local, const, atomic = (_Inside(f"cuda.{name}") for name in ("shared", "local", "const", "atomic"))
laneid, warpsize = _Inside("cuda.laneid"), 32
for _path in calls.KNOWN:
    if _path.count(".") == 1:
        globals()[_path.removeprefix("cuda.")] = _Inside(_path)
