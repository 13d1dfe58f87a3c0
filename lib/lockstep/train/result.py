"""What a training run did. Floor 4."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True, eq=False)
class TrainResult:
    """What a training run did; every rank returns the same, but for its clock.

    losses: mean loss over the whole batch, one for each step.
    accuracies: share of the held-out images that are right, one for each epoch.
    seconds: of the training steps alone, without loading and evaluation; virtual in the simulated world.
    images: how many images the steps took in, over all ranks and epochs.
    weights: the trained parameters and buffers, for `model.load_state_dict`.
    """

    strategy: str
    model: str
    data: str
    ranks: int
    threads: int
    device: str
    epochs: int
    batch: int
    lr: float
    seed: int | None
    losses: tuple[float, ...] = field(repr=False)
    accuracies: tuple[float, ...] = field(repr=False)
    seconds: float
    images: int
    weights: dict[str, Tensor] = field(repr=False)

    @property
    def accuracy(self) -> float:
        """Share of the held-out images that are right after the last epoch."""
        return self.accuracies[-1]

    @property
    def images_per_second(self) -> float:
        return self.images / self.seconds if self.seconds else math.inf

    def __repr__(self) -> str:
        ranks = "1 process" if self.ranks == 1 else f"{self.ranks} ranks"
        return (
            f"{self.model} on {self.data}, strategy {self.strategy}, {ranks}, {len(self.losses)} steps of "
            f"{self.batch} images: {self.accuracy:.1%} of the held-out images right, last loss {self.losses[-1]:.3f}, "
            f"{self.seconds:.1f} s of training, {self.images_per_second:,.0f} images/s"
        )
