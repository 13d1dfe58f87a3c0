"""A compressor as the communication hook of torch's DistributedDataParallel.

Floor 2, room `compress`. Without `from __future__ import annotations`: torch looks at a hook's annotations, and text
is not what it looks for.
"""

from collections.abc import Callable

import torch.distributed as dist
from torch import Tensor, nn
from torch.futures import Future

from lockstep.comm import Bucket, Communicator, Exchange, Handle, from_torch

Hook = Callable[[object, dist.GradBucket], Future[Tensor]]


class _Running:
    """What the hook keeps: the buckets of this backward that are on their way."""

    def __init__(self, exchange: Exchange, comm: Communicator | None, names: dict[int, str]) -> None:
        self.exchange, self.comm, self.names = exchange, comm, names
        self.under_way: list[tuple[Handle, Tensor, Future[Tensor]]] = []

    def bucket(self, given: dist.GradBucket) -> Bucket:
        """The same bucket in the form that exchanges take; torch shares parameters out anew after the first step."""
        names = []
        for parameter in given.parameters():
            number = len(self.names)
            names.append(self.names.setdefault(id(parameter), f"parameter {number} of shape {tuple(parameter.shape)}"))
        return Bucket(given.index(), given.buffer(), tuple(given.gradients()), tuple(names))


def as_torch_hook(
    exchange: Exchange, comm: Communicator | None = None, model: nn.Module | None = None
) -> tuple[object, Hook]:
    """(state, hook) for `ddp.register_comm_hook(*as_torch_hook(PowerSGD(rank=2)))`; any exchange will do.

    comm: of the ranks, by default all of torch's process group; making one is collective, at the first backward. model:
    lets errors call a gradient by its parameter's name; without it, it is called by its number.

    Buckets start as torch hands them over, while backward goes on, and are finished in order when the last has come.
    """
    names = {} if model is None else {id(parameter): name for name, parameter in model.named_parameters()}
    return _Running(exchange, comm, names), _hook


def _hook(running: _Running, bucket: dist.GradBucket) -> Future[Tensor]:
    if running.comm is None:
        running.comm = from_torch()
    if bucket.index() == 0:
        running.under_way.clear()  # of a backward that failed half-way
    future: Future[Tensor] = Future()
    handle = running.exchange.start(running.comm, running.bucket(bucket))
    running.under_way.append((handle, bucket.buffer(), future))
    if bucket.is_last():
        for handle, averaged, waiting in running.under_way:
            handle.wait()
            waiting.set_result(averaged)
        running.under_way.clear()
    return future
