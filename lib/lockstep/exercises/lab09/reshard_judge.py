"""How exercise 09.6 is run and judged: the new shards, and how many numbers are read for them.

Floor 4, room `exercises`; the exercise is in `reshard.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from lockstep.exercises.exercise import Case
from lockstep.exercises.judge import Finding
from lockstep.exercises.observe import Observation
from lockstep.exercises.plain import short


class Checkpoint:
    """The old shards; `read(source, start, stop)` counts the numbers that it gives."""

    def __init__(self, shards: list[Tensor]) -> None:
        self.shards, self.numbers = shards, 0

    def read(self, source: int, start: int, stop: int) -> Tensor:
        old = len(self.shards[0])
        if not 0 <= source < len(self.shards):
            raise IndexError(f"there is no shard {source}: the checkpoint has shards 0 to {len(self.shards) - 1}")
        if not 0 <= start <= stop <= old:
            raise IndexError(f"numbers {start} to {stop} of a shard that has {old}")
        self.numbers += stop - start
        return self.shards[source][start:stop].clone()


def on_each_new_rank(fn: Callable[..., Any], numbers: Tensor, old_size: int, size: int) -> dict[str, Any]:
    """The new shards, and how many numbers each rank read."""
    shards = list(F.pad(numbers, (0, -len(numbers) % old_size)).chunk(old_size))
    found, read = [], []
    for rank in range(size):
        checkpoint = Checkpoint(shards)
        found.append(fn(checkpoint.read, len(numbers), old_size, rank, size))
        read.append(checkpoint.numbers)
    return {"shards": found, "read": read}


def right_shards(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    got, want = seen.value["shards"], expected.value["shards"]
    for rank, (mine, right) in enumerate(zip(got, want, strict=True)):
        if isinstance(mine, Tensor) and mine.shape == right.shape and torch.equal(mine, right):
            continue
        said = f"Rank {rank}: the new shard has {len(right)} numbers, yours is {short(mine)}."
        if isinstance(mine, Tensor) and mine.shape == right.shape:
            at = int((mine != right).nonzero()[0])
            said = f"Rank {rank}: number {at} of the new shard is not the right one."
        return Finding(said, short(right), short(mine), (got,))
    spare = old_padding(case)
    for rank, (mine, least) in enumerate(zip(seen.value["read"], expected.value["read"], strict=True)):
        if mine > least + spare:
            said = f"The shards are right, but rank {rank} reads {mine} numbers where {least} are enough."
            return Finding(said, f"{least} numbers", f"{mine} numbers", ("read", mine))
    return None


def old_padding(case: Case) -> int:
    numbers, old_size, _ = case.args
    return -len(numbers) % old_size
