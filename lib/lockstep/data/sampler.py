"""Which images a rank takes in which step of which epoch, so that all ranks together see each image once.

Floor 0, room `data`. Legend: n images, p ranks, B images in a step over all ranks. The epoch has one order, which
depends on seed and epoch alone; step s is order[s B : (s + 1) B], whatever p is, and is dealt out to the ranks. When
n does not divide, the last step is smaller, and some ranks may find an empty batch there: nothing is padded, so
no image counts twice, and every rank takes the same number of steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from numbers import Integral
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Sampler

from lockstep.data.sampling import permutation


class DistributedSampler(Sampler[int]):
    """The indices of rank `rank` of `size`, in a new order in each pass.

    n_or_labels: the number of images; or their labels (int64, 1-D), and then every step, and every rank's part of
    it, holds the classes in the shares that they have in the whole set, to within one image or two (stratified).

    Iterate over the sampler for single indices, as `torch.utils.data.DataLoader(sampler=...)` does, or over
    `batches(B)` for a step's at a time. A pass belongs to the epoch that `set_epoch` names; without it, to the one
    after the last: a forgotten `set_epoch` does not repeat an order, and the first pass is epoch 0.

    `state_dict()` in the middle of a pass says how far it is; after `load_state_dict` the next pass goes on there.
    The state does not depend on the rank, and for `batches` not on the number of ranks either. It counts what was
    taken from the sampler; where others take ahead of the training, `Loader` counts what was handed out.
    Raises ValueError for a rank that does not exist, labels that are none, a negative number.
    """

    def __init__(self, n_or_labels: int | Tensor, rank: int = 0, size: int = 1, seed: int = 0) -> None:
        if isinstance(n_or_labels, Tensor) and n_or_labels.dim():
            self.labels: Tensor | None = _checked(n_or_labels)
            self.n = len(n_or_labels)
        else:
            self.labels, self.n = None, _whole(n_or_labels, "the number of images")
        self.size, self.rank, self.seed = _whole(size, "size", 1), _whole(rank, "rank"), _whole(seed, "seed")
        if self.rank >= self.size:
            raise ValueError(f"rank {rank} of {size} does not exist; ranks run from 0 to size - 1")
        self.epoch = self.done = 0  # of the pass under way: its epoch, and how many images all ranks have taken
        self._begun = False
        self._single_on: int | None = None  # how many ranks take single stratified images: another order than steps

    def set_epoch(self, epoch: int) -> None:
        """Let the next pass be that of `epoch`; one that was loaded half-way goes on where it was."""
        epoch = _whole(epoch, "epoch")
        if self._begun or epoch != self.epoch:
            self.epoch, self.done, self._begun = epoch, 0, False

    def __len__(self) -> int:
        """How many indices this rank takes in a whole pass."""
        return len(range(self.rank, self.n, self.size))

    def __iter__(self) -> Iterator[int]:
        first = self.begin_pass(None if self.labels is None else self.size)
        if self.labels is None:
            mine = self.order()[first:][self.rank :: self.size].tolist()
        else:
            mine = self.part(self.order()).tolist()[first // self.size :]
        return self._count((min(first + k * self.size, self.n), index) for k, index in enumerate(mine, 1))

    def batches(self, batch: int) -> Iterator[list[int]]:
        """This rank's indices of each step of a pass, of `batch` images over all ranks; the last may be empty."""
        _whole(batch, "batch", 1)
        return self._count(self.steps(self.begin_pass(), batch))

    def steps(self, first: int, batch: int) -> list[tuple[int, list[int]]]:
        """(images taken by then, this rank's indices) of each step from image `first` on; counts none as taken."""
        order = self.order()
        ends = [min(start + batch, self.n) for start in range(first, self.n, batch)]
        return [(end, self.part(piece).tolist()) for end, piece in zip(ends, order[first:].split(batch), strict=False)]

    def _count(self, taken: Iterable[tuple[int, Any]]) -> Iterator[Any]:
        for self.done, mine in taken:
            yield mine

    def begin_pass(self, single_on: int | None = None) -> int:
        """Go to the next epoch, unless one was named or loaded; gives how many of its images were taken before.

        Raises ValueError when those are not the first ones of what is to come.
        """
        if self._begun:
            self.epoch, self.done = self.epoch + 1, 0
        if self.done and single_on != self._single_on:
            raise ValueError(
                "this pass began with single stratified images, or on another number of ranks: go on with it in the "
                "same way, or call set_epoch for a new one; with batches(...) the number of ranks may change"
            )
        self._begun, self._single_on = True, single_on
        return self.done

    def order(self) -> Tensor:
        """All n indices in the order of this epoch, the same on every rank."""
        order = permutation(self.n, self.seed, self.epoch)
        if self.labels is None:
            return order
        # The j-th of the n_c images of a class stands at (j + 1/2) / n_c of the way: every stretch has each class in
        # its share, and images at the same place stay in the order of the shuffle.
        labels = self.labels[order]
        by_class = labels.argsort(stable=True)
        counts = torch.bincount(labels)
        starts = counts.cumsum(0) - counts
        place = torch.empty(self.n, dtype=torch.float64)
        place[by_class] = (torch.arange(self.n) - starts[labels[by_class]]).double() + 0.5
        return order[(place / counts[labels]).argsort(stable=True)]

    def part(self, indices: Tensor) -> Tensor:
        """This rank's part of a stretch of the order: every p-th, of each class in turn where there are labels."""
        if self.labels is None:
            return indices[self.rank :: self.size]
        return indices[self.labels[indices].argsort(stable=True)[self.rank :: self.size].sort().values]

    def state_dict(self) -> dict[str, Any]:
        """Where the pass is: plain numbers, equal on every rank that has taken as many steps."""
        return {
            "epoch": self.epoch,
            "done": self.done,
            "single_on": self._single_on,
            "n": self.n,
            "seed": self.seed,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on in the middle of a pass; ValueError when the state is that of other data or another seed."""
        for name in ("n", "seed"):
            if state[name] != getattr(self, name):
                raise ValueError(
                    f"this sampler has {name}={getattr(self, name)}, the state was saved with {state[name]}"
                )
        self.epoch, self.done = state["epoch"], state["done"]
        self._single_on, self._begun = state["single_on"], self.done == self.n > 0


def _whole(value: Any, name: str, least: int = 0) -> int:
    """`value` as an int; ValueError when it is none, or less than `least`."""
    if isinstance(value, Tensor) and not value.dim():
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")
    return int(value)


def _checked(labels: Tensor) -> Tensor:
    if labels.dim() != 1 or labels.is_floating_point() or labels.is_complex() or (len(labels) and labels.min() < 0):
        raise ValueError(
            f"labels must be whole numbers from 0 on, one an image, not {labels.dtype} of shape {tuple(labels.shape)}"
            f"{' with a negative one' if len(labels) and not labels.is_complex() and labels.min() < 0 else ''}"
        )
    return labels.detach().cpu().to(torch.int64)
