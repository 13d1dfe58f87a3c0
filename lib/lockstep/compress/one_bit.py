"""One bit a value: above zero or not, and what the two kinds are on average.

Floor 2, room `compress`. Source: Seide et al. 2014, section 3: made to be used with error feedback.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lockstep.compress.blocks import pieces
from lockstep.compress.finite import scale_dtype
from lockstep.compress.gathered import Gathered
from lockstep.compress.packing import above_zero, pack, packed_bytes, unpack
from lockstep.compress.payload import Payload, join_fields, split_fields


class OneBit(Gathered):
    """A bit for each value, and for each column two means: of its values that are at least zero, and of the others.

    A column is the weights of one output: what `tensor[i]` holds, in a tensor of two or more dimensions; a smaller one
    is one column. The means make the squared error the least that this split allows, and keep each column's sum.
    """

    def __repr__(self) -> str:
        return "OneBit()"

    def encode(self, tensor: Tensor, name: str) -> Payload:
        x = tensor.reshape(columns_of(tensor.shape), -1).to(scale_dtype(tensor.dtype))
        bits = torch.empty(x.shape, dtype=torch.uint8, device=x.device)
        low, high = x.new_zeros(2, len(x))
        for piece in pieces(x.numel(), max(x.shape[1], 1), x.device):
            at = slice(piece.start // x.shape[1], piece.stop // x.shape[1])
            rows = x[at]
            above_zero(rows, bits[at])
            count = bits[at].to(x.dtype).sum(1)
            # From sums of one pass each; where a kind has no value its mean is not used.
            high[at] = rows.clamp(min=0).sum(1) / count.clamp(min=1)
            low[at] = rows.clamp(max=0).sum(1) / (x.shape[1] - count).clamp(min=1)
        return Payload(join_fields(low, high, pack(bits.view(-1), 2)), tensor.shape, tensor.dtype)

    def decompress(self, payload: Payload) -> Tensor:
        n, columns, dtype = payload.shape.numel(), columns_of(payload.shape), scale_dtype(payload.dtype)
        means, packed = split_fields(payload.wire, (dtype, 2 * columns), (torch.uint8, packed_bytes(n, 2)))
        low, high = means.view(2, columns, 1).view(torch.int64 if dtype is torch.float64 else torch.int32)
        bits = unpack(packed, n, 2).view(columns, -1)
        chosen = torch.empty(bits.shape, dtype=low.dtype, device=bits.device)
        for piece in pieces(n, max(bits.shape[1], 1), bits.device):
            at = slice(piece.start // bits.shape[1], piece.stop // bits.shape[1])
            # low ^ (mask & (low ^ high)): a sixth of the time that torch.where takes on a CPU
            mask = chosen[at].copy_(bits[at].view(torch.int8).neg())
            mask.bitwise_and_(low[at] ^ high[at]).bitwise_xor_(low[at])
        return chosen.view(dtype).view(payload.shape).to(payload.dtype)

    def payload_bytes(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> int:
        """A bit for each value, two means for each column."""
        shape = torch.Size(shape)
        return packed_bytes(shape.numel(), 2) + 2 * columns_of(shape) * scale_dtype(dtype).itemsize


def columns_of(shape: torch.Size) -> int:
    """Columns of a tensor of that shape."""
    return shape[0] if len(shape) > 1 and shape.numel() else 1
