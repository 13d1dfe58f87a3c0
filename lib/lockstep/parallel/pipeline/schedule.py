"""A schedule is a value: for each rank, the list of its actions in order.

Floor 2, room `parallel`. It runs nothing: the same value is printed, drawn, proved (`prove`), timed (`timing`) and
executed (`execute`). The ones that people know are in `schedules`.

Vocabulary: the model is cut into *chunks*, counted from the input. A *stage* is what one rank holds: one chunk, or
several. A *micro-batch* is a part of the batch. An *action* is what a rank does to one micro-batch with one chunk:

| kind | what it does                                                     | needs                                      |
|------|------------------------------------------------------------------|--------------------------------------------|
| F    | forward                                                          | F of the chunk before                      |
| B    | backward, whole: gradients of the input and of the weights       | its F, and B or I of the chunk after       |
| I    | the first half of backward: the gradient of the input            | its F, and B or I of the chunk after       |
| W    | the second half of backward: the gradient of the weights         | its I                                      |
| U    | update of the chunk's weights with this micro-batch's gradient   | its B or W                                 |
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstep.parallel.pipeline.prove import Proof
    from lockstep.parallel.pipeline.timing import Costs, Timing

NAMES = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient", "U": "update"}
KINDS = tuple(NAMES)
_WRITTEN = re.compile(r"(\d+)([FBIWU])(\d+)")


class InvalidSchedule(ValueError):
    """A schedule that cannot be run; the sentence says which action is wrong and why."""


@dataclass(frozen=True, slots=True, repr=False)
class Action:
    """What a rank does to one micro-batch with one chunk; prints as "2F0": chunk 2, forward, micro-batch 0.

    Raises TypeError or ValueError for what is no action.
    """

    kind: str
    chunk: int
    micro_batch: int

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"the kind of an action is one of {', '.join(KINDS)}, not {self.kind!r}")
        for name in ("chunk", "micro_batch"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{name} is {value!r}: chunks and micro-batches are counted with whole numbers, from 0")
            if value < 0:
                raise ValueError(f"{name} is {value}: chunks and micro-batches are counted from 0")

    @classmethod
    def parse(cls, text: str) -> Action:
        """The action that prints as `text`; ValueError for another text."""
        found = _WRITTEN.fullmatch(text.strip())
        if not found:
            raise ValueError(f"{text!r} is no action: write chunk, kind and micro-batch, such as 2F0 or 1B3")
        return cls(found[2], int(found[1]), int(found[3]))

    @property
    def parts(self) -> tuple[Action, ...]:
        """Itself: so that actions and overlaps are read alike."""
        return (self,)

    def __repr__(self) -> str:
        return f"{self.chunk}{self.kind}{self.micro_batch}"


@dataclass(frozen=True, slots=True, repr=False)
class Overlap:
    """A forward and a backward that one rank does at the same time, as one action: DualPipeV's."""

    parts: tuple[Action, ...]

    def __post_init__(self) -> None:
        if [part.kind for part in self.parts] not in (["F", "B"], ["F", "I"]):
            raise ValueError(f"an overlap is of a forward and a backward, in this order, not of {self.parts!r}")

    def __repr__(self) -> str:
        return f"({';'.join(map(repr, self.parts))})OVERLAP_F_B"


Item = Action | Overlap


@dataclass(frozen=True)
class Schedule:
    """`actions[rank]` is what that rank does, in order; `chunks` and `micro_batches` say how many there are.

    vertical_sync: with updates between, every chunk uses the weights that the first chunk used (see `pipedream`).
    Two schedules are equal when they do the same in the same order. Raises TypeError for a row that holds something
    else than actions, and ValueError without a rank, a chunk or a micro-batch.
    """

    name: str
    chunks: int
    micro_batches: int
    actions: tuple[tuple[Item, ...], ...]
    vertical_sync: bool = False

    def __post_init__(self) -> None:
        counted("chunks", self.chunks)
        counted("micro_batches", self.micro_batches)
        object.__setattr__(self, "actions", tuple(_row(rank, row) for rank, row in enumerate(self.actions)))
        if not self.actions:
            raise ValueError("a schedule needs at least one rank: actions holds one list of actions for each")

    @classmethod
    def of(cls, actions: Iterable[Iterable[Any]], name: str = "your schedule") -> Schedule:
        """A schedule from lists of actions, or of their texts such as "0F1", one list a rank.

        It has as many chunks and micro-batches as its highest numbers say.
        """
        rows = tuple(_row(rank, row) for rank, row in enumerate(actions))
        parts = [part for row in rows for item in row for part in item.parts]
        if not parts:
            raise ValueError("the schedule is empty: give each rank's list of actions, such as Action('F', 0, 0)")
        return cls(name, 1 + max(p.chunk for p in parts), 1 + max(p.micro_batch for p in parts), rows)

    @property
    def ranks(self) -> int:
        """How many ranks it is for."""
        return len(self.actions)

    @cached_property
    def placement(self) -> dict[int, int]:
        """The rank of each chunk: the first that has an action of it."""
        found: dict[int, int] = {}
        for rank, row in enumerate(self.actions):
            for item in row:
                for part in item.parts:
                    found.setdefault(part.chunk, rank)
        return dict(sorted(found.items()))

    @cached_property
    def updates(self) -> bool:
        """Whether weights are updated between the micro-batches, and not once after all of them."""
        return any(part.kind == "U" for part in self.parts())

    def parts(self, rank: int | None = None) -> list[Action]:
        """All actions of one rank, or of all, in order, with overlaps taken apart."""
        rows = self.actions if rank is None else (self.actions[rank],)
        return [part for row in rows for item in row for part in item.parts]

    def prove(self) -> Proof:
        """Whether it can be run, and what it needs; see `prove.Proof`."""
        return self._proof

    @cached_property
    def _proof(self) -> Proof:
        from lockstep.parallel.pipeline.prove import prove  # here, because prove.py needs this module

        return prove(self)

    def simulate(
        self,
        forward: Costs = 1,
        backward: Costs = 2,
        input_gradient: Costs = 1,
        weight_gradient: Costs = 1,
        transfer: Costs = 0,
        update: float = 0,
    ) -> Timing:
        """When each action runs, if each takes what is given here; see `timing.simulate`."""
        from lockstep.parallel.pipeline.timing import simulate  # here, because timing.py needs this module

        return simulate(self, forward, backward, input_gradient, weight_gradient, transfer, update)

    def __str__(self) -> str:
        counts = (
            (self.ranks, "rank", "ranks"),
            (self.chunks, "chunk", "chunks"),
            (self.micro_batches, "micro-batch", "micro-batches"),
        )
        said = ", ".join(f"{n} {one if n == 1 else many}" for n, one, many in counts)
        lines = [f"{self.name}: {said}"]
        return "\n".join(lines + [f"rank {rank}: {' '.join(map(repr, row))}" for rank, row in enumerate(self.actions)])


def counted(name: str, value: int) -> int:
    """`value`, a whole number of at least 1; TypeError or ValueError for another."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}: give a whole number")
    if value < 1:
        raise ValueError(f"{name} is {value}: there must be at least 1")
    return value


def _row(rank: int, row: Sequence[Any]) -> tuple[Item, ...]:
    if isinstance(row, str) or not isinstance(row, Iterable):
        raise TypeError(f"the actions of rank {rank} are {row!r:.60}: give a list of actions for each rank")
    items = tuple(Action.parse(item) if isinstance(item, str) else item for item in row)
    for item in items:
        if not isinstance(item, (Action, Overlap)):
            raise TypeError(f"rank {rank} has {item!r:.60} among its actions: give Action('F', chunk, micro_batch)")
    return items
