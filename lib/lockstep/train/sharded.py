"""Training with ZeRO: ranks share out the optimizer's state, the gradients, the parameters.

Floor 4. Read `lockstep.parallel.zero` first.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from lockstep.comm import Communicator
from lockstep.parallel import ZeRO
from lockstep.train.step import Step, Strategy, add_up, forward_backward, span


def zero(stage: int) -> Strategy:
    """The strategy of that `stage`: 1 shares out the optimizer's state, 2 gradients too, 3 parameters too.

    The optimizer is rebuilt on this rank's shards with the same settings, and follows its learning rate.
    """

    def strategy(comm: Communicator | None, model: nn.Module, optimizer: Optimizer) -> Step:
        return _ShardedStep(comm, model, optimizer, stage)

    strategy.__name__ = f"zero(stage={stage})"
    return strategy


class _ShardedStep:
    """A step of `ZeRO`; see `step.Apart`: in stage 3 parameters are whole again only at the end of an epoch."""

    def __init__(self, comm: Communicator | None, model: nn.Module, optimizer: Optimizer, stage: int) -> None:
        self._comm, self._model, self._optimizer = comm, model, optimizer
        self._shares: list[float] = []
        self._zero = None if comm is None else ZeRO(model, self._rebuilt, comm, stage)

    def _rebuilt(self, shards: list[nn.Parameter]) -> Optimizer:
        return type(self._optimizer)(shards, **self._optimizer.defaults)

    def __call__(self, images: Tensor, labels: Tensor, batch: int) -> None:
        if self._zero is None:
            self._shares.append(forward_backward(None, self._model, self._optimizer, images, labels, batch))
            self._optimizer.step()
            return
        with span(self._comm, "forward"):
            loss = F.cross_entropy(self._zero(images), labels, reduction="sum") / batch
        with span(self._comm, "backward"):
            (loss * self._comm.size).backward()  # the mean over ranks is taken of what is to be added up
        for group in self._zero.optimizer.param_groups:
            group["lr"] = self._optimizer.param_groups[0]["lr"]
        self._zero.step()
        self._optimizer.step()  # finds no gradients; the schedule of its learning rate wants to see steps
        self._shares.append(loss.item())

    def settle(self) -> list[float]:
        if self._zero is not None:
            self._zero.make_whole()
        shares, self._shares = torch.tensor(self._shares, dtype=torch.float64), []
        return add_up(self._comm, shares.to(next(self._model.parameters()).device)).tolist()
