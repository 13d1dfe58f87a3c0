"""Strategies made of functions that a student wrote: `train(strategy=averaged_by(my_average_gradients))`.

Floor 4. They train on ranks only: `launch(train, 2, strategy=averaged_by(my_average_gradients))`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from lockstep.comm import Communicator
from lockstep.parallel.agreement import copy_from_rank_0
from lockstep.train.step import Step, Strategy, add_up, averaging_step, span


def averaged_by(average_gradients: Callable[[nn.Module, Communicator, int], Any]) -> Strategy:
    """Data parallelism with `average_gradients(model, comm, samples)`, called after each backward on every rank.

    It is to make each `.grad` the mean over all ranks' samples, from that over this rank's own `samples`; a rank
    without samples in the last step has no gradients.
    """

    def strategy(comm: Communicator | None, model: nn.Module, optimizer: Optimizer) -> Step:
        _check_ranks(comm, strategy)
        copy_from_rank_0(comm, [*model.parameters(), *model.buffers()])

        def step(images: Tensor, labels: Tensor, batch: int) -> float:
            optimizer.zero_grad(set_to_none=True)
            share = torch.zeros((), dtype=torch.float64, device=images.device)
            if len(labels):
                with span(comm, "forward"):
                    loss = F.cross_entropy(model(images), labels)
                with span(comm, "backward"):
                    loss.backward()
                share += loss.detach() * len(labels) / batch
            average_gradients(model, comm, len(labels))
            optimizer.step()
            return add_up(comm, share).item()

        return step

    return _named(strategy, "averaged_by", average_gradients)


def wrapped_by(wrap: Callable[[nn.Module, Communicator, int], Any], bucket_bytes: int = 2**20) -> Strategy:
    """Data parallelism with `wrapper = wrap(model, comm, bucket_bytes)`, such as a class with hooks on parameters.

    It is to make each `.grad` the mean over ranks of theirs by the time `wrapper.finish()` returns, which is called
    after each backward. Where ranks have unequal parts of a batch the loss is weighted before backward.
    """

    def strategy(comm: Communicator | None, model: nn.Module, optimizer: Optimizer) -> Step:
        _check_ranks(comm, strategy)
        copy_from_rank_0(comm, [*model.parameters(), *model.buffers()])
        wrapper = wrap(model, comm, bucket_bytes)
        return averaging_step(comm, model, optimizer, wrapper.finish)

    return _named(strategy, "wrapped_by", wrap)


def _check_ranks(comm: Communicator | None, strategy: Strategy) -> None:
    if comm is None:
        raise ValueError(f"{strategy.__name__} trains on ranks: launch(train, 2, strategy=...)")


def _named(strategy: Strategy, maker: str, given: Callable[..., Any]) -> Strategy:
    strategy.__name__ = f"{maker}({getattr(given, '__name__', type(given).__name__)})"
    return strategy
