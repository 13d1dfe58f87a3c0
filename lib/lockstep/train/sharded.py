"""Training with ZeRO: ranks share out the optimizer's state, the gradients, the parameters.

Floor 4. Read `lockstep.parallel.zero` first.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from lockstep.comm import Communicator
from lockstep.parallel import Replicated, ZeRO
from lockstep.parallel.precision import PRECISIONS
from lockstep.train.step import Step, Strategy, add_up, forward_backward, span


def zero(stage: int, precision: str = "fp32") -> Strategy:
    """The strategy of that `stage`: 1 shares out the optimizer's state, 2 gradients too, 3 parameters too.

    The optimizer is rebuilt on this rank's shards with the same settings, and follows its learning rate. precision: in
    "bf16" or "fp16" the model computes in two bytes. Raises ValueError for another one, or where there are no ranks.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"there is no precision {precision!r}; there are {', '.join(PRECISIONS)}")

    def strategy(comm: Communicator | None, model: nn.Module, optimizer: Optimizer) -> Step:
        if comm is None and precision != "fp32":
            raise ValueError(
                f"precision {precision!r} needs ranks, be it one: launch(train, 1, ...), or torchrun --nproc-per-node=1"
            )
        return _ShardedStep(comm, model, optimizer, stage, precision)

    strategy.__name__ = f"zero{stage}" if precision == "fp32" else f"zero{stage}(precision={precision!r})"
    return strategy


class _ShardedStep:
    """A step of `ZeRO`; see `step.Apart` and `step.Kept`: in stage 3 parameters are whole again only at the end of an epoch."""

    def __init__(
        self, comm: Communicator | None, model: nn.Module, optimizer: Optimizer, stage: int, precision: str
    ) -> None:
        self._comm, self._model, self._optimizer = comm, model, optimizer
        self._shares: list[float] = []
        self._zero = None if comm is None else ZeRO(model, self._rebuilt, comm, stage, precision=precision)
        self.kept = self._zero or Replicated(model, optimizer)

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
