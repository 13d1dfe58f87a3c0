"""Eight bits a value, added up without wrapping.

Floor 2, room `compress`. Sources: Dettmers 2016 (8-bit gradients); Wang et al. 2023, "ZeRO++", section 3.3 (all-to-all,
then a sum in full precision). int8 sums wrap, 100 + 100 = -56, so no rank ever adds codes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lockstep.comm import Communicator, Handle
from lockstep.comm.collectives import chunk_sizes
from lockstep.compress.blocks import block_count, in_blocks, pieces, round_stochastically, scaled
from lockstep.compress.compressor import Compressor, check_count
from lockstep.compress.finite import scale_dtype
from lockstep.compress.payload import Payload, empty_fields, split_fields
from lockstep.compress.work import of_all, passes, working
from lockstep.cost import Cost

MOST = 127  # the largest code: one scale serves both signs


class Int8(Compressor):
    """Each value as one of 255 steps of its block's largest magnitude, rounded at random: unbiased.

    block: elements that share a scale. Each rank owns some blocks: it gets everyone's codes of these, turns them into
    floats, takes the mean, rounds it again and sends it to all. So a rank sends 2(p-1)/p payloads, as many as a ring
    sends gradients, a quarter of the bytes. With error feedback the owner's residual holds the second rounding, too.
    """

    def __init__(self, block: int = 1024) -> None:
        self.block = check_count(block, "block")

    def __repr__(self) -> str:
        return f"Int8(block={self.block})"

    def encode(self, tensor: Tensor, name: str) -> Payload:
        flat, n, dtype = tensor.reshape(-1), tensor.numel(), scale_dtype(tensor.dtype)
        wire, (scales, codes) = empty_fields(tensor.device, (dtype, self._blocks(n)), (torch.int8, n))
        for piece in pieces(n, self.block, tensor.device):
            rows = in_blocks(flat[piece], self.block, dtype)
            scale = rows.abs().amax(1, keepdim=True).div_(MOST)
            scales[piece.start // self.block :][: len(rows)] = scale.view(-1)
            # clamp: the scale is rounded, so the largest value may lie just above 127 of it
            rounded = round_stochastically(rows / scale.where(scale > 0, 1)).clamp_(-MOST, MOST)
            codes[piece] = rounded.view(-1)[: piece.stop - piece.start]
        return Payload(wire, tensor.shape, tensor.dtype)

    def decompress(self, payload: Payload) -> Tensor:
        n, dtype = payload.shape.numel(), scale_dtype(payload.dtype)
        scales, codes = split_fields(payload.wire, (dtype, self._blocks(n)), (torch.int8, n))
        return scaled(codes, scales, self.block, payload.dtype).view(payload.shape)

    def payload_bytes(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> int:
        """A byte for each value, a scale for each block."""
        n = torch.Size(shape).numel()
        return n + self._blocks(n) * scale_dtype(dtype).itemsize

    def wire_bytes(self, shape: Sequence[int], ranks: int, dtype: torch.dtype = torch.float32) -> int:
        """p-1 payloads in the all-to-all and p-1 in the all-gather."""
        return 2 * (ranks - 1) * self.payload_bytes(shape, dtype)

    def compress_cost(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Cost:
        """The tensor is read and the payload written, once."""
        return passes(torch.Size(shape).numel(), dtype) + Cost(bytes=self.payload_bytes(shape, dtype))

    def decompress_cost(self, shape: Sequence[int], ranks: int, dtype: torch.dtype = torch.float32) -> Cost:
        """The owner's part, and then the payloads of all owners are read and the mean written."""
        return self.own_cost(shape, ranks, dtype) + self.compress_cost(shape, dtype)

    def residual_cost(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Cost:
        """The payload is read, and the tensor is read and written."""
        return passes(torch.Size(shape).numel(), dtype, 2) + Cost(bytes=self.payload_bytes(shape, dtype))

    def own_cost(self, shape: Sequence[int], ranks: int, dtype: torch.dtype = torch.float32) -> Cost:
        """Of an owner: pieces that make up a payload are read, and the mean's, 1/ranks of one, is written."""
        return Cost(bytes=self.payload_bytes(shape, dtype)) * (1 + 1 / ranks)

    def begin(self, comm: Communicator, tensors: Sequence[Tensor], names: Sequence[str]) -> _OwnersRound:
        return _OwnersRound(self, comm, tensors)

    def shares(self, tensor: Tensor, position: int, ranks: int) -> list[Tensor]:
        """The flat tensor cut at blocks, the share of each rank; `position` decides who owns the first block."""
        blocks = chunk_sizes(self._blocks(tensor.numel()), ranks)
        ends = torch.tensor([blocks[(rank - position) % ranks] for rank in range(ranks)]).cumsum(0) * self.block
        return list(tensor.reshape(-1).tensor_split(ends[:-1].clamp(max=tensor.numel())))

    def _blocks(self, n: int) -> int:
        return block_count(n, self.block)


class _OwnersRound:
    """An all-to-all of everyone's pieces to their owners, then an all-gather of the means."""

    def __init__(self, compressor: Int8, comm: Communicator, tensors: Sequence[Tensor]) -> None:
        self._compressor, self._comm, self._tensors = compressor, comm, tensors
        with working(comm, "compress", of_all(compressor.compress_cost, tensors)):
            shares = [compressor.shares(tensor, at, comm.size) for at, tensor in enumerate(tensors)]  # [tensor][rank]
            self._sent = [[compressor.encode(share, "") for share in of_tensor] for of_tensor in shares]
            to_rank = [torch.cat([of_tensor[rank].wire for of_tensor in self._sent]) for rank in range(comm.size)]
        self._sizes = [wire.numel() for wire in to_rank]
        own = [self._sizes[comm.rank]] * comm.size
        self._handle: Handle = comm.all_to_all(
            torch.cat(to_rank), send_sizes=self._sizes, recv_sizes=own, async_op=True
        )
        self._owned: list[tuple[Tensor, Tensor]] = []  # of each tensor: mean of this rank's piece, as sent to all

    def finish(self, means: Sequence[Tensor]) -> None:
        """See `Round`."""
        comm, compressor = self._comm, self._compressor
        rank, size = comm.rank, comm.size
        arrived = self._handle.wait()
        with working(comm, "decompress", of_all(compressor.own_cost, self._tensors, size)):
            mine = [of_tensor[rank] for of_tensor in self._sent]
            received = [self._decompress(wire, mine) for wire in arrived.chunk(size)]
            totals = [sum(pieces[1:], pieces[0]).div_(size) for pieces in zip(*received, strict=True)]
            own = torch.cat([compressor.encode(total, "").wire for total in totals])
        joined = comm.all_gather(own, sizes=self._sizes)
        with working(comm, "decompress", of_all(compressor.compress_cost, self._tensors)):
            by_rank = [
                self._decompress(wire, [of_tensor[owner] for of_tensor in self._sent])
                for owner, wire in enumerate(joined.split(self._sizes))
            ]
            for mean, pieces in zip(means, zip(*by_rank, strict=True), strict=True):
                mean.copy_(torch.cat(pieces).view(mean.shape))
        self._owned = list(zip(totals, by_rank[rank], strict=True))

    def leave_residual(self, tensors: Sequence[Tensor]) -> None:
        """See `Round`."""
        rank, size = self._comm.rank, self._comm.size
        with working(self._comm, "decompress", of_all(self._compressor.residual_cost, tensors)):
            for tensor, sent, (mean, received) in zip(tensors, self._sent, self._owned, strict=True):
                own = [self._compressor.decompress(payload) for payload in sent]
                own[rank] += size * (received - mean)  # the second rounding, on behalf of all ranks
                tensor.sub_(torch.cat(own).view(tensor.shape))

    def _decompress(self, wire: Tensor, like: Sequence[Payload]) -> list[Tensor]:
        """One piece of each tensor, from payloads of the same sizes as `like` side by side."""
        wires = wire.split([payload.wire.numel() for payload in like])
        return [
            self._compressor.decompress(Payload(wire, payload.shape, payload.dtype))
            for wire, payload in zip(wires, like, strict=True)
        ]
