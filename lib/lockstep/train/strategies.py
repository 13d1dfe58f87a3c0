"""How one training step is shared out among ranks; each strategy is a function, known by its name in `STRATEGIES`.

Floor 4. A strategy is given the model before the first step and returns the step. The model knows nothing of it.
The ranks' parts of a batch may differ in size, down to none: each rank's loss is the sum over its images divided
by the images of the whole batch, so adding up the ranks' gradients gives exactly the whole batch's mean.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from lockstep.comm import Communicator

Step = Callable[[Tensor, Tensor, int], float]
"""(this rank's images, their labels, images in the whole batch) -> mean loss over the whole batch, on every rank."""

Strategy = Callable[[Communicator | None, nn.Module, Optimizer], Step]
"""(communicator, or None in a process of its own; model; its optimizer) -> step. Called by every rank."""


def none(comm: Communicator | None, model: nn.Module, optimizer: Optimizer) -> Step:
    """Train in one process. Raises ValueError when there are more."""
    if comm is not None and comm.size > 1:
        raise ValueError(f"strategy 'none' trains in one process, but there are {comm.size} ranks; try 'naive'")

    def step(images: Tensor, labels: Tensor, batch: int) -> float:
        loss = _forward_backward(comm, model, optimizer, images, labels, batch)
        optimizer.step()
        return loss

    return step


def naive(comm: Communicator | None, model: nn.Module, optimizer: Optimizer) -> Step:
    """Data parallelism without tricks: after backward, one all-reduce for each parameter's gradient.

    Ranks start from rank 0's parameters and buffers, whatever theirs were. One more all-reduce a step carries the
    loss and how many ranks have each gradient: a parameter that no rank used, or a frozen one, stays without a
    gradient, as in one process. A tied parameter is reduced once. Batch norm sees each rank's own images only.
    """
    parameters = list(model.parameters())
    copy_from_rank_0(comm, [*parameters, *model.buffers()])

    def step(images: Tensor, labels: Tensor, batch: int) -> float:
        loss = _forward_backward(comm, model, optimizer, images, labels, batch)
        report = [loss, *(parameter.grad is not None for parameter in parameters)]
        device = parameters[0].device
        loss, *holders = add_up(comm, torch.tensor(report, dtype=torch.float64, device=device)).tolist()
        for parameter, count in zip(parameters, holders, strict=True):
            if count:
                gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                parameter.grad = add_up(comm, gradient.contiguous())
        optimizer.step()
        return loss

    return step


STRATEGIES: dict[str, Strategy] = {"none": none, "naive": naive}


def add_up(comm: Communicator | None, tensor: Tensor) -> Tensor:
    """The sum of every rank's tensor, in place."""
    return tensor if comm is None else comm.all_reduce(tensor)


@torch.no_grad()
def copy_from_rank_0(comm: Communicator | None, tensors: list[Tensor]) -> None:
    """Give every rank the values of rank 0."""
    if comm is not None:
        for tensor in tensors:
            tensor.copy_(comm.broadcast(tensor.detach().clone(memory_format=torch.contiguous_format), src=0))


def span(comm: Communicator | None, name: str) -> AbstractContextManager:
    """Record a part of the step on the rank's timeline, where there is one."""
    return nullcontext() if comm is None else comm.span(name)


def _forward_backward(
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
