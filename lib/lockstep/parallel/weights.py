"""The parameter server's books: the weights, their version, every worker's clock, and who may go on.

Floor 2, room `parallel`. Nothing here communicates; `server` does. A worker's *clock* counts the steps that it has
handed in. The *version* of the weights counts the updates made to them. A gradient's *staleness* is the number of
updates between the weights it was computed from and those it is applied to.

| staleness | an update is made                         | worker r goes on when                                |
|-----------|-------------------------------------------|------------------------------------------------------|
| 0         | once all have handed in, from their mean  | it is made                                           |
| k         | at once, from one gradient                | clock of r - clock of the slowest <= k (Ho et al. 2013) |
| None      | at once, from one gradient                | at once                                              |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

MakeOptimizer = Callable[[list[nn.Parameter]], Optimizer]


@dataclass(frozen=True)
class Gradient:
    """What a worker hands in: one tensor for each parameter, or None where it has none.

    version: of the weights it was computed from. samples: how many it is the mean over; with 0 it changes nothing.
    """

    tensors: Sequence[Tensor | None]
    version: int
    samples: int


@dataclass(frozen=True)
class Leave:
    """Word to a worker that it may go on: how stale its gradient was, and its clock's lead over the slowest."""

    staleness: int
    lead: int


class Weights:
    """The weights of a model whose parameters are `parameters`, for workers 0 to `workers` - 1."""

    def __init__(
        self, parameters: Sequence[nn.Parameter], make_optimizer: MakeOptimizer, workers: int, staleness: int | None
    ) -> None:
        self.parameters = [nn.Parameter(parameter.detach().cpu().clone()) for parameter in parameters]
        self.optimizer = make_optimizer(self.parameters)
        self.version = 0
        self._workers, self._bound = workers, staleness
        self._round: dict[int, Gradient] = {}
        self.start()

    def start(self) -> None:
        """Every worker takes part (again), from clock 0."""
        self.active = set(range(self._workers))
        self._clocks = [0] * self._workers
        self._waiting: dict[int, int] = {}  # worker -> staleness of what it handed in last
        self._finishing: set[int] = set()

    def hand_in(self, worker: int, gradient: Gradient) -> None:
        """One step of `worker`."""
        self._clocks[worker] += 1
        if self._bound == 0:
            self._waiting[worker] = 0
            self._round[worker] = gradient
        else:
            self._waiting[worker] = self.version - gradient.version if gradient.samples else 0
            self._update(gradient.tensors if gradient.samples else ())

    def finish(self, worker: int) -> None:
        """`worker` has no more steps, and waits for the last weights."""
        self.active.discard(worker)
        self._finishing.add(worker)

    def leave(self, worker: int) -> None:
        """`worker` has no more steps, and waits for nothing."""
        self.active.discard(worker)

    def let_go(self) -> dict[int, Leave]:
        """The workers that may go on now and have not been told, in order; makes the round's update once it is full."""
        if self._round and self.active <= self._round.keys():
            self._update(self._mean_of_round())
            self._round.clear()
        if not self.active:
            freed = dict.fromkeys(self._finishing, Leave(0, 0))
            self._finishing = set()
        else:
            slowest = min(self._clocks[worker] for worker in self.active)
            freed = {
                worker: Leave(stale, self._clocks[worker] - slowest)
                for worker, stale in self._waiting.items()
                if worker not in self._round and (self._bound is None or self._clocks[worker] - slowest <= self._bound)
            }
        for worker in freed:
            self._waiting.pop(worker, None)
        return dict(sorted(freed.items()))

    def _mean_of_round(self) -> list[Tensor | None]:
        """The mean over all samples of the round, added up in the order of the workers."""
        gradients = [self._round[worker] for worker in sorted(self._round) if self._round[worker].samples]
        total = sum(gradient.samples for gradient in gradients)
        means: list[Tensor | None] = []
        for i in range(len(self.parameters)):
            terms = [g.tensors[i] * g.samples for g in gradients if g.tensors[i] is not None]
            means.append(sum(terms[1:], start=terms[0]) / total if terms else None)
        return means

    @torch.no_grad()
    def _update(self, gradients: Sequence[Tensor | None]) -> None:
        if all(gradient is None for gradient in gradients):
            return
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        self.optimizer.step()
        for parameter in self.parameters:
            parameter.grad = None
        self.version += 1
