"""A data set whose items are read once and then kept in memory, which a loader's worker processes share.

Floor 0, room `data`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset

SHARED = Path("/dev/shm")


class Cache(Dataset):
    """`dataset`, a map-style data set, with each item kept once it was asked for.

    An item is a tensor or number, or a tuple of them, and comes back as a tuple of tensors. All have the shapes of
    item 0 and are the same each time: put random augmentation behind the cache, not before. Made before a loader
    starts its workers, it is one cache for all of them. Raises ValueError for an item of another shape, MemoryError
    when they do not all fit.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._dataset, self._n = dataset, len(dataset)
        first = _parts(dataset[0]) if self._n else ()
        needed, free = sum(part.nbytes for part in first) * self._n, shared_memory_free()
        if free is not None and needed > free:
            raise MemoryError(
                f"{self._n} items of this data set need {needed / 2**20:.0f} MiB of shared memory, and "
                f"{free / 2**20:.0f} MiB of {SHARED} are free: read them without a cache, or make it larger"
            )
        self._kept = [part.new_empty((self._n, *part.shape)).share_memory_() for part in first]
        self._is_kept = torch.zeros(self._n, dtype=torch.bool).share_memory_()

    def __len__(self) -> int:
        return self._n

    @property
    def kept(self) -> int:
        """How many items are in memory."""
        return int(self._is_kept.sum())

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        if not self._is_kept[index]:
            self._keep(index, _parts(self._dataset[index]))
        return tuple(kept[index].clone() for kept in self._kept)

    def _keep(self, index: int, parts: tuple[Tensor, ...]) -> None:
        for kept, part in zip(self._kept, parts, strict=True):
            if part.shape != kept.shape[1:] or part.dtype != kept.dtype:
                raise ValueError(
                    f"item {index} has {part.dtype} of shape {tuple(part.shape)} where item 0 has {kept.dtype} of "
                    f"shape {tuple(kept.shape[1:])}: a cache keeps items of one shape"
                )
            kept[index].copy_(part)
        self._is_kept[index] = True


def shared_memory_free() -> int | None:
    """Bytes that processes can still share, where that is a file system of its own (Linux); None elsewhere."""
    return shutil.disk_usage(SHARED).free if SHARED.is_dir() else None


def _parts(item: object) -> tuple[Tensor, ...]:
    return tuple(torch.as_tensor(part) for part in (item if isinstance(item, (tuple, list)) else (item,)))
