"""QSGD: values as a few levels of their block's norm, rounded at random so that the mean is right.

Floor 2, room `compress`. Source: Alistarh et al. 2017, section 3.1; lemma 3.1 bounds the variance.
Legend: s levels above zero, n elements, B a block's length, d elements of a block.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lockstep.compress.blocks import block_count, in_blocks, pieces, round_stochastically, scaled
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
        flat, n, dtype = tensor.reshape(-1), tensor.numel(), scale_dtype(tensor.dtype)
        norms = torch.empty(block_count(n, self.block), dtype=dtype, device=tensor.device)
        levels = torch.empty(n, dtype=torch.int8, device=tensor.device)
        for piece in pieces(n, self.block, tensor.device):
            rows = in_blocks(flat[piece], self.block, dtype)
            largest = rows.abs().amax(1, keepdim=True)
            # Of values scaled to at most 1, so that squares neither overflow nor vanish.
            unit = rows / largest.where(largest > 0, 1)
            length = torch.linalg.vector_norm(unit, dim=1, keepdim=True)
            norms[piece.start // self.block :][: len(rows)] = (length * largest).view(-1)
            rounded = round_stochastically(unit.mul_(self.levels / length.where(length > 0, 1)))
            levels[piece] = rounded.clamp_(-self.levels, self.levels).view(-1)[: piece.stop - piece.start]
        digits = levels.view(torch.uint8).add_(self.levels)  # wraps, so that -levels becomes 0
        return Payload(join_fields(norms, pack(digits, 2 * self.levels + 1)), tensor.shape, tensor.dtype)

    def decompress(self, payload: Payload) -> Tensor:
        n, dtype = payload.shape.numel(), scale_dtype(payload.dtype)
        blocks = block_count(n, self.block)
        norms, packed = split_fields(payload.wire, (dtype, blocks), (torch.uint8, packed_bytes(n, 2 * self.levels + 1)))
        digits, steps = unpack(packed, n, 2 * self.levels + 1), norms / self.levels
        return scaled(digits, steps, self.block, payload.dtype, zero=self.levels).view(payload.shape)

    def payload_bytes(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> int:
        """A digit of base 2s+1 for each value, a norm for each block."""
        n = torch.Size(shape).numel()
        return packed_bytes(n, 2 * self.levels + 1) + block_count(n, self.block) * scale_dtype(dtype).itemsize
