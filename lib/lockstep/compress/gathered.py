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
from lockstep.compress.work import of_all, passes, working
from lockstep.cost import Cost


class Gathered(Compressor):
    """A compressor whose payloads have a size that the shape decides, and are gathered."""

    @abstractmethod
    def payload_bytes(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> int:
        """Bytes of the payload of a tensor of `shape`."""

    def wire_bytes(self, shape: Sequence[int], ranks: int, dtype: torch.dtype = torch.float32) -> int:
        """p(p-1) payloads: each rank's goes once around the ring."""
        return ranks * (ranks - 1) * self.payload_bytes(shape, dtype)

    def compress_cost(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Cost:
        """The tensor is read and the payload written, once."""
        return passes(torch.Size(shape).numel(), dtype) + Cost(bytes=self.payload_bytes(shape, dtype))

    def decompress_cost(self, shape: Sequence[int], ranks: int, dtype: torch.dtype = torch.float32) -> Cost:
        """As `combine_cost`, of payloads of `payload_bytes` each."""
        return self.combine_cost(shape, ranks * self.payload_bytes(shape, dtype), dtype)

    def residual_cost(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Cost:
        """As `subtract_cost`, of a payload of `payload_bytes`."""
        return self.subtract_cost(shape, self.payload_bytes(shape, dtype), dtype)

    def combine_cost(self, shape: Sequence[int], nbytes: int, dtype: torch.dtype) -> Cost:
        """Payloads of `nbytes` altogether are read, and the mean is written."""
        return passes(torch.Size(shape).numel(), dtype) + Cost(bytes=nbytes)

    def subtract_cost(self, shape: Sequence[int], nbytes: int, dtype: torch.dtype) -> Cost:
        """A payload of `nbytes` is read, and the tensor is read and written."""
        return passes(torch.Size(shape).numel(), dtype, 2) + Cost(bytes=nbytes)

    def cost_ahead(self, tensors: Sequence[Tensor], names: Sequence[str]) -> Cost:
        """Of the payloads of `tensors` that come next."""
        return of_all(self.compress_cost, tensors)

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
        with working(comm, "compress", self.cost_ahead(tensors, names)):
            payloads = [self.encode(tensor, name) for tensor, name in zip(tensors, names, strict=True)]
            wire = torch.cat([payload.wire for payload in payloads])
        return GatheredRound(self, comm, payloads, comm.all_gather(wire, async_op=True))


class GatheredRound:
    """One all-gather of the payloads of some tensors."""

    def __init__(self, compressor: Gathered, comm: Communicator, payloads: Sequence[Payload], handle: Handle) -> None:
        self._compressor, self._comm, self._payloads, self._handle = compressor, comm, payloads, handle

    def finish(self, means: Sequence[Tensor]) -> None:
        """See `Round`."""
        lengths, ranks = [payload.wire.numel() for payload in self._payloads], self._comm.size
        by_rank = [wire.split(lengths) for wire in self._handle.wait().chunk(ranks)]
        costs = [self._compressor.combine_cost(each.shape, ranks * each.nbytes, each.dtype) for each in self._payloads]
        with working(self._comm, "decompress", sum(costs, Cost())):
            for at, (payload, mean) in enumerate(zip(self._payloads, means, strict=True)):
                received = [Payload(wires[at], payload.shape, payload.dtype, payload.known) for wires in by_rank]
                mean.copy_(self._compressor.combine(received).view(mean.shape))

    def leave_residual(self, tensors: Sequence[Tensor]) -> None:
        """See `Round`."""
        subtract_residuals(self._compressor, self._comm, self._payloads, tensors)


def subtract_residuals(
    compressor: Gathered, comm: Communicator, payloads: Sequence[Payload], tensors: Sequence[Tensor]
) -> None:
    """Take from each of `tensors` what its payload stands for."""
    costs = [compressor.subtract_cost(each.shape, each.nbytes, each.dtype) for each in payloads]
    with working(comm, "decompress", sum(costs, Cost())):
        for payload, tensor in zip(payloads, tensors, strict=True):
            compressor.subtract(payload, tensor)
