"""Wrong functions for exercise 09.6, and by what some of them show.

Floor 4, room `exercises`; the exercise is in `reshard.py`, what they are told in `reshard_mistakes.py`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from lockstep.exercises.exercise import Case
from lockstep.exercises.lab09.reshard_judge import old_padding, on_each_new_rank, right_shards
from lockstep.exercises.lab09.reshard_right import reshard
from lockstep.exercises.observe import Observation
from lockstep.exercises.symptoms import matches


def along(read, old, new, rank, stop=math.inf):
    """The right way through the old shards, given the lengths of old and new ones, and where it ends."""
    own, at = torch.zeros(new), rank * new
    stop = min(stop, at + new)
    while at < stop:
        source, inside = divmod(at, old)
        part = read(source, inside, min(old, inside + stop - at))
        own[at - rank * new : at - rank * new + len(part)] = part
        at += len(part)
    return own


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
    return along(read, -(-elements // old_size), elements // size, rank)


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
    return along(read, elements // old_size, -(-elements // size), rank, elements)


def leaves_out_the_last(read, elements, old_size, rank, size):
    return reshard(lambda source, start, stop: read(source, start, stop - 1), elements, old_size, rank, size)


def reads_past_the_end(read, elements, old_size, rank, size):
    return along(read, -(-elements // old_size), -(-elements // size), rank)


def splits_unevenly(read, elements, old_size, rank, size):
    return everything(read, elements, old_size)[:elements].tensor_split(size)[rank].clone()


def swaps_old_and_new(read, elements, old_size, rank, size):
    return reshard(read, elements, size, rank % old_size, old_size)


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
