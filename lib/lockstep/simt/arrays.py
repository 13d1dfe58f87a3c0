"""Arrays on the simulated GPU, with the methods of Numba's device arrays.

Floor 0. A device array is a view on a flat allocation of its own; slices and transposes share it. The host sees its
contents through `copy_to_host()` alone, as on a GPU.
"""

from __future__ import annotations

import math

import numpy as np

from lockstep.simt import rules
from lockstep.simt.errors import LaunchError


class DeviceArray:
    """`view` is a NumPy view on `flat`, the allocation."""

    def __init__(self, flat: np.ndarray, view: np.ndarray) -> None:
        self.flat, self.view = flat, view

    shape = property(lambda self: self.view.shape)
    size = property(lambda self: self.view.size)
    ndim = property(lambda self: self.view.ndim)
    dtype = property(lambda self: self.view.dtype)
    strides = property(lambda self: self.view.strides)
    nbytes = property(lambda self: self.view.nbytes)

    def __len__(self) -> int:
        return len(self.view)

    def __repr__(self) -> str:
        return f"<device array of {self.dtype}, shape {self.shape}: copy_to_host() shows it>"

    @property
    def T(self) -> DeviceArray:
        return DeviceArray(self.flat, self.view.T)

    def copy_to_host(self, ary: np.ndarray | None = None, stream: object = 0) -> np.ndarray:
        """The contents as a new NumPy array, or copied into `ary`."""
        if ary is None:
            return self.view.copy()
        np.copyto(ary, self.view)
        return ary

    def copy_to_device(self, ary: np.ndarray | DeviceArray, stream: object = 0) -> None:
        """Overwrite the contents."""
        np.copyto(self.view, ary.view if isinstance(ary, DeviceArray) else ary)

    def reshape(self, *shape: int | tuple[int, ...]) -> DeviceArray:
        """The same cells under another shape; ValueError where that would need a copy."""
        flat_shape = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        view = self.view.reshape(flat_shape)
        if not np.shares_memory(view, self.view) and view.size:
            raise ValueError("this device array is not contiguous, so it cannot be reshaped in place")
        return DeviceArray(self.flat, view)

    def ravel(self) -> DeviceArray:
        return self.reshape(self.size)

    def __getitem__(self, index: object) -> DeviceArray | np.generic:
        found = self.view[index]
        return DeviceArray(self.flat, found) if isinstance(found, np.ndarray) else found

    def __setitem__(self, index: object, value: object) -> None:
        self.view[index] = value.view if isinstance(value, DeviceArray) else value


def device_array(shape: int | tuple[int, ...], dtype: object = np.float64) -> DeviceArray:
    """Room for an array, filled with a pattern that shows where nothing was written."""
    kind = rules.scalar(dtype)
    shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    flat = np.empty(math.prod(shape), dtype=kind)
    flat.view(np.uint8)[:] = 0xAB  # a GPU's memory holds whatever was there, which must not look like an answer
    return DeviceArray(flat, flat.reshape(shape))


def to_device(array: np.ndarray | DeviceArray) -> DeviceArray:
    """A copy on the simulated GPU, rows in the order in which the host keeps them."""
    if isinstance(array, DeviceArray):
        array = array.view
    array = np.asarray(array)
    try:
        rules.scalar(array.dtype)
    except rules.TypeRefused as refused:
        raise LaunchError(f"an array of {array.dtype} cannot go to the device: {refused}") from None
    order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    flat = array.ravel(order=order).copy()
    return DeviceArray(flat, flat.reshape(array.shape, order=order))


def layout(array: DeviceArray) -> tuple[tuple[int, ...], int]:
    """(strides, offset) of a view in its allocation, in elements."""
    size = array.dtype.itemsize
    start = array.view.__array_interface__["data"][0] - array.flat.__array_interface__["data"][0]
    return tuple(stride // size for stride in array.view.strides), start // size if array.size else 0
