"""A batch with its memories: what compiled code calls `R`.

Floor 0, on top of `batch`, `memory` and `scratch`.
"""

from __future__ import annotations

import numpy as np

from lockstep.simt.run.batch import Batch
from lockstep.simt.run.masks import Mask
from lockstep.simt.run.memory import ConstantArray, GlobalArray, Storage
from lockstep.simt.run.scratch import LocalArray, SharedArray


class Machine(Batch):
    """Blocks of one launch that run together."""

    def global_array(self, flat: np.ndarray, shape, strides, offset: int, storage: Storage) -> GlobalArray:
        """An argument's view on its allocation."""
        return GlobalArray(self, flat, shape, strides, np.int64(offset) if offset else 0, storage)

    def constant_array(self, data: np.ndarray) -> ConstantArray:
        """An array from outside the kernel."""
        if id(data) not in self.storage:
            self.storage[id(data)] = ConstantArray(self, data)
        return self.storage[id(data)]

    def shared(self, origin: str, shape: tuple[int, ...], dtype: np.dtype, watched: bool) -> SharedArray:
        """A block's array, the same one each time its declaration is passed; (0,) takes the launch's dynamic bytes."""
        if origin not in self.storage:
            if shape == (0,):
                shape = (self.dynamic_bytes // dtype.itemsize,)
            self.storage[origin] = SharedArray(self, shape, dtype, watched)
        return self.storage[origin]

    def local(self, origin: str, shape: tuple[int, ...], dtype: np.dtype, mask: Mask) -> LocalArray:
        """A thread's array."""
        if origin not in self.storage:
            self.storage[origin] = LocalArray(self, shape, dtype)
        return self.storage[origin]
