"""Ranks vote on the sign of each value.

Floor 2, room `compress`. Source: Bernstein et al. 2018, "signSGD", algorithm 3 (majority vote).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lockstep.compress.finite import scale_dtype
from lockstep.compress.gathered import Gathered
from lockstep.compress.packing import pack, packed_bytes, unpack
from lockstep.compress.payload import Payload, join_fields, split_fields


class SignVote(Gathered):
    """The sign that most ranks have, times the mean over ranks of the mean magnitude; a tie gives zero.

    A rank votes with a bit for each value (zero counts as positive) and sends its mean magnitude, so that a learning
    rate keeps its meaning; the paper takes the bare sign, `mean.sign()`. The vote is not the mean of what ranks sent.
    """

    def __repr__(self) -> str:
        return "SignVote()"

    def encode(self, tensor: Tensor, name: str) -> Payload:
        flat = tensor.reshape(-1).to(scale_dtype(tensor.dtype))
        magnitude = flat.abs().sum().view(1) / max(flat.numel(), 1)
        return Payload(join_fields(magnitude, pack(flat >= 0, 2)), tensor.shape, tensor.dtype)

    def decompress(self, payload: Payload) -> Tensor:
        magnitude, bits = self._fields(payload)
        signs = bits.to(magnitude.dtype).mul_(2).sub_(1)
        return signs.mul_(magnitude).view(payload.shape).to(payload.dtype)

    def combine(self, payloads: Sequence[Payload]) -> Tensor:
        """The vote on one tensor, flat."""
        magnitudes, bits = zip(*(self._fields(payload) for payload in payloads), strict=True)
        votes = bits[0].to(torch.int32)
        for more in bits[1:]:
            votes.add_(more)
        balance = votes.mul_(2).sub_(len(payloads)).sign()
        return balance.to(magnitudes[0].dtype).mul_(sum(magnitudes) / len(payloads))

    def payload_bytes(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> int:
        """A bit for each value, and the mean magnitude."""
        return packed_bytes(torch.Size(shape).numel(), 2) + scale_dtype(dtype).itemsize

    def _fields(self, payload: Payload) -> tuple[Tensor, Tensor]:
        """(mean magnitude [1], a bit for each value)."""
        n = payload.shape.numel()
        fields = (scale_dtype(payload.dtype), 1), (torch.uint8, packed_bytes(n, 2))
        magnitude, packed = split_fields(payload.wire, *fields)
        return magnitude, unpack(packed, n, 2)
