"""Values that are large enough, however many they are.

Floor 2, room `compress`. Source: Strom 2015 (a fixed threshold, with memory); values travel whole here.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lockstep.comm import Communicator, Handle
from lockstep.compress.gathered import subtract_residuals
from lockstep.compress.payload import Payload
from lockstep.compress.sparse import INDEX, Sparse, check_indexable, sparse_bytes, sparse_payload
from lockstep.compress.work import of_all, passes, working
from lockstep.cost import Cost


class Threshold(Sparse):
    """Of each tensor the values whose magnitude is at least `least`; zeros are never sent.

    Ranks keep different numbers of values, so they tell each other how many first, 4 bytes a tensor. Raises ValueError
    for a threshold that is not a number of at least 0.
    """

    def __init__(self, least: float) -> None:
        if isinstance(least, bool) or not isinstance(least, int | float) or not 0 <= least < float("inf"):
            raise ValueError(f"least is {least!r}: it is the smallest magnitude that is sent, at least 0.")
        self.least = float(least)

    def __repr__(self) -> str:
        return f"Threshold({self.least:g})"

    def encode(self, tensor: Tensor, name: str) -> Payload:
        flat = tensor.reshape(-1)
        large = flat.abs() >= self.least if self.least else flat != 0
        return sparse_payload(tensor, large.nonzero().view(-1))

    def compress_cost(self, shape: Sequence[int], dtype: torch.dtype = torch.float32, kept: int | None = None) -> Cost:
        """Two passes, as how many there are decides where each goes, and the payload of `kept`, by default all."""
        n = torch.Size(shape).numel()
        return self._select_cost(shape, dtype) + Cost(bytes=sparse_bytes(n if kept is None else kept, dtype))

    def payload_bytes(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> int:
        """The most: every value, with its index."""
        return sparse_bytes(torch.Size(shape).numel(), dtype)

    def wire_bytes(
        self,
        shape: Sequence[int],
        ranks: int,
        dtype: torch.dtype = torch.float32,
        kept: Sequence[int] | None = None,
    ) -> int:
        """See `Compressor`; kept: how many values each rank keeps, which the data decide, by default all of them."""
        n = torch.Size(shape).numel()
        total = n * ranks if kept is None else sum(kept)
        return (ranks - 1) * (ranks * INDEX.itemsize + sparse_bytes(total, dtype))

    def begin(self, comm: Communicator, tensors: Sequence[Tensor], names: Sequence[str]) -> _UnevenRound:
        for tensor in tensors:
            check_indexable(tensor)
        with working(comm, "compress", of_all(self._select_cost, tensors)):
            payloads = [self.encode(tensor, name) for tensor, name in zip(tensors, names, strict=True)]
        lengths = torch.tensor([payload.nbytes for payload in payloads], dtype=torch.int64)
        counts = (lengths // sparse_bytes(1, tensors[0].dtype)).to(INDEX).to(comm.device)
        return _UnevenRound(self, comm, payloads, comm.all_gather(counts, async_op=True))

    def _select_cost(self, shape: Sequence[int], dtype: torch.dtype) -> Cost:
        return passes(torch.Size(shape).numel(), dtype, 2)


class _UnevenRound:
    """An all-gather of payloads whose sizes another has told."""

    def __init__(self, compressor: Threshold, comm: Communicator, payloads: Sequence[Payload], counts: Handle) -> None:
        self._compressor, self._comm, self._payloads, self._counts = compressor, comm, payloads, counts

    def finish(self, means: Sequence[Tensor]) -> None:
        """See `Round`."""
        size = sparse_bytes(1, self._payloads[0].dtype)
        lengths = (self._counts.wait().view(self._comm.size, -1).long() * size).tolist()
        with working(self._comm, "compress", Cost(bytes=sum(payload.nbytes for payload in self._payloads))):
            wire = torch.cat([payload.wire for payload in self._payloads])
        gathered = self._comm.all_gather(wire, sizes=[sum(of_rank) for of_rank in lengths])
        pieces = gathered.split([length for of_rank in lengths for length in of_rank])
        by_tensor = [pieces[at :: len(self._payloads)] for at in range(len(self._payloads))]
        costs = [
            self._compressor.combine_cost(payload.shape, sum(wire.numel() for wire in wires), payload.dtype)
            for payload, wires in zip(self._payloads, by_tensor, strict=True)
        ]
        with working(self._comm, "decompress", sum(costs, Cost())):
            for payload, wires, mean in zip(self._payloads, by_tensor, means, strict=True):
                received = [Payload(wire, payload.shape, payload.dtype) for wire in wires]
                mean.copy_(self._compressor.combine(received).view(mean.shape))

    def leave_residual(self, tensors: Sequence[Tensor]) -> None:
        """See `Round`."""
        subtract_residuals(self._compressor, self._comm, self._payloads, tensors)
