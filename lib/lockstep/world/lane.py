"""Point to point for one rank: the `comm` that simulated collectives run on.

Floor 1, room `world`. A lane joins a channel space (whose messages meet whose) and a strand (whose clock
runs). The user's own messages, each collective, and collectives beside the rank's work have one each.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lockstep.world.groups import Group
from lockstep.world.scheduler import Scheduler, Strand
from lockstep.world.transfers import ChannelSpace, Network, Post

CPU = torch.device("cpu")


class Lane:
    """`send`, `recv` and `exchange` on `space` at the clock of `strand`; ranks are those of `group`."""

    def __init__(
        self, scheduler: Scheduler, network: Network, group: Group, space: ChannelSpace, strand: Strand
    ) -> None:
        self.rank, self.size, self.device = group.rank_of[strand.rank], len(group.ranks), CPU
        self._ready, self._network = scheduler.yield_to_earlier, network
        self._group, self._space, self._strand = group, space, strand

    def send(self, tensor: Tensor, dst: int) -> None:
        """Return when the transfer has ended."""
        self._ready(self._strand)
        post = self.post_send(tensor, dst)
        self._network.wait(self._strand, (post,), "send")

    def recv(self, tensor: Tensor, src: int | None = None) -> int:
        """Return the source when the transfer has ended; `src=None` takes what was sent first."""
        self._ready(self._strand)
        post = self.post_receive(tensor, src)
        self._network.wait(self._strand, (post,), "recv")
        return self._group.rank_of[post.peer]

    def exchange(self, sends: Sequence[tuple[Tensor, int]], recvs: Sequence[tuple[Tensor, int]]) -> None:
        """Post everything at once; return when all has ended."""
        self._ready(self._strand)
        posts = [self.post_send(tensor, dst) for tensor, dst in sends]
        posts += [self.post_receive(tensor, src) for tensor, src in recvs]
        self._network.wait(self._strand, posts, "exchange")

    def post_send(self, tensor: Tensor, dst: int) -> Post:
        """Post a send, now."""
        return self._network.send(self._space, Post(self._strand, tensor, self._group.ranks[dst], True))

    def post_receive(self, tensor: Tensor, src: int | None, late: bool = False) -> Post:
        """Post a receive, now; `late` keeps what arrives until someone asks for it."""
        post = Post(self._strand, tensor, None if src is None else self._group.ranks[src], False)
        if late:
            post.late = True
        return self._network.receive(self._space, post)
