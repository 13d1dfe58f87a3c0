"""What a strategy is, and the pieces that several of them are made of.

Floor 4. Read `strategies` next. The ranks' parts of a batch may differ in size, down to none: each rank's loss is the
sum over its images divided by the images of the whole batch, so adding up the ranks' gradients gives exactly the
whole batch's mean.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, runtime_checkable

from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from lockstep.comm import Communicator
from lockstep.parallel import Replicated, ZeRO

Step = Callable[[Tensor, Tensor, int], float | None]
"""(this rank's images, their labels, images in the whole batch) -> mean loss over the whole batch, on every rank.

None from a step that leaves the ranks apart, which then has `settle` (see `Apart`)."""

Strategy = Callable[[Communicator | None, nn.Module, Optimizer], Step]
"""(communicator, or None in a process of its own; model; its optimizer) -> step. Called by every rank."""


@runtime_checkable
class Apart(Protocol):
    """A step after which ranks may have different weights and know their own losses only."""

    def settle(self) -> list[float]:
        """Collective, at the end of an epoch or before a checkpoint: give every rank the same weights.

        Gives the losses of the steps since the last time."""


@runtime_checkable
class Placed(Protocol):
    """A step for which several ranks together have one part of each batch: this rank has `part` of `parts`."""

    part: int
    parts: int


@runtime_checkable
class Kept(Protocol):
    """A step that says what a checkpoint is made of; otherwise it is the model and its optimizer.

    None where more goes on from step to step than a checkpoint can hold.
    """

    kept: ZeRO | Replicated | None


def forward_backward(
    comm: Communicator | None, model: nn.Module, optimizer: Optimizer, images: Tensor, labels: Tensor, batch: int
) -> float:
    """Fresh gradients of this rank's share of the whole batch's mean loss, and that share; without images, none."""
    optimizer.zero_grad(set_to_none=True)
    if not len(labels):
        return 0.0
    with span(comm, "forward"):
        loss = F.cross_entropy(model(images), labels, reduction="sum") / batch
    with span(comm, "backward"):
        loss.backward()
    return loss.item()


def step_alone(comm: Communicator | None, model: nn.Module, optimizer: Optimizer) -> Step:
    """The step of a process of its own, or of the only rank."""

    def step(images: Tensor, labels: Tensor, batch: int) -> float:
        loss = forward_backward(comm, model, optimizer, images, labels, batch)
        optimizer.step()
        return loss

    return step


def averaging_step(
    comm: Communicator, forward: Callable[[Tensor], Tensor], optimizer: Optimizer, finish: Callable[[], object] = int
) -> Step:
    """A step of ranks whose gradients become the mean over ranks during backward, or in `finish()` after it."""

    def step(images: Tensor, labels: Tensor, batch: int) -> float:
        optimizer.zero_grad(set_to_none=True)
        with span(comm, "forward"):
            loss = F.cross_entropy(forward(images), labels, reduction="sum") / batch
        report = comm.all_reduce(loss.detach().double(), async_op=True)  # on its way while backward computes
        with span(comm, "backward"):
            (loss * comm.size).backward()  # the mean over ranks is taken of what is to be added up
            finish()
        optimizer.step()
        return report.wait().item()

    return step


def add_up(comm: Communicator | None, tensor: Tensor) -> Tensor:
    """The sum of every rank's tensor, in place."""
    return tensor if comm is None else comm.all_reduce(tensor)


def span(comm: Communicator | None, name: str) -> AbstractContextManager:
    """Record a part of the step on the rank's timeline, where there is one."""
    return nullcontext() if comm is None else comm.span(name)
