"""What compressing costs a device: it moves bytes through its memory, and multiplies.

Floor 2, room `compress`. In the simulated and the paced world a compressor's work lasts as long as its `Cost` takes on
the rank's device, so that no timeline shows it for nothing; between processes as such it takes the time that it takes.

Costs are closed forms and lower bounds, counted as for kernels that a compiler has fused: a step reads what it needs
and writes what it makes once, and a second pass begins only where something about all values must be known first. So
a scale of each block costs no pass of its own, a scale of the whole tensor does. Operations are counted for matrix
products alone: beside moving the bytes all others take no time. A value at a place of its own costs a whole `SECTOR`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import torch

from lockstep.comm import Communicator
from lockstep.cost import Cost

SECTOR = 32
"""Bytes that a GPU's memory moves at the least (CUDA C++ Best Practices Guide, coalesced access)."""


def passes(n: int, dtype: torch.dtype, times: float = 1) -> Cost:
    """Reading or writing n values of `dtype` that many times."""
    return Cost(bytes=times * n * dtype.itemsize)


def scattered(k: int, times: int = 1) -> Cost:
    """Reading or writing k values at places of their own that many times."""
    return Cost(bytes=times * k * SECTOR)


def of_all(cost: Callable[..., Cost], tensors: Iterable[Any], *arguments: int) -> Cost:
    """The sum of `cost(shape, *arguments, dtype)` of what has a shape and a dtype."""
    return sum((cost(each.shape, *arguments, each.dtype) for each in tensors), Cost())


def working(comm: Communicator, name: str, cost: Cost) -> AbstractContextManager[None]:
    """A span around a compressor's work, `name` "compress" or "decompress".

    In a paced run without a device the work lasts as long as it does here.
    """
    pace = getattr(comm, "pace", None)
    unknown = pace is not None and pace.device is None
    return comm.span(name, cost=None if unknown else cost)
