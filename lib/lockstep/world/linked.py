"""Paced messages: real processes whose messages take as long as on a link that this machine does not have.

Floor 1, room `world`. Read `paced` and `ports` first. A message moves for real, and then both of its ranks sleep until
the link would have delivered it. Collectives are those of `comm`, made of such messages: the backend's cannot be
delayed.

Inside a collective a step is posted when the step before it *should* have ended. A rank that wakes up late, because
the cores are busy, so loses nothing as long as the real transfer fits into the time of the paced one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.distributed as dist
from torch import Tensor

from lockstep.comm import Communicator, Handle
from lockstep.comm.board.posts import checksum
from lockstep.comm.collectives import tree_broadcast
from lockstep.comm.collectives.direct import rows_to_swap
from lockstep.comm.signature import check_rank, check_tensor, describe
from lockstep.comm.torch_collectives import broadcast_tree
from lockstep.comm.torch_handles import Call
from lockstep.comm.torch_wire import Wire
from lockstep.hardware import Link
from lockstep.world.paced import Frames, PacedCommunicator, pause_until
from lockstep.world.ports import Ports, Ticket

AT_ONCE = 300e-6  # seconds: a wait for data shorter than this found them there


class Delivery:
    """A batch of messages on their way; after `wait()` the data are there, to be seen at `until` (seconds).

    moved: when each began to move and was there, receives first; known after `wait()`.
    """

    until = 0.0

    def __init__(
        self,
        works: Sequence[dist.Work],
        ends: Sequence[float | Ticket],
        seconds: Sequence[float],
        ports: Ports,
        frames: Frames,
        clock: Callable[[], float],
    ) -> None:
        self.moved: list[tuple[float, float]] = []
        self._works, self._ends, self._seconds = works, ends, seconds
        self._ports, self._frames, self._clock = ports, frames, clock
        self._over = False

    def wait(self) -> None:
        if self._over:
            return
        asked = self._clock()
        for work in self._works:
            work.wait()
        there = self._clock()
        ends = [self._ports.end(end) if isinstance(end, Ticket) else end for end in self._ends]
        last = max(ends, default=there)
        # Data that came after their time were late, by so much; those that were waiting when asked for were not.
        late = max(0.0, there - last) if there - asked > AT_ONCE else 0.0
        arrivals = [end + late if end == last else end for end in ends]
        self.moved = [
            (end - seconds, arrived) for end, seconds, arrived in zip(ends, self._seconds, arrivals, strict=True)
        ]
        self.until = self._frames.until = last
        self._over = True


class PacedWire(Wire):
    """A wire whose batches take as long as on `link`; single sends and receives, which carry no data, do not.

    in_run: the rank in the whole run of each rank; me: this one's. name: of the communicator.
    """

    def __init__(
        self,
        group: dist.ProcessGroup,
        peers: Sequence[int],
        in_run: Sequence[int],
        me: int,
        name: str,
        link: Link,
        ports: Ports,
        frames: Frames,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(group, peers, tags=True)
        self._frames = frames
        self._in_run, self._me, self._link, self._ports, self._clock = in_run, in_run[me], link, ports, clock
        self._key = checksum(name) >> 1 << 31  # tags have 31 bits

    def batch(
        self, sends: Sequence[tuple[Tensor, int, int]], recvs: Sequence[tuple[Tensor, int, int]], posted: float
    ) -> list[Delivery]:
        seconds = [self._link.seconds(buffer.nbytes) for buffer, _, _ in (*recvs, *sends)]
        ends = [self._post(rank, False, tag, posted, buffer) for buffer, rank, tag in recvs]
        ends += [self._post(rank, True, tag, posted, buffer) for buffer, rank, tag in sends]
        return [Delivery(super().batch(sends, recvs, posted), ends, seconds, self._ports, self._frames, self._clock)]

    def recv_any(self, buffer: Tensor, tag: int, posted: float) -> int:
        source = super().recv_any(buffer, tag, posted)
        end = self._post(source, False, tag, posted, buffer)
        pause_until(self._clock, self._ports.end(end) if isinstance(end, Ticket) else end)
        return source

    def moved(self, works: Sequence[Delivery], receives: int, posted: float, now: float) -> list[tuple[float, float]]:
        return works[0].moved[:receives]

    def hold(self, works: Sequence[Delivery]) -> None:
        for work in works:
            pause_until(self._clock, work.until)

    def first_post(self, begun: float) -> float:
        return begun

    def next_post(self, works: Sequence[Delivery]) -> float | None:
        return max((arrived for _, arrived in works[0].moved), default=None)

    def _post(self, peer: int, sends: bool, tag: int, posted: float, buffer: Tensor) -> float | Ticket:
        src, dst = (self._me, self._in_run[peer]) if sends else (self._in_run[peer], self._me)
        return self._ports.post(src, dst, sends, self._key | tag, posted, self._link.seconds(buffer.nbytes))


class LinkedCommunicator(PacedCommunicator):
    """A `PacedCommunicator` whose messages take as long as on `pace.link`; `ports` are those of the run."""

    def __init__(self, *, ports: Ports, **options: Any) -> None:
        self._ports = ports
        super().__init__(**options)

    def _make_wire(self) -> PacedWire:
        place = self.group, self._peers, self._in_run, self.rank, self._name
        return PacedWire(*place, self.pace.link, self._ports, self.frames, self.now)

    def hold(self, works: Sequence[Delivery]) -> None:
        for work in works:
            pause_until(self.now, work.until)
        now = self.now()
        self.frames.account(now - self.frames.since, now)  # since the call that waited

    def _record(self, kind: str, call: Call, start: float, stream: int = 0) -> None:
        """The span of a call lasts until what it waited for may be seen."""
        detail = {} if kind == "wait" else call.detail
        end = max(self.now(), self.frames.until)
        self.recorder.add_span(kind, call.name, start, end, None, stream, call.bytes, detail)

    all_reduce = Communicator.all_reduce
    reduce = Communicator.reduce
    reduce_scatter = Communicator.reduce_scatter
    all_gather = Communicator.all_gather
    barrier = Communicator.barrier

    def broadcast(self, tensor: Tensor, src: int = 0, async_op: bool = False) -> Tensor | Handle:
        """Copy the tensor of rank `src` to all ranks, in place."""
        check_tensor(tensor, self.device)
        check_rank(src, self.size, "src")
        above, below = broadcast_tree(self.rank, src, self.size)
        return self.run_collective(
            "broadcast",
            f"broadcast from rank {src} of {describe(tensor)}",
            lambda wire: tree_broadcast(wire, tensor, src),
            async_op,
            needs=above + below,
        )

    def all_to_all(
        self,
        tensor: Tensor,
        send_sizes: Sequence[int] | None = None,
        recv_sizes: Sequence[int] | None = None,
        async_op: bool = False,
    ) -> Tensor | Handle:
        """Give each rank the rows that every rank has for it, joined along dimension 0 in rank order."""
        check_tensor(tensor, self.device)
        give, take = rows_to_swap(tensor, self.size, self.rank, send_sizes, recv_sizes)
        if send_sizes is not None:
            self._check_rows(give, take)
        return Communicator.all_to_all(self, tensor, send_sizes, recv_sizes, async_op)
