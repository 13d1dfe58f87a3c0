"""Payloads that cannot be added up: everyone gets everyone's, and takes the mean itself.

Floor 2, room `compress`. One all-gather a bucket: each rank sends (p-1) payloads' worth, where a dense ring sends
2(p-1)/p gradients' worth. So k of n values with their indices cost p*k/n of the ring: with more ranks, more.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from lockstep.comm import Communicator, Handle
from lockstep.compress.compressor import Compressor
from lockstep.compress.finite import scale_dtype
from lockstep.compress.payload import Payload


class Gathered(Compressor):
    """A compressor whose payloads have a size that the shape decides, and are gathered."""

    @abstractmethod
    def payload_bytes(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> int:
        """Bytes of the payload of a tensor of `shape`."""

    def wire_bytes(self, shape: Sequence[int], ranks: int, dtype: torch.dtype = torch.float32) -> int:
        """p(p-1) payloads: each rank's goes once around the ring."""
        return ranks * (ranks - 1) * self.payload_bytes(shape, dtype)

    def add(self, payload: Payload, total: Tensor) -> None:
        """Add what `payload` stands for to flat `total`."""
        total.add_(self.decompress(payload).reshape(-1))

    def subtract(self, payload: Payload, tensor: Tensor) -> None:
        """Take what `payload` stands for from `tensor`, of its shape."""
        tensor.sub_(self.decompress(payload))

    def combine(self, payloads: Sequence[Payload]) -> Tensor:
        """The mean of what the ranks sent of one tensor, flat."""
        first = payloads[0]
        total = torch.zeros(first.shape.numel(), dtype=scale_dtype(first.dtype), device=first.wire.device)
        for payload in payloads:  # in order of rank, so that the mean is the same everywhere
            self.add(payload, total)
        return total.div_(len(payloads))

    def begin(self, comm: Communicator, tensors: Sequence[Tensor], names: Sequence[str]) -> GatheredRound:
        payloads = [self.encode(tensor, name) for tensor, name in zip(tensors, names, strict=True)]
        wire = torch.cat([payload.wire for payload in payloads])
        return GatheredRound(self, payloads, comm.all_gather(wire, async_op=True), comm.size)


class GatheredRound:
    """One all-gather of the payloads of some tensors."""

    def __init__(self, compressor: Gathered, payloads: Sequence[Payload], handle: Handle, ranks: int) -> None:
        self._compressor, self._payloads, self._handle, self._ranks = compressor, payloads, handle, ranks

    def finish(self, means: Sequence[Tensor]) -> None:
        """See `Round`."""
        lengths = [payload.wire.numel() for payload in self._payloads]
        by_rank = [wire.split(lengths) for wire in self._handle.wait().chunk(self._ranks)]
        for at, (payload, mean) in enumerate(zip(self._payloads, means, strict=True)):
            received = [Payload(wires[at], payload.shape, payload.dtype, payload.known) for wires in by_rank]
            mean.copy_(self._compressor.combine(received).view(mean.shape))

    def leave_residual(self, tensors: Sequence[Tensor]) -> None:
        """See `Round`."""
        for payload, tensor in zip(self._payloads, tensors, strict=True):
            self._compressor.subtract(payload, tensor)
