"""Who is in a communicator of the simulated world, and where its ranks meet.

Floor 1, room `world`. A *meeting* is one collective: the ranks of the group enter it one by one, each as
its n-th collective, and what the first one calls the others must call too.
"""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.comm import CommunicationError
from lockstep.comm.board.board import ordinal
from lockstep.comm.callsite import call_site
from lockstep.world.report import name_ranks
from lockstep.world.scheduler import Strand
from lockstep.world.stacks import place
from lockstep.world.transfers import ChannelSpace


class Meeting:
    """One collective of a group. `entered` maps each rank that called it to its call's file and line."""

    def __init__(self, group: Group, number: int, signature: str) -> None:
        self.group, self.number, self.signature = group, number, signature
        self.entered: dict[int, tuple[str, int]] = {}
        self.left = 0
        self.space = ChannelSpace()  # its messages never meet the user's, nor another collective's
        # Of `split`: each rank's color, key and strand; the group of each color.
        self.choices: dict[int, tuple[int | None, int, Strand]] = {}
        self.groups: dict[int, Group] = {}

    @property
    def absent(self) -> list[int]:
        """Ranks that have not called it yet."""
        return [rank for rank in self.group.ranks if rank not in self.entered]

    def form_groups(self) -> None:
        """One group for each color, its ranks in the order of (key, rank), when all have chosen."""
        members: dict[int, list[tuple[int, int, int]]] = {}
        for rank, (color, key, _) in self.choices.items():
            if color is not None:
                members.setdefault(color, []).append((key, self.group.rank_of[rank], rank))
        self.groups = {color: Group([rank for _, _, rank in sorted(each)]) for color, each in members.items()}

    def __str__(self) -> str:
        return f"{self.signature}, its {ordinal(self.number + 1)} collective{self.group.suffix}"


class Group:
    """The ranks of one communicator, numbered as in the whole run, in the order of their ranks in the group."""

    def __init__(self, ranks: Sequence[int], whole: bool = False) -> None:
        self.ranks = tuple(ranks)
        self.rank_of = {rank: number for number, rank in enumerate(ranks)}
        self.space = ChannelSpace()
        self.suffix = "" if whole else f" in the group of {name_ranks(self.ranks)}"
        self._count = dict.fromkeys(ranks, 0)
        self._open: dict[int, Meeting] = {}

    def enter(self, rank: int, signature: str) -> Meeting:
        """The next collective of `rank`; CommunicationError, naming both calls, when another rank's differs."""
        number = self._count[rank]
        self._count[rank] += 1
        meeting = self._open.setdefault(number, Meeting(self, number, signature))
        if meeting.signature != signature:
            first, where = next(iter(meeting.entered.items()))
            raise CommunicationError(
                f"Rank {rank} calls {signature} as its {ordinal(number + 1)} collective{self.suffix}, rank {first} calls "
                f"{meeting.signature} ({place(*where)}): all ranks must call the same collectives in the same order."
            )
        meeting.entered[rank] = call_site()
        return meeting

    def leave(self, meeting: Meeting) -> None:
        """Forget a collective that all ranks have left."""
        meeting.left += 1
        if meeting.left == len(self.ranks):
            del self._open[meeting.number]
