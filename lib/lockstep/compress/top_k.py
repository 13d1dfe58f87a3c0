"""The largest values only.

Floor 2, room `compress`. Sources: Aji and Heafield 2017; Stich, Cordonnier and Jaggi 2018 (with memory).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lockstep.compress.compressor import check_fraction
from lockstep.compress.payload import Payload
from lockstep.compress.sparse import Sparse, kept, largest, largest_cost, sparse_bytes, sparse_payload
from lockstep.cost import Cost


class TopK(Sparse):
    """Of each tensor the `fraction` of its values that are largest in magnitude, at least one.

    Biased: made to be used with error feedback. Ranks choose different places, so payloads are gathered, not summed:
    p*fraction of a dense ring's bytes, more than the ring's from fraction = 1/p on. Raises ValueError for a fraction
    that is not above 0 and at most 1.
    """

    def __init__(self, fraction: float = 0.01) -> None:
        self.fraction = check_fraction(fraction, "fraction")

    def __repr__(self) -> str:
        return f"TopK({self.fraction:g})"

    def encode(self, tensor: Tensor, name: str) -> Payload:
        return sparse_payload(tensor, largest(tensor.reshape(-1), kept(tensor.numel(), self.fraction)))

    def compress_cost(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Cost:
        """Five passes over a float32 tensor to select (see `largest_cost`), and the payload is written."""
        return largest_cost(torch.Size(shape).numel(), dtype) + Cost(bytes=self.payload_bytes(shape, dtype))

    def payload_bytes(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> int:
        """Value and index of each that is kept."""
        return sparse_bytes(kept(torch.Size(shape).numel(), self.fraction), dtype)
