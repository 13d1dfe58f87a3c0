"""How one training step is shared out among ranks; each strategy is a function, known by its name in `STRATEGIES`.

Floor 4. Read `step` first. A strategy is given the model before the first step and returns the step. The model knows
nothing of it. In a process of its own every strategy trains as `none` does.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lockstep.comm import AllReduce, Central, Communicator, Exchange
from lockstep.compress import named
from lockstep.parallel import DistributedDataParallel
from lockstep.parallel.agreement import copy_from_rank_0
from lockstep.train.meshed import hybrid, pipeline, split, tensor
from lockstep.train.served import parameter_server
from lockstep.train.sharded import zero
from lockstep.train.step import Step, Strategy, add_up, averaging_step, forward_backward, step_alone


def none(comm: Communicator | None, model: nn.Module, optimizer: Optimizer) -> Step:
    """Train in one process. Raises ValueError when there are more."""
    if comm is not None and comm.size > 1:
        raise ValueError(f"strategy 'none' trains in one process, but there are {comm.size} ranks; try 'ddp'")
    return step_alone(comm, model, optimizer)


def naive(comm: Communicator | None, model: nn.Module, optimizer: Optimizer) -> Step:
    """Data parallelism without tricks: after backward, one all-reduce for each parameter's gradient.

    Ranks start from rank 0's parameters and buffers, whatever theirs were. One more all-reduce a step carries the
    loss and how many ranks have each gradient: a parameter that no rank used, or a frozen one, stays without a
    gradient, as in one process. A tied parameter is reduced once. Batch norm sees each rank's own images only.
    """
    parameters = list(model.parameters())
    copy_from_rank_0(comm, [*parameters, *model.buffers()])

    def step(images: Tensor, labels: Tensor, batch: int) -> float:
        loss = forward_backward(comm, model, optimizer, images, labels, batch)
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


def ddp(comm: Communicator | None, model: nn.Module, optimizer: Optimizer) -> Step:
    """`lockstep.parallel.DistributedDataParallel`: gradients in buckets, averaged while backward runs."""
    return _data_parallel(comm, model, optimizer, AllReduce())


def compressed(compress: str | None = None, feedback: bool = False) -> Strategy:
    """`ddp` with gradients that are compressed as a text such as "topk:0.01" says, see `lockstep.compress.named`.

    Runs of several ranks make no checkpoints, which would lack what a compressor keeps. ValueError for another text.
    """
    if compress is None:
        raise ValueError("feedback is of a compressor: name one too, such as --compress topk:0.01 --feedback")
    named(compress, feedback)

    def strategy(comm: Communicator | None, model: nn.Module, optimizer: Optimizer) -> Step:
        step = _data_parallel(comm, model, optimizer, named(compress, feedback))
        if comm is not None:
            step.kept = None  # see `Kept`
        return step

    strategy.__name__ = f"ddp(compress={compress!r}, feedback={feedback})"
    return strategy


def central(comm: Communicator | None, model: nn.Module, optimizer: Optimizer) -> Step:
    """The same buckets, but every gradient goes to rank 0 and the mean comes back from there: its hot spot."""
    return _data_parallel(comm, model, optimizer, Central())


def _data_parallel(comm: Communicator | None, model: nn.Module, optimizer: Optimizer, exchange: Exchange) -> Step:
    if comm is None:
        return none(comm, model, optimizer)
    return averaging_step(comm, DistributedDataParallel(model, comm, exchange=exchange), optimizer)


STRATEGIES: dict[str, Strategy] = {
    "none": none,
    "naive": naive,
    "ddp": ddp,
    "central": central,
    "async": parameter_server(staleness=None),
    "ssp": parameter_server(staleness=3),
    "zero1": zero(stage=1),
    "zero2": zero(stage=2),
    "zero3": zero(stage=3),
    "split": split,
    "tensor": tensor,
    "pipeline": pipeline(),
    "hybrid": hybrid(),
}

WITH_OPTIONS: dict[str, Callable[..., Strategy]] = {
    "ddp": compressed,
    "pipeline": pipeline,
    "hybrid": hybrid,
    **{f"zero{stage}": partial(zero, stage) for stage in (1, 2, 3)},
}
"""What makes a strategy from options."""


def configured(name: str, options: Mapping[str, Any]) -> str | Strategy:
    """The strategy of that name with the options that are not None; ValueError for one that it does not know."""
    given = {option: value for option, value in options.items() if value is not None}
    if not given or name not in STRATEGIES:
        return name
    known = {each: inspect.signature(make).parameters for each, make in WITH_OPTIONS.items()}
    for option in given:
        if option not in known.get(name, ()):
            users = [each for each, parameters in known.items() if option in parameters]
            raise ValueError(f"strategy {name!r} has no --{option.replace('_', '-')}; it is for {', '.join(users)}")
    return WITH_OPTIONS[name](**given)
