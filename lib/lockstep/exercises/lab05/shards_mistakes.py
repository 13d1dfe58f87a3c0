"""Exercise 05.1: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; the exercise is in `shards.py`.
"""

from __future__ import annotations

import math

import torch

from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.observe import Observation


def same_on_every_rank(n, rank, size, epoch, seed):
    generator = torch.Generator().manual_seed(seed + epoch)
    return torch.randperm(n, generator=generator)[: math.ceil(n / size)].tolist()


def never_reshuffles(n, rank, size, epoch, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(n, generator=generator)[rank::size].tolist()


def shuffles_by_rank(n, rank, size, epoch, seed):
    generator = torch.Generator().manual_seed(100 * seed + 10 * epoch + rank)
    return torch.randperm(n, generator=generator)[rank::size].tolist()


def draws_from_the_global_generator(n, rank, size, epoch, seed):
    return torch.randperm(n)[rank::size].tolist()


def seeds_the_global_generator(n, rank, size, epoch, seed):
    torch.manual_seed(seed + epoch)
    return torch.randperm(n)[rank::size].tolist()


def pads(n, rank, size, epoch, seed):
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator).tolist()
    while len(order) % size:
        order.append(order[len(order) % n])
    return order[rank::size]


def drops_the_rest(n, rank, size, epoch, seed):
    each = n // size
    generator = torch.Generator().manual_seed(seed + epoch)
    return torch.randperm(n, generator=generator)[rank * each : (rank + 1) * each].tolist()


def gives_the_rest_to_the_last(n, rank, size, epoch, seed):
    each = n // size
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator)
    return order[rank * each : n if rank == size - 1 else (rank + 1) * each].tolist()


def rounds_the_blocks_up(n, rank, size, epoch, seed):
    each = math.ceil(n / size)
    generator = torch.Generator().manual_seed(seed + epoch)
    return torch.randperm(n, generator=generator)[rank * each : (rank + 1) * each].tolist()


def does_not_shuffle(n, rank, size, epoch, seed):
    return list(range(rank, n, size))


def shuffles_inside_the_shard(n, rank, size, epoch, seed):
    own = torch.arange(rank, n, size)
    generator = torch.Generator().manual_seed(seed + epoch)
    return own[torch.randperm(len(own), generator=generator)].tolist()


def ignores_the_seed(n, rank, size, epoch, seed):
    generator = torch.Generator().manual_seed(epoch)
    return torch.randperm(n, generator=generator)[rank::size].tolist()


def ranks_disagree(case: Case, seen: Observation, expected: Observation) -> bool:
    """As many indices as images, but some on two ranks: every rank has an order of its own."""
    if seen.error is not None or seen.value["again"] != seen.value["epochs"][0]:
        return False
    parts = seen.value["epochs"][0]
    together = [i for part in parts for i in part]
    return len(together) == case.args[0] and len(set(together)) < len(together) and parts.count(parts[0]) < len(parts)


def repeats_to_fill_up(case: Case, seen: Observation, expected: Observation) -> bool:
    """All shards are of one size, since some images come twice."""
    if seen.error is not None:
        return False
    sizes = {len(part) for part in seen.value["epochs"][0]}
    return len(sizes) == 1 and case.args[0] % case.args[1] > 0 and sizes.pop() * case.args[1] > case.args[0]


MISTAKES = (
    Mistake(
        "same shard on every rank",
        same_on_every_rank,
        "All ranks work on the same images, so the job is done several times over and most images are never seen. "
        "Where does `rank` come in?",
    ),
    Mistake(
        "no reshuffle",
        never_reshuffles,
        "Every epoch has the same order: `epoch` has no influence. Then the same images meet in a batch again and "
        "again. Let the seed of the shuffle depend on the epoch too.",
    ),
    Mistake(
        "every rank shuffles for itself",
        shuffles_by_rank,
        "The ranks do not agree on one order, so some images go to two ranks and others to none. The shuffle may "
        "depend on `seed` and `epoch`, not on `rank`; the rank only chooses a part of it.",
        symptom=ranks_disagree,
    ),
    Mistake(
        "draws from the global generator",
        draws_from_the_global_generator,
        "The order depends on what was drawn before, and every rank has drawn other numbers before. Make a "
        "`torch.Generator()` of your own and seed it from the arguments.",
    ),
    Mistake(
        "same dropout mask on every rank",
        seeds_the_global_generator,
        "You seed the global generator, and whatever draws from it next begins there: with one seed for all ranks, "
        "dropout would draw the same mask on every rank, in every epoch anew. Seed a `torch.Generator()` of your "
        "own.",
    ),
    Mistake(
        "pads with images seen before",
        pads,
        "To make all shards equally long, some images are handed out twice, so they count double. PyTorch's own "
        "DistributedSampler does that too. Here shards may differ in size by one.",
        symptom=repeats_to_fill_up,
    ),
    Mistake(
        "drops the rest",
        drops_the_rest,
        "When the images do not divide evenly, those left over are never seen in that epoch. Give some ranks one more.",
    ),
    Mistake(
        "the last rank takes the rest",
        gives_the_rest_to_the_last,
        "All that is left over goes to the last rank, which then works longer while the others wait. Spread the "
        "rest: one image each.",
    ),
    Mistake(
        "rounds the blocks up",
        rounds_the_blocks_up,
        "Blocks rounded up leave little or nothing for the last ranks: 5 images in blocks of 2 are 2, 2, 1 and 0. "
        "Sizes may differ by one only.",
    ),
    Mistake(
        "does not shuffle",
        does_not_shuffle,
        "The images come in the order in which they are stored. Many sets are sorted by class, and then a batch "
        "holds one class only. Shuffle all indices first, then take this rank's part.",
    ),
    Mistake(
        "shuffles only inside its shard",
        shuffles_inside_the_shard,
        "A rank meets the same images in every epoch; only their order changes. Shuffle all n indices first and "
        "divide afterwards, so that a rank's images change too.",
    ),
    Mistake(
        "ignores the seed",
        ignores_the_seed,
        "The order depends on the epoch alone: `seed` has no influence, so two runs with different seeds see the "
        "same batches.",
    ),
)
