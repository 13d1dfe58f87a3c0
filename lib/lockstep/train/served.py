"""Training through a parameter server, where ranks need not wait for each other in every step.

Floor 4. Read `lockstep.parallel.server` first.
"""

from __future__ import annotations

from contextlib import ExitStack

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lockstep.comm import Communicator
from lockstep.parallel import ParameterServer
from lockstep.train.step import Step, Strategy, add_up, forward_backward


def parameter_server(staleness: int | None) -> Strategy:
    """The strategy with that `staleness`: 0 synchronous, k bounded (ssp), None asynchronous.

    Asynchronously every rank's part of the batch makes an update of its own. Its gradient is the part's share of the
    whole batch's mean, so the ranks' updates together go as far as one of the whole batch with the same learning
    rate. The optimizer is rebuilt on rank 0 with the same settings, and follows its learning rate.

    All ranks take as many steps, so an epoch lasts as long as its slowest rank needs; what no rank does is to wait in
    each step for the one that happens to be late.
    """

    def strategy(comm: Communicator | None, model: nn.Module, optimizer: Optimizer) -> Step:
        return _ServedStep(comm, model, optimizer, staleness)

    strategy.__name__ = f"parameter_server(staleness={staleness})"
    return strategy


class _ServedStep:
    """A step that hands its gradient in; see `step.Apart`."""

    def __init__(
        self, comm: Communicator | None, model: nn.Module, optimizer: Optimizer, staleness: int | None
    ) -> None:
        self._comm, self._model, self._optimizer = comm, model, optimizer
        self._served = ExitStack()
        self._shares: list[float] = []
        self._server = None
        if comm is not None:
            self._server = ParameterServer(model, self._rebuilt, comm, staleness)
            # A synchronous server takes the mean over ranks of what is to be added up.
            self._scale = comm.size if staleness == 0 else 1

    def _rebuilt(self, parameters: list[nn.Parameter]) -> Optimizer:
        return type(self._optimizer)(parameters, **self._optimizer.defaults)

    def __call__(self, images: Tensor, labels: Tensor, batch: int) -> None:
        if self._server is not None and not self._shares:
            self._served.enter_context(self._server)
        self._shares.append(forward_backward(self._comm, self._model, self._optimizer, images, labels, batch))
        if self._server is None:
            self._optimizer.step()
            return
        for parameter in self._model.parameters():
            if parameter.grad is not None:
                parameter.grad *= self._scale
        if self._server.optimizer is not None:
            for group in self._server.optimizer.param_groups:
                group["lr"] = self._optimizer.param_groups[0]["lr"]
        self._server.step()
        self._optimizer.step()  # finds no gradients; the schedule of its learning rate wants to see steps

    def settle(self) -> list[float]:
        self._served.close()
        shares, self._shares = torch.tensor(self._shares, dtype=torch.float64), []
        device = next(self._model.parameters()).device
        return add_up(self._comm, shares.to(device)).tolist()
