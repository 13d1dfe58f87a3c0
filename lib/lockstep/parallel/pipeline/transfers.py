"""What ranks must send each other so that a schedule can run: data as well, derived from the actions alone.

Floor 2, room `parallel`. A forward's output goes to the next chunk, a backward's input gradient to the chunk before;
where both are on one rank nothing is sent. Between two ranks messages arrive in the order in which they were sent, so
a rank receives in its sender's order, which need not be that in which it uses them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from lockstep.parallel.pipeline.schedule import Action, Item, Schedule

Channel = tuple[int, int]
"""(source rank, destination rank)"""


@dataclass(frozen=True, slots=True)
class Transfer:
    """One message: the activation that leaves `chunk` forward, or the gradient that leaves it backward."""

    kind: str  # "activation" or "gradient"
    chunk: int
    micro_batch: int
    src: int
    dst: int

    @property
    def boundary(self) -> int:
        """The chunk before the cut that it crosses, whichever way."""
        return self.chunk if self.kind == "activation" else self.chunk - 1

    def __str__(self) -> str:
        return f"the {self.kind} of micro-batch {self.micro_batch} from chunk {self.chunk}"


class Transfers:
    """Every message of a schedule: what each action needs and gives, and each channel's messages in sending order."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule, self.placement = schedule, schedule.placement
        self._given: dict[Action, Transfer | None] = {}
        self._needed: dict[Action, Transfer | None] = {}

    def given(self, part: Action) -> Transfer | None:
        """What is sent after an action, if anything."""
        if part not in self._given:
            self._given[part] = self._find_given(part)
        return self._given[part]

    def _find_given(self, part: Action) -> Transfer | None:
        if part.kind == "F":
            return self._between("activation", part.chunk, part.chunk + 1, part.micro_batch)
        if part.kind in "BI":
            return self._between("gradient", part.chunk, part.chunk - 1, part.micro_batch)
        return None

    def needed(self, part: Action) -> Transfer | None:
        """What must have arrived before an action, if anything."""
        if part not in self._needed:
            self._needed[part] = self._find_needed(part)
        return self._needed[part]

    def _find_needed(self, part: Action) -> Transfer | None:
        if part.kind == "F":
            return self._between("activation", part.chunk - 1, part.chunk, part.micro_batch)
        if part.kind in "BI":
            return self._between("gradient", part.chunk + 1, part.chunk, part.micro_batch)
        return None

    def given_by(self, item: Item) -> list[Transfer]:
        """What is sent after an item of a schedule."""
        return [transfer for part in item.parts if (transfer := self.given(part))]

    def needed_by(self, item: Item) -> list[Transfer]:
        """What must have arrived before an item of a schedule."""
        return [transfer for part in item.parts if (transfer := self.needed(part))]

    @cached_property
    def sent(self) -> dict[Channel, list[Transfer]]:
        """Each channel's messages in the order in which they are sent."""
        channels: dict[Channel, list[Transfer]] = {}
        for part in self.schedule.parts():
            if transfer := self.given(part):
                channels.setdefault((transfer.src, transfer.dst), []).append(transfer)
        return channels

    @cached_property
    def used(self) -> dict[Channel, list[Transfer]]:
        """Each channel's messages in the order in which they are used."""
        channels: dict[Channel, list[Transfer]] = {}
        for part in self.schedule.parts():
            if transfer := self.needed(part):
                channels.setdefault((transfer.src, transfer.dst), []).append(transfer)
        return channels

    def _between(self, kind: str, chunk: int, to: int, micro_batch: int) -> Transfer | None:
        src, dst = self.placement.get(chunk), self.placement.get(to)
        if src is None or dst is None or src == dst:
            return None
        return Transfer(kind, chunk, micro_batch, src, dst)
