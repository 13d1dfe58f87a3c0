"""Chunks of a flat tensor, tensors of any layout, and a part of a communicator's ranks.

Floor 1, room `comm`. What the collectives of this folder share.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lockstep.comm.errors import CommunicationError

if TYPE_CHECKING:
    from lockstep.comm.communicator import Communicator


def chunk_sizes(n: int, p: int) -> list[int]:
    """Split n elements over p ranks as `torch.tensor_split` does: the first n mod p chunks have one more."""
    return [n // p + (c < n % p) for c in range(p)]


def flatten(tensor: Tensor) -> Tensor:
    """The elements in row-major order, 1-D, outside autograd: a view where the layout allows, else a copy."""
    if tensor.dim() == 1 and tensor.is_contiguous() and tensor.numel() and not tensor.requires_grad:
        if not (tensor.is_neg() or tensor.is_conj()):
            return tensor  # chunks of a ring, many a call
    flat = tensor.detach()
    if not flat.numel():  # one made from an empty array has stride 0, and cannot be seen as bytes
        return flat.new_empty(0)
    if flat.is_conj() or flat.is_neg():  # a view whose bytes are not the values it shows
        flat = flat.resolve_conj().resolve_neg()
    return flat.view(-1) if flat.is_contiguous() else flat.contiguous().view(-1)


def write_back(tensor: Tensor, flat: Tensor) -> Tensor:
    """Make `tensor` hold `flat`; free when `flat` is a view of it. Gives `tensor`."""
    if flat is not tensor and flat.data_ptr() != tensor.data_ptr():
        tensor.detach().copy_(flat.view(tensor.shape))
    return tensor


_kept = threading.local()
_MOST_KEPT = 64 * 2**20  # bytes


def scratch_like(part: Tensor) -> Tensor:
    """A buffer for as many elements as 1-D `part`, with any content, until this thread asks for the next one.

    Kept from call to call: the system zeroes fresh pages of 32 MiB in more time than a rank needs to add them.
    """
    if part.nbytes > _MOST_KEPT:
        return torch.empty_like(part)
    kept = getattr(_kept, "buffer", None)
    if kept is None or kept.device != part.device or kept.numel() < part.nbytes:
        kept = _kept.buffer = torch.empty(part.nbytes, dtype=torch.uint8, device=part.device)
    return kept[: part.nbytes].view(part.dtype)


def sizes_or_equal(sizes: Sequence[int] | None, n: int, p: int, what: str) -> list[int]:
    """`sizes`, checked to be p non-negative numbers that add up to n; by default the chunks of n."""
    if sizes is None:
        return chunk_sizes(n, p)
    if len(sizes) != p or any(size < 0 for size in sizes) or sum(sizes) != n:
        raise CommunicationError(f"{what} is {list(sizes)}: it needs {p} numbers, one a rank, that add up to {n}.")
    return list(sizes)


def levels(p: int) -> range:
    """0, 1, ..., ceil(lg p) - 1."""
    return range((p - 1).bit_length())


class Subset:
    """Some ranks of a communicator, renumbered 0, 1, ... in the order given: enough of one to run a collective on."""

    def __init__(self, comm: Communicator, members: Sequence[int]) -> None:
        self._comm, self._members = comm, list(members)
        self.rank, self.size, self.device = self._members.index(comm.rank), len(self._members), comm.device

    def send(self, tensor: Tensor, dst: int) -> None:
        self._comm.send(tensor, self._members[dst])

    def recv(self, tensor: Tensor, src: int) -> int:
        self._comm.recv(tensor, self._members[src])
        return src

    def exchange(self, sends: Sequence[tuple[Tensor, int]], recvs: Sequence[tuple[Tensor, int]]) -> None:
        self._comm.exchange([(t, self._members[d]) for t, d in sends], [(t, self._members[s]) for t, s in recvs])
