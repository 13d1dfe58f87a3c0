"""Parts of a torch process group as communicators of their own.

Floor 1, room `comm`. Read `torch_group` first. torch numbers the ranks of a group in the order of the whole run, and
names it after a count of each process, so a part keeps a table of whom it calls what.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
import torch.distributed as dist

from lockstep.comm.board import Board
from lockstep.comm.communicator import Communicator
from lockstep.comm.errors import CommunicationError
from lockstep.comm.torch_handles import Call


class Splits(Communicator):
    """`split` of `self.group`; `TorchCommunicator` supplies the rest."""

    _groups_made = 0  # of this process: process groups made by `split`

    board: Board | None
    group: dist.ProcessGroup
    block: Callable[..., Any]
    post_collective: Callable[..., Call]
    _control: dist.ProcessGroup
    _in_run: Sequence[int]
    _name: str
    _peers: Sequence[int]
    _set_up: Callable[..., None]
    _splits: int

    def split(self, color: int | None, key: int = 0) -> Self | None:
        """Collective: one communicator for each `color`, its ranks in order of (key, rank); None for `color=None`."""
        if not (color is None or isinstance(color, int)) or not isinstance(key, int):
            raise CommunicationError(f"split(color={color!r}, key={key!r}): both are whole numbers; color may be None.")
        call = self.post_collective("split", "split")
        return self.block(call, "collective", lambda: self._split(color, key))

    def on_cpu(self) -> Self:
        """Collective: the same ranks, for messages of CPU tensors; CommunicationError when the group has no gloo."""
        if "gloo" not in dist.get_backend_config(self.group):
            raise CommunicationError(
                f"Messages of CPU tensors need gloo, and this group has {dist.get_backend_config(self.group)}: "
                f'open it with init_process_group("cpu:gloo,cuda:nccl").'
            )
        twin = self.split(0)
        twin.device = torch.device("cpu")
        twin._set_up(twin._peers, twin._name)
        return twin

    def _split(self, color: int | None, key: int) -> Self | None:
        number, self._splits = self._splits, self._splits + 1
        mine = torch.tensor([color is not None, color or 0, key, Splits._groups_made])
        table = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(table, mine, group=self._control)
        rows = [table[peer].tolist() for peer in self._peers]  # in order of our ranks
        self._even_out(max(row[3] for row in rows))
        if color is None:
            self._make_group([self.rank])
            return None
        colors = sorted({row[1] for row in rows if row[0]})
        members = sorted((r for r, row in enumerate(rows) if row[0] and row[1] == color), key=lambda r: (rows[r][2], r))
        name = f"{self._name}.{number}-{colors.index(color)}".removeprefix(".")
        return self._part(members, self._make_group(members), name)

    def _even_out(self, groups_made: int) -> None:
        """Make groups of one until this process has made as many as the others.

        torch names a group after its ranks and a count of the groups its process made: where the counts differ,
        because only some ranks were in an earlier split, members would wait under different names for ever.
        """
        while Splits._groups_made < groups_made:
            self._make_group([self.rank])

    def _make_group(self, members: Sequence[int]) -> dist.ProcessGroup:
        Splits._groups_made += 1
        everywhere = sorted(dist.get_global_rank(self.group, self._peers[member]) for member in members)
        backend = dist.get_backend_config(self.group)
        return dist.new_group(everywhere, backend=backend, use_local_synchronization=True)

    def _part(self, members: Sequence[int], group: dist.ProcessGroup, name: str) -> Self:
        """The communicator of `members` (ranks of this one, in their new order) on `group`."""
        part = copy.copy(self)  # what concerns the rank and not the communicator is shared
        part.group, part._control = group, group
        part.rank, part.size, part.device = members.index(self.rank), len(members), self.device
        part._in_run = tuple(self._in_run[member] for member in members)
        part.board = self.board and self._board_of(part, name)
        # torch numbers the ranks of a group by their order in the whole run, whatever the key says.
        in_group = sorted(dist.get_global_rank(self.group, self._peers[member]) for member in members)
        peers = [in_group.index(dist.get_global_rank(self.group, self._peers[member])) for member in members]
        part._set_up(peers, name)
        return part

    def _board_of(self, part: Self, name: str) -> Board:
        path = self.board.child_path(name)
        if part.rank == 0:
            Board.create(path, part.size, members=part._in_run).close()
        dist.barrier(group=part._control)
        board = self.board.child(name, part.size, part.rank)
        dist.barrier(group=part._control)
        if part.rank == 0 and not self.board.root.path.exists():  # its readers are all here: leave no file behind
            path.unlink()
        return board
