"""Messages of a torch process group: one way in and out for the user's messages and for our collectives.

Floor 1, room `comm`. On gloo every message carries a tag made from its dtype and shape, so that a send and a
receive that do not fit never meet; tags of collectives are apart from those of the user's messages. NCCL has no
tags and pairs messages in order, and its opposite sends must be in one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from lockstep.comm.board.posts import checksum
from lockstep.comm.collectives.layout import flatten, write_back
from lockstep.comm.signature import describe

if TYPE_CHECKING:
    from lockstep.comm.torch_group import TorchCommunicator

_TAGS = (1 << 30) - 1
_COLLECTIVE = 1 << 30
WORDS = 128  # bytes of a control message


def message_tag(signature: str) -> int:
    """The gloo tag of one of the user's messages."""
    return checksum(signature) & _TAGS


def collective_tag(signature: str, index: int) -> int:
    """The gloo tag of a message that belongs to collective number `index`."""
    return _COLLECTIVE | ((checksum(signature) ^ index * 0x9E3779B1) & _TAGS)


def outgoing(tensor: Tensor) -> Tensor:
    """The elements of `tensor` row by row, as the backend must have them; a view where the layout allows."""
    return flatten(tensor)


class Slot(NamedTuple):
    """A 1-D buffer to receive into, and what puts its content where it belongs."""

    buffer: Tensor
    copy_back: Callable[[], object]


def incoming(tensor: Tensor) -> Slot:
    """Where data for `tensor` arrives: in `tensor` itself where the layout allows, else beside it."""
    flat = flatten(tensor)
    return Slot(flat, partial(write_back, tensor, flat))


class Wire:
    """isend, irecv and batches on one group. `peers[r]` is the group's number for rank r of the communicator."""

    def __init__(self, group: dist.ProcessGroup, peers: Sequence[int], tags: bool) -> None:
        self._group, self._peers, self.tags = group, peers, tags

    def isend(self, buffer: Tensor, dst: int, tag: int) -> dist.Work:
        return dist.isend(buffer, group=self._group, group_dst=self._peers[dst], tag=tag if self.tags else 0)

    def irecv(self, buffer: Tensor, src: int, tag: int) -> dist.Work:
        return dist.irecv(buffer, group=self._group, group_src=self._peers[src], tag=tag if self.tags else 0)

    def recv_any(self, buffer: Tensor, tag: int, posted: float) -> int:
        """Receive from whoever sends first; gives the rank. gloo only. `posted` as in `batch`."""
        source = dist.recv(buffer, group=self._group, tag=tag)
        return self._peers.index(dist.get_group_rank(self._group, source))

    def batch(
        self, sends: Sequence[tuple[Tensor, int, int]], recvs: Sequence[tuple[Tensor, int, int]], posted: float
    ) -> list[dist.Work]:
        """Start all of (buffer, rank, tag) at once; `posted` (seconds) counts where a wire paces its messages."""
        if self.tags:  # gloo: receives first, so that data goes straight into its buffer
            return [self.irecv(*each) for each in recvs] + [self.isend(*each) for each in sends]
        ops = [dist.P2POp(dist.isend, t, group=self._group, group_peer=self._peers[r]) for t, r, _ in sends]
        ops += [dist.P2POp(dist.irecv, t, group=self._group, group_peer=self._peers[r]) for t, r, _ in recvs]
        return dist.batch_isend_irecv(ops) if ops else []

    def moved(self, works: Sequence[dist.Work], receives: int, posted: float, now: float) -> list[tuple[float, float]]:
        """When each of the `receives` messages of a batch that is over began to move and was there, as far as seen."""
        return [(posted, now)] * receives

    def hold(self, works: Sequence[dist.Work]) -> None:
        """Return when what was waited for may be seen: at once, where nothing is paced."""

    def first_post(self, begun: float) -> float | None:
        """When a collective that began at `begun` posts its first message; None means now."""
        return None

    def next_post(self, works: Sequence[dist.Work]) -> float | None:
        """When a collective posts what follows on this batch; None means now."""
        return None


class CollectiveWire:
    """What a collective of ours runs on: the `rank`, `size`, `send`, `recv`, `exchange` of collective `index`.

    post: when its next message is posted, in seconds; None means whenever that is.
    """

    def __init__(self, comm: TorchCommunicator, wire: Wire, index: int, post: float | None = None) -> None:
        self.rank, self.size, self.device, self.post = comm.rank, comm.size, comm.device, post
        self._comm, self._wire, self._index = comm, wire, index
        self._sent = [0] * comm.size
        self._received = [0] * comm.size

    def send(self, tensor: Tensor, dst: int) -> None:
        self.exchange([(tensor, dst)], [])

    def recv(self, tensor: Tensor, src: int) -> int:
        self.exchange([], [(tensor, src)])
        return src

    def exchange(self, sends: Sequence[tuple[Tensor, int]], recvs: Sequence[tuple[Tensor, int]]) -> None:
        if not sends and not recvs:
            return
        posted = self._comm.now() if self.post is None else self.post
        slots = [incoming(tensor) for tensor, _ in recvs]
        works = self._wire.batch(
            [(outgoing(tensor), dst, self._tag(describe(tensor))) for tensor, dst in sends],
            [(slot.buffer, src, self._tag(describe(tensor))) for slot, (tensor, src) in zip(slots, recvs, strict=True)],
            posted,
        )
        for tensor, dst in sends:
            self._comm.count_sent(dst, ("collective", self._index, self._sent[dst]), tensor.nbytes, posted)
            self._sent[dst] += 1
        for work in works:
            work.wait()
        self.post = self._wire.next_post(works)
        times = self._wire.moved(works, len(recvs), posted, self._comm.now())
        for slot, (tensor, src), (began, there) in zip(slots, recvs, times, strict=True):
            slot.copy_back()
            index = ("collective", self._index, self._received[src])
            self._comm.count_received(src, index, tensor.nbytes, began, there)
            self._received[src] += 1
        self._wire.hold(works)

    def send_words(self, words: str, dst: int) -> None:
        """Send a control message, which is not counted."""
        buffer = torch.zeros(WORDS, dtype=torch.uint8)
        text = words.encode()[:WORDS]
        buffer[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        self._wire.isend(buffer.to(self.device), dst, self._tag("words")).wait()

    def recv_words(self, src: int) -> str:
        """Receive a control message."""
        buffer = torch.zeros(WORDS, dtype=torch.uint8, device=self.device)
        self._wire.irecv(buffer, src, self._tag("words")).wait()
        return bytes(buffer.tolist()).rstrip(b"\0").decode()

    def _tag(self, words: str) -> int:
        return collective_tag(words, self._index)
