"""What a compressor makes of a gradient, as the bytes that travel.

Floor 2, room `compress`. Fields of several types lie in one tensor of bytes, widest type first, so that a rank sends
one message for a bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Payload:
    """A compressed tensor.

    wire: what is sent, 1-D. shape, dtype: of the tensor. known: what every rank has without a message, such as the
    places that a shared seed draws.
    """

    wire: Tensor
    shape: torch.Size
    dtype: torch.dtype
    known: Any = None

    @property
    def nbytes(self) -> int:
        """Bytes on the wire."""
        return self.wire.nbytes


def join_fields(*fields: Tensor) -> Tensor:
    """The bytes of all `fields` one after another, uint8."""
    return torch.cat([field.contiguous().reshape(-1).view(torch.uint8) for field in fields])


def empty_fields(device: torch.device, *fields: tuple[torch.dtype, int]) -> tuple[Tensor, Sequence[Tensor]]:
    """A wire to be filled, uint8, and a view of it for each of `fields`, as `split_fields` takes them."""
    wire = torch.empty(sum(dtype.itemsize * count for dtype, count in fields), dtype=torch.uint8, device=device)
    return wire, split_fields(wire, *fields)


def split_fields(wire: Tensor, *fields: tuple[torch.dtype, int]) -> Sequence[Tensor]:
    """What `join_fields` joined: `fields` are (dtype, number of elements)."""
    found, at = [], 0
    for dtype, count in fields:
        piece = wire[at : at + count * dtype.itemsize]
        at += piece.numel()
        if (piece.storage_offset() % dtype.itemsize) or not count:  # bytes can be seen as a wider type at its multiples
            piece = piece.clone()
        found.append(piece.view(dtype))
    return found
