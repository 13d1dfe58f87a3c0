"""The collectives of a torch process group: the backend's where it has them.

Floor 1, room `comm`. Ours, from the base class: `gather`, `scatter`, uneven `all_gather`, and `reduce_scatter` on
gloo, whose own sends as much as an all-reduce.

Nominal bytes are what a good algorithm sends for n bytes over p ranks: all_reduce 2(p-1)/p n and reduce_scatter
(p-1)/p n (ring), all_gather (p-1) n with n one rank's part, all_to_all the rows for other ranks, broadcast n for each
child in a binomial tree, reduce n on all ranks but `dst`, barrier none.

Integers. Sums travel as int64, and int64 as two halves, so that the total is exact, and an error on every rank alike
when it does not fit; products gather all factors first, complex ones too. gloo has no int16, whose max and min travel as int32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from lockstep.comm.board.board import EVERYONE
from lockstep.comm.collectives import direct_gather, direct_scatter, ring_all_gather
from lockstep.comm.collectives.direct import rows_to_swap
from lockstep.comm.communicator import Communicator, Handle
from lockstep.comm.errors import CommunicationError
from lockstep.comm.reduction import check_op, combine, divide, exact_sum, needs_guard, widen
from lockstep.comm.signature import check_rank, check_tensor, describe, in_sizes, rows_left_open
from lockstep.comm.torch_handles import Call
from lockstep.comm.torch_wire import CollectiveWire, Slot, Wire, incoming, outgoing

_OPS = {
    "sum": dist.ReduceOp.SUM,
    "mean": dist.ReduceOp.SUM,  # divided afterwards, as our own algorithms do
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
    "product": dist.ReduceOp.PRODUCT,
}
_GLOO_MOVES = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
)


@lru_cache
def _options(op: str) -> dist.AllreduceOptions:
    options = dist.AllreduceOptions()
    options.reduceOp = _OPS[op]
    return options


class BackendCollectives(Communicator):
    """Collectives of `self.group`; `TorchCommunicator` supplies the rest."""

    group: dist.ProcessGroup
    gloo: bool
    in_order: bool  # the group numbers its ranks as this communicator does
    post_collective: Callable[..., Call]
    start: Callable[..., Any]
    _control: dist.ProcessGroup
    _peers: Sequence[int]
    _wire: Wire

    # -------------------------------------------------------------------------------------------------- reduce

    def all_reduce(self, tensor: Tensor, op: str = "sum", async_op: bool = False) -> Tensor | Handle:
        """Reduce over all ranks, in place on all of them."""
        check_tensor(tensor, self.device)
        check_op(op, tensor.dtype)
        signature = f"all_reduce({op}) of {describe(tensor)}"
        if _gathers_factors(op, tensor.dtype):
            return self._product("all_reduce", signature, tensor, None, async_op)
        call = self.post_collective("all_reduce", signature, size=tensor.nbytes)
        buffer, finish = self._reduction(tensor, op)
        self.traffic.count_nominal("all_reduce", 2 * (self.size - 1) * buffer.nbytes // self.size)
        # Not dist.all_reduce: before it makes this same call it takes ten microseconds, which a small model notices.
        work = self.group.allreduce([torch.view_as_real(buffer) if buffer.is_complex() else buffer], _options(op))
        return self.start(call, [work], finish, async_op)

    def reduce(self, tensor: Tensor, dst: int = 0, op: str = "sum", async_op: bool = False) -> Tensor | Handle:
        """Reduce over all ranks, in place on rank `dst` alone."""
        check_tensor(tensor, self.device)
        check_rank(dst, self.size, "dst")
        check_op(op, tensor.dtype)
        signature = f"reduce({op}) to rank {dst} of {describe(tensor)}"
        if _gathers_factors(op, tensor.dtype):
            return self._product("reduce", signature, tensor, dst, async_op)
        call = self.post_collective("reduce", signature, size=tensor.nbytes)
        mine = self.rank == dst
        buffer, finish = self._reduction(tensor if mine else tensor.detach().clone(), op)
        self.traffic.count_nominal("reduce", 0 if mine else buffer.nbytes)
        work = dist.reduce(buffer, group_dst=self._peers[dst], op=_OPS[op], group=self.group, async_op=True)
        return self.start(call, [work], finish if mine else lambda: (buffer, tensor)[1], async_op)

    def reduce_scatter(
        self, tensor: Tensor, op: str = "sum", sizes: Sequence[int] | None = None, async_op: bool = False
    ) -> Tensor | Handle:
        """Reduce over all ranks and give each its own chunk, 1-D, of `sizes[rank]` elements."""
        ours = self.gloo or not self.in_order or tensor.numel() % self.size or sizes is not None
        if ours or needs_guard(op, tensor.dtype):
            return super().reduce_scatter(tensor, op, sizes, async_op)
        check_tensor(tensor, self.device)
        check_op(op, tensor.dtype)
        call = self.post_collective("reduce_scatter", f"reduce_scatter({op}) of {describe(tensor)}", size=tensor.nbytes)
        chunks = list(outgoing(tensor).chunk(self.size))
        own = torch.empty_like(chunks[0])
        self.traffic.count_nominal("reduce_scatter", (self.size - 1) * own.nbytes)
        work = dist.reduce_scatter(own, chunks, op=_OPS[op], group=self.group, async_op=True)
        return self.start(call, [work], lambda: divide(op, own, self.size), async_op)

    def _reduction(self, tensor: Tensor, op: str) -> tuple[Tensor, Callable[[], Tensor]]:
        """A buffer that the backend can reduce without a wrap, and what makes `tensor` of it afterwards."""
        if tensor.is_floating_point() and tensor.is_contiguous() and not tensor.is_neg():
            buffer = tensor.detach() if tensor.requires_grad else tensor
            return buffer, partial(self._finish_in_place, tensor, buffer, op)
        slot = incoming(tensor)
        if needs_guard(op, tensor.dtype):
            return (wide := widen(slot.buffer)), partial(self._finish_sum, tensor, slot, wide)
        buffer = slot.buffer.to(torch.int32) if tensor.dtype is torch.int16 else slot.buffer
        return buffer, partial(self._finish_beside, tensor, slot, buffer, op)

    def _finish_in_place(self, tensor: Tensor, buffer: Tensor, op: str) -> Tensor:
        divide(op, buffer, self.size)
        return tensor

    def _finish_sum(self, tensor: Tensor, slot: Slot, wide: Tensor) -> Tensor:
        slot.buffer.copy_(exact_sum(wide, tensor.dtype, f"over ranks 0 to {self.size - 1}"))
        slot.copy_back()
        return tensor

    def _finish_beside(self, tensor: Tensor, slot: Slot, buffer: Tensor, op: str) -> Tensor:
        if buffer is not slot.buffer:
            slot.buffer.copy_(buffer)
        divide(op, slot.buffer, self.size)
        slot.copy_back()
        return tensor

    def _product(self, name: str, signature: str, tensor: Tensor, dst: int | None, async_op: bool) -> Tensor | Handle:
        """A product that the backend cannot make, or would wrap: gather the factors, multiply in rank order everywhere."""
        slot = incoming(tensor)

        def algorithm(wire: Communicator) -> Tensor:
            factors = ring_all_gather(wire, slot.buffer.unsqueeze(0))
            total = factors[0]
            for factor in factors[1:]:
                combine("product", total, factor, self.rank, out=total)
            if dst in (None, self.rank):
                slot.buffer.copy_(total)
                slot.copy_back()
            return tensor

        return self.run_collective(name, signature, algorithm, async_op)

    # ---------------------------------------------------------------------------------------------------- move

    def broadcast(self, tensor: Tensor, src: int = 0, async_op: bool = False) -> Tensor | Handle:
        """Copy the tensor of rank `src` to all ranks, in place."""
        check_tensor(tensor, self.device)
        check_rank(src, self.size, "src")
        above, below = broadcast_tree(self._peers[self.rank], self._peers[src], self.size)
        ours = [self._peers.index(peer) for peer in above + below]
        call = self.post_collective(
            "broadcast", f"broadcast from rank {src} of {describe(tensor)}", ours, size=tensor.nbytes
        )
        slot = incoming(tensor)
        self.traffic.count_nominal("broadcast", len(below) * tensor.nbytes)
        work = dist.broadcast(self._movable(slot.buffer), group_src=self._peers[src], group=self.group, async_op=True)

        def finish() -> Tensor:
            slot.copy_back()
            return tensor

        return self.start(call, [work], finish, async_op)

    def all_gather(self, tensor: Tensor, sizes: Sequence[int] | None = None, async_op: bool = False) -> Tensor | Handle:
        """Give everyone the tensors of all ranks joined along dimension 0; `sizes` are the rows of each."""
        if sizes is not None or not self.in_order:
            return super().all_gather(tensor, sizes, async_op)
        check_tensor(tensor, self.device)
        call = self.post_collective("all_gather", f"all_gather of {describe(tensor)}", size=tensor.nbytes)
        own = outgoing(tensor)
        joined = own.new_empty(self.size * own.numel())
        self.traffic.count_nominal("all_gather", (self.size - 1) * own.nbytes)
        parts = list(self._movable(joined).chunk(self.size)) if own.numel() else [own] * self.size
        work = dist.all_gather(parts, self._movable(own), group=self.group, async_op=True)
        rows = (self.size * tensor.shape[0], *tensor.shape[1:]) if tensor.dim() else (self.size,)
        return self.start(call, [work], lambda: joined.view(rows), async_op)

    def all_to_all(
        self,
        tensor: Tensor,
        send_sizes: Sequence[int] | None = None,
        recv_sizes: Sequence[int] | None = None,
        async_op: bool = False,
    ) -> Tensor | Handle:
        """Give each rank the rows that every rank has for it, joined along dimension 0 in rank order.

        With sizes, one small message to each rank goes first and makes sure that they fit.
        """
        check_tensor(tensor, self.device)
        give, take = rows_to_swap(tensor, self.size, self.rank, send_sizes, recv_sizes)
        if not self.in_order:
            return super().all_to_all(tensor, send_sizes, recv_sizes, async_op)
        call = self.post_collective(
            "all_to_all", f"all_to_all of {rows_left_open(tensor, send_sizes)}", size=tensor.nbytes
        )
        if send_sizes is not None:
            self.block(call, "wait", lambda: self._check_rows(give, take))
        own = self._movable(outgoing(tensor))
        joined = tensor.detach().new_empty((sum(take), *tensor.shape[1:]))
        elements = math.prod(tensor.shape[1:])
        row = elements * (1 if own.dtype is tensor.dtype else tensor.itemsize)
        self.traffic.count_nominal("all_to_all", (sum(give) - give[self.rank]) * elements * tensor.itemsize)
        work = dist.all_to_all_single(
            self._movable(joined.view(-1)),
            own,
            [n * row for n in take],
            [n * row for n in give],
            group=self.group,
            async_op=True,
        )
        return self.start(call, [work], lambda: (own, joined)[1], async_op)

    def _check_rows(self, give: Sequence[int], take: Sequence[int]) -> None:
        """Compare what every rank gives with what this one means to take."""
        offered = torch.empty(self.size, dtype=torch.int64)
        dist.all_to_all_single(offered, torch.tensor(give), group=self._control)
        for rank, (rows, expected) in enumerate(zip(offered.tolist(), take, strict=True)):
            if rows != expected:
                raise CommunicationError(
                    f"all_to_all: rank {rank} sends {rows} rows to rank {self.rank}, whose recv_sizes[{rank}] is "
                    f"{expected}."
                )

    def gather(self, tensor: Tensor, dst: int = 0, sizes: Sequence[int] | None = None) -> list[Tensor] | None:
        """Give rank `dst` the tensors of all ranks as a list; `sizes` are the rows of each."""
        check_tensor(tensor, self.device)
        check_rank(dst, self.size, "dst")
        return self.run_collective(
            "gather",
            f"gather to rank {dst} of {rows_left_open(tensor, sizes)}{in_sizes(sizes)}",
            lambda wire: direct_gather(wire, tensor, dst, sizes),
            needs=(EVERYONE,) if self.rank == dst else (dst,),
        )

    def scatter(self, tensor: Tensor, tensors: Sequence[Tensor] | None = None, src: int = 0) -> Tensor:
        """Fill `tensor` on each rank r with `tensors[r]` of rank `src`, in place."""
        check_tensor(tensor, self.device)
        check_rank(src, self.size, "src")
        for each in tensors or ():
            check_tensor(each, self.device)

        def algorithm(wire: CollectiveWire) -> Tensor:
            _check_shapes(wire, tensor, tensors, src)
            return direct_scatter(wire, tensor, tensors, src)

        needs = (EVERYONE,) if self.rank == src else (src,)
        return self.run_collective("scatter", f"scatter from rank {src}", algorithm, needs=needs)

    def barrier(self) -> None:
        """Return when every rank has called it."""
        call = self.post_collective("barrier", "barrier")
        self.start(call, [dist.barrier(group=self.group, async_op=True)], lambda: None, async_op=False)

    def _movable(self, flat: Tensor) -> Tensor:
        """The same memory in a dtype that the backend moves."""
        return flat if not self.gloo or flat.dtype in _GLOO_MOVES else flat.view(torch.uint8)


def _gathers_factors(op: str, dtype: torch.dtype) -> bool:
    """Whether this is a product that the backend would wrap (integers) or refuses (complex)."""
    return op == "product" and (needs_guard(op, dtype) or dtype.is_complex)


def _check_shapes(wire: CollectiveWire, tensor: Tensor, tensors: Sequence[Tensor] | None, src: int) -> None:
    """In a scatter each rank has its own shape: the source says first what it sends, or tags would never meet."""
    if wire.rank == src:
        for rank, each in enumerate(tensors or ()):
            if rank != src and rank < wire.size:
                wire.send_words(describe(each), rank)
        return
    sent, mine = wire.recv_words(src), describe(tensor)
    if sent != mine:
        raise CommunicationError(
            f"Rank {wire.rank} receives into {mine}, rank {src} scatters {sent} to it: "
            f"both sides must have the same shape and dtype."
        )


def broadcast_tree(rank: int, root: int, p: int) -> tuple[list[int], list[int]]:
    """The ranks whose data `rank` needs in gloo's binomial broadcast, up to the root, and those that it sends to."""
    v = (rank - root) % p
    below = [v + (1 << level) for level in range(v.bit_length(), p.bit_length()) if v + (1 << level) < p]
    above = []
    while v:
        v -= 1 << (v.bit_length() - 1)
        above.append(v)
    return [(u + root) % p for u in above], [(u + root) % p for u in below]
