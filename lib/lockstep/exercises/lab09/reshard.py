"""09.6 `reshard`: the shards of a checkpoint, read by another number of ranks.

Floor 4, room `exercises`. Judged by the shards and by how many numbers are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.judge import Finding
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.observe import Call, Observation
from lockstep.exercises.plain import short
from lockstep.exercises.symptoms import matches, says


def reshard(read, elements, old_size, rank, size):
    old, new = -(-elements // old_size), -(-elements // size)
    start, stop = rank * new, min((rank + 1) * new, elements)
    parts = []
    for source in range(old_size):
        first, last = max(start, source * old), min(stop, (source + 1) * old)
        if first < last:
            parts.append(read(source, first - source * old, last - source * old))
    missing = new - sum(len(part) for part in parts)
    return torch.cat([*parts, torch.zeros(missing)])


def going_along(read, elements, old_size, rank, size):
    old, new = (elements + old_size - 1) // old_size, (elements + size - 1) // size
    own, at, stop = torch.zeros(new), rank * new, min(elements, rank * new + new)
    while at < stop:
        source, inside = divmod(at, old)
        part = read(source, inside, min(old, inside + stop - at))
        own[at - rank * new : at - rank * new + len(part)] = part
        at += len(part)
    return own


def number_by_number(read, elements, old_size, rank, size):
    shards = [-(-elements // n) for n in (old_size, size)]
    own = torch.zeros(shards[1])
    for i in range(shards[1]):
        at = rank * shards[1] + i
        if at < elements:
            own[i] = read(at // shards[0], at % shards[0], at % shards[0] + 1)[0]
    return own


def reshard_stub(read, elements, old_size, rank, size):
    raise NotImplementedError("this rank's new shard, from parts of old ones")


def everything(read, elements, old_size):
    old = -(-elements // old_size)
    return torch.cat([read(source, 0, old) for source in range(old_size)])


def reads_everything(read, elements, old_size, rank, size):
    new = -(-elements // size)
    whole = everything(read, elements, old_size)[:elements]
    return F.pad(whole, (0, new * size - elements)).split(new)[rank].clone()


def reads_whole_shards(read, elements, old_size, rank, size):
    old = -(-elements // old_size)
    return reshard(lambda source, start, stop: read(source, 0, old)[start:stop], elements, old_size, rank, size)


def old_padding_stays(read, elements, old_size, rank, size):
    whole = everything(read, elements, old_size)
    return F.pad(whole, (0, -len(whole) % size)).chunk(size)[rank].clone()


def its_own_old_shard(read, elements, old_size, rank, size):
    return read(rank % old_size, 0, -(-elements // old_size))


def no_new_padding(read, elements, old_size, rank, size):
    new = -(-elements // size)
    return reshard(read, elements, old_size, rank, size)[: max(0, min(new, elements - rank * new))]


def floors(read, elements, old_size, rank, size):
    old, new = -(-elements // old_size), elements // size
    own, at = torch.zeros(new), rank * new
    while at < (rank + 1) * new:
        source, inside = divmod(at, old)
        part = read(source, inside, min(old, inside + (rank + 1) * new - at))
        own[at - rank * new : at - rank * new + len(part)] = part
        at += len(part)
    return own


def from_one_old_shard(read, elements, old_size, rank, size):
    old, new = -(-elements // old_size), -(-elements // size)
    source, inside = divmod(rank * new, old)
    part = read(source, inside, min(old, inside + new)) if source < old_size else torch.zeros(0)
    return F.pad(part, (0, new - len(part)))


def boundary_off_by_one(read, elements, old_size, rank, size):
    def shifted(source, start, stop):
        return read(source, max(start - 1, 0), max(stop - 1, 0)) if start else read(source, start, stop)

    return reshard(shifted, elements, old_size, rank, size)


def old_shards_rounded_down(read, elements, old_size, rank, size):
    old, new = elements // old_size, -(-elements // size)
    own, at, stop = torch.zeros(new), rank * new, min(elements, rank * new + new)
    while at < stop:
        part = read(at // old, at % old, min(old, at % old + stop - at))
        own[at - rank * new : at - rank * new + len(part)] = part
        at += len(part)
    return own


def leaves_out_the_last(read, elements, old_size, rank, size):
    return reshard(lambda source, start, stop: read(source, start, stop - 1), elements, old_size, rank, size)


def reads_past_the_end(read, elements, old_size, rank, size):
    old, new = -(-elements // old_size), -(-elements // size)
    own, at = torch.zeros(new), rank * new
    while at < (rank + 1) * new:
        source, inside = divmod(at, old)
        part = read(source, inside, min(old, inside + (rank + 1) * new - at))
        own[at - rank * new : at - rank * new + len(part)] = part
        at += len(part)
    return own


def splits_unevenly(read, elements, old_size, rank, size):
    return everything(read, elements, old_size)[:elements].tensor_split(size)[rank].clone()


def swaps_old_and_new(read, elements, old_size, rank, size):
    return reshard(read, elements, size, rank % old_size, old_size)


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


def cases(rng: np.random.Generator) -> Iterator[Case]:
    for elements, old_size, size in ((6, 2, 3), (12, 4, 3), (10, 4, 3), (11, 3, 4), (9, 4, 1), (7, 1, 2), (5, 4, 8)):
        numbers = torch.tensor(rng.normal(size=elements), dtype=torch.float32) + 3
        name = f"{elements} numbers, saved by {old_size} rank{'s' * (old_size > 1)}, loaded by {size}"
        yield Case(name, (numbers, old_size, size))


def reads_too_much(case: Case, seen: Observation, expected: Observation) -> bool:
    """More than is needed, and not on every rank everything."""
    if seen.error is not None or right_shards(case, seen, expected) is None:
        return False
    numbers, old_size, _ = case.args
    everything = len(numbers) + old_padding(case)
    return (
        min(seen.value["read"]) < everything
        and seen.value["read"] != expected.value["read"]
        and all(
            isinstance(mine, Tensor) and torch.equal(mine, right)
            for mine, right in zip(seen.value["shards"], expected.value["shards"], strict=True)
        )
    )


def a_number_short(case: Case, seen: Observation, expected: Observation) -> bool:
    """A slice that is one number longer than what was read for it, or the mistake's own numbers."""
    if seen.error is not None:
        sizes = matches(r"expanded size of the tensor|shape mismatch|size of tensor|must match the size")
        return sizes(case, seen, expected)
    theirs = on_each_new_rank(leaves_out_the_last, *case.args)["shards"]
    return all(isinstance(g, Tensor) and torch.equal(g, t) for g, t in zip(seen.value["shards"], theirs, strict=True))


OBSERVE = Call(on_each_new_rank)

RESHARD = Exercise(
    id="09.6",
    title="Saved by four, loaded by three",
    function="reshard",
    points=2,
    core=False,
    asks=(
        "A checkpoint holds `elements` numbers in the shards of `old_size` ranks, cut and padded as in 09.2. "
        "`read(source, start, stop)` gives numbers `start` to `stop - 1` of old rank `source`'s shard. Return the shard "
        "that `rank` of `size` ranks has, padded with zeros, and read no number that it does not need."
    ),
    reference=reshard,
    also_right=(going_along, number_by_number),
    stub=reshard_stub,
    cases=cases,
    observe=OBSERVE,
    judge=right_shards,
    equivalent_mutants=("line 7: if first < last: -> if first <= last:",),  # reads a piece of no numbers
    hints=(
        "Think of the flat tensor without any padding: numbers 0 to `elements - 1`. Which of them does the new rank have? "
        "And where in the old shards is number i of the flat tensor?",
        "Number i is in old shard `i // old`, at place `i % old`, where `old` is the length of an old shard. A new shard may "
        "begin in the middle of one, and end in the middle of another.",
        "Go along: from the place where you are, read to the end of the old shard or of your own, whichever comes first; "
        "then you are in the next one. Stop at `elements`: what comes behind is old padding.",
    ),
    mistakes=by_first_failure(
        OBSERVE,
        right_shards,
        (
            Mistake(
                "loads only at the same rank count",
                its_own_old_shard,
                "Each rank takes the old shard of its own number. That works at the old number of ranks and at no other: a "
                "new shard is made of parts of old ones.",
            ),
            Mistake(
                "old padding stays",
                old_padding_stays,
                "The old shards' padding is still there when you cut anew, and may end up in the middle. Cut it off first: "
                "the checkpoint has `elements` numbers, and the rest is zeros that belonged to the old cut.",
            ),
            Mistake(
                "reads everything",
                reads_everything,
                "Every rank reads the whole checkpoint to keep a part of it. With a model that needs sharding, the whole does "
                "not fit into one rank's memory: read what you keep.",
            ),
            Mistake(
                "reads whole shards",
                reads_whole_shards,
                "You read old shards whole and keep a part of each. `read` takes a start and a stop, so that nothing else has "
                "to come.",
                symptom=reads_too_much,
            ),
            Mistake(
                "no new padding",
                no_new_padding,
                "The last shard is too short. All ranks' shards have equal length, with zeros behind the last number.",
            ),
            Mistake(
                "splits unevenly",
                splits_unevenly,
                "`tensor_split` makes shards of unequal length. All have `elements / size` numbers, rounded up, and the last "
                "ones are padded.",
            ),
            Mistake(
                "floor for ceil",
                floors,
                "You round the new shard's length down; the last numbers get lost. Round up and pad.",
            ),
            Mistake(
                "from one old shard",
                from_one_old_shard,
                "You read beyond the end of an old shard. Where a new shard reaches over it, go on in the next one, as often "
                "as it takes.",
                symptom=says("of a shard that has"),
            ),
            Mistake(
                "boundary off by one",
                boundary_off_by_one,
                "Where a new shard begins inside an old one, you read one number too early. Number i of the flat tensor is "
                "number `i % old` of its shard.",
            ),
            Mistake(
                "old shards rounded down",
                old_shards_rounded_down,
                "You round the old shards' length down. They were cut as in 09.2: rounded up, and padded at the end.",
            ),
            Mistake(
                "takes the stop along",
                leaves_out_the_last,
                "Your pieces are a number too short. As with a slice, `stop` itself is not read: give it as one behind the last.",
                symptom=a_number_short,
            ),
            Mistake(
                "reads past the end",
                reads_past_the_end,
                "You read on where there are no numbers left: the new shards together are longer than `elements`. Stop there, "
                "and leave zeros.",
                symptom=says("there is no shard"),
            ),
            Mistake(
                "swaps the two numbers of ranks",
                swaps_old_and_new,
                "You take `size` for the number of ranks that saved and `old_size` for those that load. It is the other way round.",
            ),
        ),
    ),
)
