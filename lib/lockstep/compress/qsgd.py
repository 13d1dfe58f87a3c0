"""QSGD: values as a few levels of their block's norm, rounded at random so that the mean is right.

Floor 2, room `compress`. Source: Alistarh et al. 2017, section 3.1; lemma 3.1 bounds the variance.
Legend: s levels above zero, n elements, B a block's length, d elements of a block.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lockstep.compress.blocks import block_count, in_blocks, round_stochastically, scale_blocks
from lockstep.compress.compressor import check_count
from lockstep.compress.finite import scale_dtype
from lockstep.compress.gathered import Gathered
from lockstep.compress.packing import pack, packed_bytes, unpack
from lockstep.compress.payload import Payload, join_fields, split_fields


class QSGD(Gathered):
    """Each value as sign and level 0 to s of its block's 2-norm: unbiased, variance at most min(d/s^2, sqrt(d)/s)|g|^2.

    levels: s, 1 to 127. block: elements that share a norm. A value takes one digit of base 2s+1, packed into bytes as
    `packing` says; the paper's Elias code is shorter when most levels are zero, and as long as the values make it.
    Raises ValueError for other settings.
    """

    def __init__(self, levels: int = 7, block: int = 512) -> None:
        self.levels, self.block = check_count(levels, "levels"), check_count(block, "block")
        if levels > 127:
            raise ValueError(f"levels is {levels}: with a sign, more than 127 do not fit into a byte.")

    def __repr__(self) -> str:
        return f"QSGD(levels={self.levels}, block={self.block})"

    def encode(self, tensor: Tensor, name: str) -> Payload:
        dtype = scale_dtype(tensor.dtype)
        rows = in_blocks(tensor, self.block, dtype)
        largest = rows.abs().amax(1, keepdim=True)
        # Of values scaled to at most 1, so that squares neither overflow nor vanish.
        norms = torch.linalg.vector_norm(rows / largest.where(largest > 0, 1), dim=1, keepdim=True) * largest
        levels = round_stochastically(rows * self.levels / norms.where(norms > 0, 1)).clamp_(-self.levels, self.levels)
        digits = levels.add_(self.levels).view(-1)[: tensor.numel()]
        wire = join_fields(norms[: block_count(tensor.numel(), self.block)], pack(digits, 2 * self.levels + 1))
        return Payload(wire, tensor.shape, tensor.dtype)

    def decompress(self, payload: Payload) -> Tensor:
        n, dtype = payload.shape.numel(), scale_dtype(payload.dtype)
        blocks = block_count(n, self.block)
        norms, packed = split_fields(payload.wire, (dtype, blocks), (torch.uint8, packed_bytes(n, 2 * self.levels + 1)))
        levels = unpack(packed, n, 2 * self.levels + 1).to(dtype).sub_(self.levels)
        return scale_blocks(levels, norms / self.levels, self.block).view(payload.shape).to(payload.dtype)

    def payload_bytes(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> int:
        """A digit of base 2s+1 for each value, a norm for each block."""
        n = torch.Size(shape).numel()
        return packed_bytes(n, 2 * self.levels + 1) + block_count(n, self.block) * scale_dtype(dtype).itemsize
