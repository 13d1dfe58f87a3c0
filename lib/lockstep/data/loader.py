"""Batches for one rank, made ready while it computes: torch's `DataLoader`, fed by our sampler.

Floor 0, room `data`. Legend: B images in a step over all ranks.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from lockstep.data.cache import shared_memory_free
from lockstep.data.sampler import DistributedSampler
from lockstep.data.sets import Images


class Loader:
    """This rank's (images, labels) for each step of a pass over `data`; `len` steps, as many on every rank.

    data: `Images`, a tuple of tensors of equal length, or any map-style data set. batch: B. sampler: who takes what
    when, by default this process alone. workers: processes that make batches ready ahead, `prefetch` each; with 0
    the rank makes each when it needs it. device: where batches go, on the way while the one before is used.

    A rank that has no image in the last step gets empty tensors. `state_dict` counts the batches that were handed
    out, not those that workers made ready ahead, so a run that stops and goes on sees each image once.
    Raises ValueError when sampler and data differ in length, or for a number that makes no sense.
    """

    def __init__(
        self,
        data: Images | tuple[Tensor, ...] | Dataset,
        batch: int,
        sampler: DistributedSampler | None = None,
        *,
        workers: int = 0,
        prefetch: int = 2,
        device: torch.device | str | None = None,
    ) -> None:
        tensors = (data.images, data.labels) if isinstance(data, Images) else data
        self._data = _Tensors(tensors) if isinstance(tensors, tuple) else _Items(tensors)
        self.sampler = DistributedSampler(len(self._data)) if sampler is None else sampler
        if self.sampler.n != len(self._data):
            raise ValueError(f"the sampler is for {self.sampler.n} images, the data has {len(self._data)}")
        for name, value, least in (("batch", batch, 1), ("workers", workers, 0), ("prefetch", prefetch, 1)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")
        self.batch, self._device = batch, None if device is None else torch.device(device)
        self._workers, self._prefetch = self._that_fit(workers, prefetch), prefetch

    def __len__(self) -> int:
        return -(-self.sampler.n // self.batch)

    def set_epoch(self, epoch: int) -> None:
        """Let the next pass be that of `epoch`; see `DistributedSampler`."""
        self.sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        return self.through(self._on_device)

    def through(self, stage: Callable[[Iterable[Any]], Iterator[Any]]) -> Iterator[Any]:
        """A pass whose batches go through `stage` before they are handed out and count; see `prefetch`."""
        steps = self.sampler.steps(self.sampler.begin_pass(), self.batch)
        # A generator of our own: torch would draw from the program's, and another dropout mask would come next.
        generator = torch.Generator().manual_seed(hash((self.sampler.seed, self.sampler.epoch, self.sampler.rank)))
        loader = DataLoader(
            self._data,
            batch_sampler=[indices for _, indices in steps],
            collate_fn=_as_it_is,
            num_workers=min(self._workers, len(steps)),
            prefetch_factor=self._prefetch if self._workers and steps else None,
            pin_memory=self._device is not None and self._device.type == "cuda",
            generator=generator,
        )
        return self._hand_out(stage(loader), [end for end, _ in steps])

    def _hand_out(self, batches: Iterator[Any], ends: Sequence[int]) -> Iterator[Any]:
        for batch, end in zip(batches, ends, strict=True):
            self.sampler.done = end
            yield batch

    def _on_device(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Batches, each on its way to the device since the one before was asked for."""
        if self._device is None:
            yield from batches
            return
        moving: list[Any] = []
        for batch in batches:
            moving.append(each_tensor(lambda tensor: tensor.to(self._device, non_blocking=True), batch))
            if len(moving) == 2:
                yield moving.pop(0)
        yield from moving

    def _that_fit(self, workers: int, prefetch: int) -> int:
        """How many workers there can be: what they make ready lies in shared memory, and without room they crash."""
        free = shared_memory_free()
        if not workers or not len(self._data) or free is None:
            return workers
        sizes: list[int] = []
        each_tensor(lambda tensor: sizes.append(tensor.nbytes), self._data.__getitems__([0]))
        each = sum(sizes) * -(-min(self.batch, self.sampler.n) // self.sampler.size)
        fit = min(workers, free // max(1, each * (prefetch + 1)))
        if fit < workers:
            warnings.warn(
                f"{workers} workers with {prefetch} batches of {each / 2**20:.0f} MiB do not fit into the "
                f"{free / 2**20:.0f} MiB of shared memory that are free: {fit} are used",
                stacklevel=3,
            )
        return fit

    def state_dict(self) -> dict[str, Any]:
        """Where the pass is; see `DistributedSampler`."""
        return self.sampler.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on in the middle of a pass."""
        self.sampler.load_state_dict(state)


class _Tensors(Dataset):
    """Whole tensors: a batch is one indexing."""

    def __init__(self, tensors: tuple[Tensor, ...]) -> None:
        self._tensors = tensors
        lengths = [len(tensor) for tensor in tensors]
        if len(set(lengths)) != 1:
            raise ValueError(f"the tensors of a data set must be equally long, not {lengths}")

    def __len__(self) -> int:
        return len(self._tensors[0])

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, ...]:
        return tuple(tensor[torch.tensor(indices, dtype=torch.int64)] for tensor in self._tensors)


class _Items(Dataset):
    """Any map-style data set: a batch is its items put together, one without items an empty piece of item 0's."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitems__(self, indices: list[int]) -> Any:
        if indices:
            return default_collate([self._dataset[index] for index in indices])
        return each_tensor(lambda tensor: tensor[:0], default_collate([self._dataset[0]]))


def each_tensor(change: Callable[[Tensor], Any], batch: Any) -> Any:
    """`batch`, a tensor or a tuple, list or dictionary with tensors, with each of them changed."""
    if isinstance(batch, Tensor):
        return change(batch)
    if isinstance(batch, Mapping):
        return {name: each_tensor(change, value) for name, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        return tuple(each_tensor(change, value) for value in batch)
    return batch


def _as_it_is(batch: Any) -> Any:
    return batch
