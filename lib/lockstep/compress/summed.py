"""Payloads that are linear in the gradient: a ring adds them up as it would gradients.

Floor 2, room `compress`. The mean of the payloads is the payload of the mean, so no byte is sent that a dense
exchange of as many numbers would not send, however many ranks there are.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from lockstep.comm import Communicator, Handle
from lockstep.compress.compressor import Compressor
from lockstep.compress.finite import scale_dtype
from lockstep.compress.payload import Payload
from lockstep.compress.work import of_all, passes, working
from lockstep.cost import Cost


class Summed(Compressor):
    """A compressor whose payloads are numbers that may be added up."""

    @abstractmethod
    def payload_elements(self, shape: Sequence[int]) -> int:
        """Numbers in the payload of a tensor of `shape`."""

    def wire_bytes(self, shape: Sequence[int], ranks: int, dtype: torch.dtype = torch.float32) -> int:
        """2(p-1) payloads: a ring all-reduce's bytes over all ranks, whether p divides the length or not."""
        return 2 * (ranks - 1) * self.payload_elements(shape) * scale_dtype(dtype).itemsize

    def residual_cost(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Cost:
        """The mean is read, and the tensor is read and written."""
        return passes(torch.Size(shape).numel(), dtype, 3)

    def subtract(self, payload: Payload, received: Tensor, tensor: Tensor) -> None:
        """Take from `tensor` what this rank sent of it; `received` is the mean over ranks.

        Here that mean itself stands for what each rank sent: over ranks the two have the same mean.
        """
        tensor.sub_(received)

    def begin(self, comm: Communicator, tensors: Sequence[Tensor], names: Sequence[str]) -> SummedRound:
        with working(comm, "compress", of_all(self.compress_cost, tensors)):
            payloads = [self.encode(tensor, name) for tensor, name in zip(tensors, names, strict=True)]
            wire = torch.cat([payload.wire for payload in payloads])
        return SummedRound(self, comm, payloads, comm.all_reduce(wire, op="mean", async_op=True))


class SummedRound:
    """One all-reduce of the payloads of some tensors."""

    def __init__(self, compressor: Summed, comm: Communicator, payloads: Sequence[Payload], handle: Handle) -> None:
        self._compressor, self._comm, self._payloads, self._handle = compressor, comm, payloads, handle
        self._means: list[Tensor] = []

    def finish(self, means: Sequence[Tensor]) -> None:
        """See `Round`."""
        wires = self._handle.wait().split([payload.wire.numel() for payload in self._payloads])
        with working(
            self._comm, "decompress", of_all(self._compressor.decompress_cost, self._payloads, self._comm.size)
        ):
            for payload, wire, mean in zip(self._payloads, wires, means, strict=True):
                mean.copy_(self._compressor.decompress(replace(payload, wire=wire)))
        self._means = list(means)

    def leave_residual(self, tensors: Sequence[Tensor]) -> None:
        """See `Round`."""
        with working(self._comm, "decompress", of_all(self._compressor.residual_cost, self._payloads)):
            for payload, mean, tensor in zip(self._payloads, self._means, tensors, strict=True):
                self._compressor.subtract(payload, mean, tensor)
