"""Words for tensors and checks of arguments that every call of the communicator shares.

Floor 1, room `comm`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from lockstep.comm.errors import CommunicationError
from lockstep.comm.reduction import name_of


def describe(tensor: Tensor) -> str:
    """Dtype and shape, e.g. "float32[8, 3]": what two ranks must agree on."""
    return _words(tensor.dtype, tensor.shape)


@lru_cache(maxsize=1024)
def _words(dtype: torch.dtype, shape: torch.Size) -> str:
    return f"{name_of(dtype)}[{', '.join(map(str, shape))}]"


def in_sizes(sizes: Sequence[int] | None) -> str:
    """The part of a signature that says how rows or elements are divided; nothing when evenly."""
    return "" if sizes is None else f" in sizes {list(sizes)}"


def rows_left_open(tensor: Tensor, sizes: Sequence[int] | None) -> str:
    """Dtype and shape, with the rows left out where ranks may differ in them."""
    if sizes is None or tensor.dim() == 0:
        return describe(tensor)
    return describe(tensor[:0]).replace("[0", "[rows", 1)


def check_tensor(tensor: Tensor, device: torch.device) -> None:
    """Raise CommunicationError unless `tensor` is a dense tensor on this rank's device."""
    if not isinstance(tensor, Tensor):
        name = type(tensor).__name__
        article = "an" if name[0] in "aeiouAEIOU" else "a"
        raise CommunicationError(f"{tensor!r:.60} is {article} {name}: only tensors travel; use torch.tensor(...).")
    if tensor.device.type != device.type:
        raise CommunicationError(
            f"The tensor {describe(tensor)} is on {tensor.device}, this rank communicates on {device}: "
            f"move it with .to(comm.device)."
        )
    if tensor.layout is not torch.strided:
        raise CommunicationError(
            f"The tensor {describe(tensor)} has layout {tensor.layout}: send .to_dense(), or its indices and values."
        )


def check_rank(rank: int, size: int, role: str) -> None:
    """Raise CommunicationError unless `rank` (called `role` in the call) is one of 0 .. size-1."""
    if not isinstance(rank, int) or isinstance(rank, bool) or not 0 <= rank < size:
        raise CommunicationError(f"{role} is {rank!r}: this communicator has ranks 0 to {size - 1}.")
