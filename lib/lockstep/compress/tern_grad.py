"""TernGrad: every value as minus one, zero or one times the largest.

Floor 2, room `compress`. Source: Wen et al. 2017, equations 2 to 4 (ternary values) and 8 (clipping).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

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
        flat = tensor.reshape(-1).to(scale_dtype(tensor.dtype))
        if self.clip is not None and flat.numel() > 1:
            most = (self.clip * flat.std()).item()
            flat = flat.clamp(-most, most)
        scale = flat.abs().amax().view(1) if flat.numel() else flat.new_zeros(1)
        hit = torch.rand_like(flat).mul_(scale) < flat.abs()
        digits = (flat.sign() * hit).add_(1)
        return Payload(join_fields(scale, pack(digits, 3)), tensor.shape, tensor.dtype)

    def decompress(self, payload: Payload) -> Tensor:
        n, dtype = payload.shape.numel(), scale_dtype(payload.dtype)
        scale, packed = split_fields(payload.wire, (dtype, 1), (torch.uint8, packed_bytes(n, 3)))
        ternary = unpack(packed, n, 3).to(dtype).sub_(1)
        return ternary.mul_(scale).view(payload.shape).to(payload.dtype)

    def compress_cost(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Cost:
        """The tensor is read twice: for its largest magnitude, or deviation, and for the ternary values."""
        return passes(torch.Size(shape).numel(), dtype) + super().compress_cost(shape, dtype)

    def payload_bytes(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> int:
        """Five values a byte, and the scale."""
        return packed_bytes(torch.Size(shape).numel(), 3) + scale_dtype(dtype).itemsize
