"""Batches, and gradients, when ranks have different amounts of data.

Floor 2, room `parallel`. Legend: p ranks, n_r samples of rank r in this step, N their sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from lockstep.comm import CommunicationError, Communicator
from lockstep.nn.outputs import map_tensors, tensors_in


def uneven_batches(comm: Communicator, loader: Iterable[Any]) -> Iterator[tuple[Any, float]]:
    """Collective: (batch, weight) until no rank has a batch left; one small all-reduce a step.

    A batch is a tensor, or a tuple, list or dictionary of tensors, with the samples along dimension 0. A rank that has
    run out gets empty tensors. The weight is p n_r / N: times it, the mean over a rank's own samples averages over
    ranks to the mean over all samples.
    Raises CommunicationError, on every rank, when a rank has not had a single batch to make empty tensors of;
    TypeError for a batch without tensors.
    """
    source, empty, p = iter(loader), None, comm.size
    while True:
        batch = next(source, None)
        n_r = 0 if batch is None else _samples(batch)
        destitute = batch is None and empty is None
        mine = [n_r, batch is not None, destitute]
        n, left, without = comm.all_reduce(torch.tensor(mine, dtype=torch.float64, device=comm.device)).tolist()
        if not left:
            return
        if without:
            raise CommunicationError(
                f"{without:.0f} of {p} ranks have no data at all{', this one among them' if destitute else ''}: "
                f"use fewer ranks, or share out the samples so that each has at least one."
            )
        if batch is not None:
            empty = map_tensors(_without_samples, batch)
        yield (empty if batch is None else batch), (p * n_r / n if n else 1.0)


def _samples(batch: Any) -> int:
    tensor = next(tensors_in(batch), None)
    if tensor is None or not tensor.dim():
        raise TypeError(
            f"a batch of this loader is a {type(batch).__name__} without a tensor of samples: give a tensor, or a "
            f"tuple, list or dictionary of tensors, with the samples along dimension 0"
        )
    return len(tensor)


def _without_samples(tensor: Tensor) -> Tensor:
    return tensor[:0].clone() if tensor.dim() else tensor  # a view would keep the whole batch


def at_the_entrance(outputs: Any, arrived: Callable[[Tensor], Tensor | None]) -> Any:
    """`outputs` of a model; a gradient that enters them becomes `arrived(gradient)`, unless that is None."""

    def entrance(tensor: Tensor) -> Tensor:
        if not tensor.requires_grad:
            return tensor
        # Not the output itself: where one output is made of another, its gradient would be scaled twice.
        view = tensor.view_as(tensor)
        view.register_hook(arrived)
        return view

    return map_tensors(entrance, outputs)
