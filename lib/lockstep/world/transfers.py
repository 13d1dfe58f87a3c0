"""Messages on the move: who meets whom, when a transfer starts, what it occupies.

Floor 1, room `world`. A *post* is one side of a message: a send or a receive that a rank has called.
Posts meet in a *channel space*, first in, first out between each pair of ranks; each communicator and
each collective has a space of its own, so that their messages never mix. Every rank has a send port and
a receive port, so it can do both at once, but only one of each.

    a transfer starts when both sides are posted and both ports are free,
    and occupies both ports for latency + bytes / bandwidth of the link.

Among transfers that wait for a port, the one whose second side was posted first goes first.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor

from lockstep.comm import CommunicationError, Traffic
from lockstep.comm.signature import describe
from lockstep.hardware import Cluster, Link
from lockstep.world.scheduler import Scheduler, Strand


class Post:
    """One side of a message. Ranks are those of the whole run; `peer` is None for a receive from anyone.

    late: the receiver has not called `wait` yet, so that what arrives is kept in `arrived` until it does.
    end: when the transfer ends (seconds); None as long as it has not begun.
    """

    # Most posts never set these; as attributes of the class they cost nothing.
    late = awaited = False
    end: float | None = None
    arrived: Tensor | None = None
    error: Exception | None = None

    def __init__(self, strand: Strand, buffer: Tensor, peer: int | None, sends: bool) -> None:
        self.strand, self.rank, self.time = strand, strand.rank, strand.clock
        # Outside autograd: whichever thread completes the transfer has its own grad mode.
        self.buffer = buffer if sends and not buffer.requires_grad else buffer.detach()
        self.peer, self.sends = peer, sends


class ChannelSpace:
    """The posts of one communicator or collective that have not met yet, by (source, destination)."""

    __slots__ = ("any_source", "receives", "sends")

    def __init__(self) -> None:
        self.sends: dict[tuple[int, int], deque[Post]] = {}
        self.receives: dict[tuple[int, int], deque[Post]] = {}
        self.any_source: dict[int, Post] = {}


class Network:
    """The ports and links of a cluster. `messages` lists what moved: (src, dst, bytes, sent, received)."""

    def __init__(self, scheduler: Scheduler, cluster: Cluster, ranks: int) -> None:
        self._scheduler, self._cluster = scheduler, cluster
        self._links: dict[tuple[int, int], Link] = {}
        self._send_free, self._receive_free = [0.0] * ranks, [0.0] * ranks
        self._turn = itertools.count()  # of transfers, in the order in which their second sides were posted
        self.traffic = [Traffic() for _ in range(ranks)]
        self.messages: list[tuple[int, int, int, float, float]] = []

    def send(self, space: ChannelSpace, post: Post) -> Post:
        """Post a send; CommunicationError when the receive it meets has another shape or dtype."""
        key = (post.rank, post.peer)
        waiting = space.receives.get(key)
        if waiting:
            self._meet(post, waiting.popleft())
        elif post.peer in space.any_source:
            # A receive from anyone blocks its rank, so every receive from this rank alone was posted before it.
            self._meet(post, space.any_source.pop(post.peer))
        else:
            space.sends.setdefault(key, deque()).append(post)
        return post

    def receive(self, space: ChannelSpace, post: Post) -> Post:
        """Post a receive; CommunicationError when the send it meets has another shape or dtype."""
        if post.peer is None:
            # A message arrives when it is posted: earliest first, ties by rank.
            heads = [(queue[0].time, src) for (src, dst), queue in space.sends.items() if dst == post.rank and queue]
            if not heads:
                space.any_source[post.rank] = post
                return post
            post.peer = min(heads)[1]
        key = (post.peer, post.rank)
        waiting = space.sends.get(key)
        if waiting:
            self._meet(waiting.popleft(), post)
        else:
            space.receives.setdefault(key, deque()).append(post)
        return post

    def wait(self, strand: Strand, posts: Sequence[Post], verb: str) -> None:
        """Move `strand` to the end of the transfers of `posts`; `verb` names the call if that is never."""
        until, missing = strand.clock, 0
        for post in posts:
            if post.end is None:
                post.awaited = True
                missing += 1
            elif post.end > until:
                until = post.end
        if missing:
            strand.missing, strand.until = missing, until
            self._scheduler.block(strand, (verb, posts))
        else:
            strand.clock = until
        for post in posts:
            if post.error is not None:
                raise post.error

    def _meet(self, send: Post, receive: Post) -> None:
        receive.peer = send.rank
        sent, into = send.buffer, receive.buffer
        if sent.shape != into.shape or sent.dtype is not into.dtype:
            raise CommunicationError(
                f"Rank {receive.rank} receives into {describe(into)}, rank {send.rank} sends {describe(sent)}: "
                f"both sides must have the same shape and dtype."
            )
        self._start(send, receive, max(send.time, receive.time), next(self._turn))

    def _start(self, send: Post, receive: Post, now: float, turn: int) -> None:
        src, dst = send.rank, receive.rank
        free = max(self._send_free[src], self._receive_free[dst])
        if free > now:
            self._scheduler.at(free, turn, lambda time: self._start(send, receive, time, turn))
            return
        size = send.buffer.nbytes
        link = self._links.get((src, dst))
        if link is None:
            link = self._links[src, dst] = self._cluster.link(src, dst)
        end = now + link.seconds(size)
        self._send_free[src] = self._receive_free[dst] = end
        self.traffic[src].count_sent(dst, size)
        self.traffic[dst].count_received(size)
        self.messages.append((src, dst, size, now, end))
        if receive.late:
            receive.arrived = send.buffer.clone()
        else:
            try:
                copy(send.buffer, receive.buffer)
            except RuntimeError as error:  # a buffer that cannot be written; its own rank is to hear of it
                receive.error = error
        for post in (send, receive):
            post.end = end
            if post.awaited:
                strand = post.strand
                strand.missing -= 1
                if end > strand.until:
                    strand.until = end
                if not strand.missing:
                    self._scheduler.wake(strand, strand.until)


def copy(source: Tensor, target: Tensor) -> None:
    """Copy values, also where `target` was made in another thread's inference mode."""
    try:
        target.copy_(source)
    except RuntimeError:
        if not target.is_inference():
            raise
        with torch.inference_mode():
            target.copy_(source)
