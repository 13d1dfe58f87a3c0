"""Ranks vote on the sign of each value.

Floor 2, room `compress`. Source: Bernstein et al. 2018, "signSGD", algorithm 3 (majority vote).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lockstep.compress.blocks import pieces, scaled
from lockstep.compress.finite import scale_dtype
from lockstep.compress.gathered import Gathered
from lockstep.compress.packing import above_zero, pack, packed_bytes, unpack
from lockstep.compress.payload import Payload, join_fields, split_fields


class SignVote(Gathered):
    """The sign that most ranks have, times the mean over ranks of the mean magnitude; a tie gives zero.

    A rank votes with a bit for each value (zero counts as positive) and sends its mean magnitude, so that a learning
    rate keeps its meaning; the paper takes the bare sign, `mean.sign()`. The vote is not the mean of what ranks sent.
    """

    def __repr__(self) -> str:
        return "SignVote()"

    def encode(self, tensor: Tensor, name: str) -> Payload:
        flat, n, dtype = tensor.reshape(-1), tensor.numel(), scale_dtype(tensor.dtype)
        total, bits = flat.new_zeros(1, dtype=dtype), torch.empty(n, dtype=torch.uint8, device=flat.device)
        for piece in pieces(n, 1, flat.device):
            values = flat[piece].to(dtype)
            above_zero(values, bits[piece])
            total += values.abs().sum()
        return Payload(join_fields(total / max(n, 1), pack(bits, 2)), tensor.shape, tensor.dtype)

    def decompress(self, payload: Payload) -> Tensor:
        magnitude, bits = self._fields(payload)
        return scaled(bits.mul_(2), magnitude, 1, payload.dtype, zero=1).view(payload.shape)

    def combine(self, payloads: Sequence[Payload]) -> Tensor:
        """The vote on one tensor, flat."""
        magnitudes, bits = zip(*(self._fields(payload) for payload in payloads), strict=True)
        mean, n = sum(magnitudes) / len(payloads), bits[0].numel()
        voted = torch.empty(n, dtype=mean.dtype, device=mean.device)
        for piece in pieces(n, 1, mean.device):
            votes = bits[0][piece].to(torch.int16)
            for more in bits[1:]:
                votes.add_(more[piece])
            voted[piece] = votes.mul_(2).sub_(len(payloads)).clamp_(-1, 1)
            voted[piece].mul_(mean)
        return voted

    def payload_bytes(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> int:
        """A bit for each value, and the mean magnitude."""
        return packed_bytes(torch.Size(shape).numel(), 2) + scale_dtype(dtype).itemsize

    def _fields(self, payload: Payload) -> tuple[Tensor, Tensor]:
        """(mean magnitude [1], a bit for each value)."""
        n = payload.shape.numel()
        fields = (scale_dtype(payload.dtype), 1), (torch.uint8, packed_bytes(n, 2))
        magnitude, packed = split_fields(payload.wire, *fields)
        return magnitude, unpack(packed, n, 2)
