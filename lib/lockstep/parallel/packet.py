"""What a worker and the parameter server send each other: a few numbers and the model's tensors, in one message.

Floor 2, room `parallel`. Everything lies in one buffer of bytes, so that one receive from any source takes a
request whole, whatever dtypes the parameters have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Packet:
    """`buffer` is what travels; `header` (int64) and `parts` are views into it."""

    buffer: Tensor
    header: Tensor
    parts: tuple[Tensor, ...]


class PacketLayout:
    """Packets with `numbers` int64 and one part for each of `tensors`, in their shapes and dtypes, on the CPU."""

    def __init__(self, numbers: int, tensors: Sequence[Tensor]) -> None:
        self._numbers = numbers
        self._kinds = [(tensor.shape, tensor.dtype, tensor.nbytes) for tensor in tensors]
        self._starts = [0] * len(tensors)
        end = 16 * -(-numbers // 2)
        # Wide dtypes first, so that every part begins at a multiple of its element's size.
        for i in sorted(range(len(tensors)), key=lambda i: -tensors[i].element_size()):
            self._starts[i], end = end, end + tensors[i].nbytes
        self.bytes = end

    def packet(self) -> Packet:
        """A new packet: its header is zero, its parts hold anything."""
        buffer = torch.empty(self.bytes, dtype=torch.uint8)
        parts = tuple(
            buffer[start : start + size].view(dtype).view(shape)
            for start, (shape, dtype, size) in zip(self._starts, self._kinds, strict=True)
        )
        return Packet(buffer, buffer[: 8 * self._numbers].view(torch.int64).zero_(), parts)
