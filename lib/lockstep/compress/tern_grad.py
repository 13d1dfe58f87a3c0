"""TernGrad: every value as minus one, zero or one times the largest.

Floor 2, room `compress`. Source: Wen et al. 2017, equations 2 to 4 (ternary values) and 8 (clipping).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lockstep.compress.blocks import largest_magnitude, pieces, round_stochastically, scaled
from lockstep.compress.finite import scale_dtype
from lockstep.compress.gathered import Gathered
from lockstep.compress.packing import pack, packed_bytes, unpack
from lockstep.compress.payload import Payload, join_fields, split_fields
from lockstep.compress.work import passes
from lockstep.cost import Cost


class TernGrad(Gathered):
    """s*sign(g) with probability |g|/s, else 0, where s is the tensor's largest magnitude: unbiased.

    clip: cut values to this many standard deviations first, 2.5 in the paper: less noise, and biased. Five values a
    byte, 1.6 bits each where log2(3) = 1.585 would do. Raises ValueError for a clip that is not above 0.
    """

    def __init__(self, clip: float | None = None) -> None:
        if clip is not None and not clip > 0:
            raise ValueError(f"clip is {clip!r}: it is a number of standard deviations above 0, or None.")
        self.clip = clip

    def __repr__(self) -> str:
        return "TernGrad()" if self.clip is None else f"TernGrad(clip={self.clip:g})"

    def encode(self, tensor: Tensor, name: str) -> Payload:
        flat, n, dtype = tensor.reshape(-1), tensor.numel(), scale_dtype(tensor.dtype)
        most = (self.clip * flat.to(dtype).std()).item() if self.clip is not None and n > 1 else math.inf
        scale = largest_magnitude(flat, dtype).clamp(max=most)
        ternary = torch.empty(n, dtype=torch.int8, device=tensor.device)
        for piece in pieces(n, 1, tensor.device):
            share = flat[piece].to(dtype).clamp(-most, most).div_(scale.where(scale > 0, 1))
            ternary[piece] = round_stochastically(share)
        return Payload(join_fields(scale, pack(ternary.add_(1).view(torch.uint8), 3)), tensor.shape, tensor.dtype)

    def decompress(self, payload: Payload) -> Tensor:
        n, dtype = payload.shape.numel(), scale_dtype(payload.dtype)
        scale, packed = split_fields(payload.wire, (dtype, 1), (torch.uint8, packed_bytes(n, 3)))
        return scaled(unpack(packed, n, 3), scale, max(n, 1), payload.dtype, zero=1).view(payload.shape)

    def compress_cost(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Cost:
        """The tensor is read twice: for its largest magnitude, or deviation, and for the ternary values."""
        return passes(torch.Size(shape).numel(), dtype) + super().compress_cost(shape, dtype)

    def payload_bytes(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> int:
        """Five values a byte, and the scale."""
        return packed_bytes(torch.Size(shape).numel(), 3) + scale_dtype(dtype).itemsize
