"""Values at random places, the same on every rank.

Floor 2, room `compress`. Sources: Stich, Cordonnier and Jaggi 2018 (with memory); Konecny et al. 2016 (random mask).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lockstep.compress.compressor import check_fraction
from lockstep.compress.drawing import Draws
from lockstep.compress.finite import scale_dtype
from lockstep.compress.payload import Payload
from lockstep.compress.sparse import kept
from lockstep.compress.summed import Summed
from lockstep.compress.work import passes, scattered
from lockstep.cost import Cost


class RandomK(Summed):
    """Of each tensor a `fraction` of its values, at places that all ranks draw alike, so no index is sent.

    The flat tensor is cut into k stretches of equal length, give or take one, and each gives one value: k places that
    differ, in time that does not grow with the tensor. unbiased: multiply each value by its stretch's length, n/k, so
    that the expectation is the gradient and the variance (n/k - 1)|g|^2 at the most; without, use error feedback.
    seed: the same on every rank. Raises ValueError for a fraction that is not above 0 and at most 1.
    """

    def __init__(self, fraction: float = 0.01, unbiased: bool = False, seed: int = 0) -> None:
        self.fraction, self.unbiased = check_fraction(fraction, "fraction"), unbiased
        self._draws = Draws(seed)

    def __repr__(self) -> str:
        return f"RandomK({self.fraction:g}{', unbiased=True' if self.unbiased else ''})"

    def encode(self, tensor: Tensor, name: str) -> Payload:
        flat = tensor.reshape(-1)
        starts = _stretches(flat.numel(), self.fraction)
        lengths = starts.diff()
        drawn = torch.rand(len(lengths), generator=self._draws.next(name), dtype=torch.float64)
        places = (starts[:-1] + (drawn * lengths).long()).to(flat.device)
        values = flat[places].to(scale_dtype(flat.dtype))
        if self.unbiased:
            values *= lengths.to(values)
        return Payload(values, tensor.shape, tensor.dtype, places)

    def decompress(self, payload: Payload) -> Tensor:
        flat = torch.zeros(payload.shape.numel(), dtype=payload.dtype, device=payload.wire.device)
        flat[payload.known] = payload.wire.to(payload.dtype)
        return flat.view(payload.shape)

    def subtract(self, payload: Payload, received: Tensor, tensor: Tensor) -> None:
        """Only at the places that were sent; `tensor` is contiguous."""
        tensor.view(-1).index_add_(0, payload.known, payload.wire.to(tensor.dtype), alpha=-1)

    def compress_cost(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Cost:
        """Values are read at their places and written; places are drawn on the CPU."""
        k = self.payload_elements(shape)
        return scattered(k) + passes(k, scale_dtype(dtype))

    def decompress_cost(self, shape: Sequence[int], ranks: int, dtype: torch.dtype = torch.float32) -> Cost:
        """Zeros are written, then the values at their places."""
        k = self.payload_elements(shape)
        return passes(torch.Size(shape).numel(), dtype) + passes(k, scale_dtype(dtype)) + scattered(k)

    def residual_cost(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Cost:
        """Values are taken off at their places."""
        k = self.payload_elements(shape)
        return passes(k, scale_dtype(dtype)) + scattered(k, 2)

    def payload_elements(self, shape: Sequence[int]) -> int:
        """Values alone."""
        return kept(torch.Size(shape).numel(), self.fraction)


def _stretches(n: int, fraction: float) -> Tensor:
    """Where each of the k stretches of n elements begins, and where the last ends: int64 [k + 1]."""
    k = kept(n, fraction)
    return torch.arange(k + 1) * n // max(k, 1)
