"""The variants of lab 05: which ranks have one image more when they do not divide.

Floor 4, room `exercises`; read `variants.py` of the room first. In the lab itself any ranks may have it.
"""

from __future__ import annotations

import random

import numpy as np
import torch

from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.judge import Finding, Judge
from lockstep.exercises.lab05.shards import shard, shard_as_tensor, shard_by_dealing, shard_of_blocks
from lockstep.exercises.observe import Observation
from lockstep.exercises.plain import short
from lockstep.exercises.variants import Narrowed, Variant

PARAMETER = "longer shards"
FIRST = "where the images do not divide, the *first* ranks have one image more: 7 images on 3 ranks are 3, 2 and 2."
LAST = "where the images do not divide, the *last* ranks have one image more: 7 images on 3 ranks are 2, 2 and 3."


def longer_ones_come(last: bool) -> Judge:
    """The longer shards belong to the last ranks, or to the first."""
    where = "last" if last else "first"

    def judge(case: Case, seen: Observation, expected: Observation) -> Finding | None:
        for parts in seen.value["epochs"]:
            sizes = [len(part) for part in parts]
            want = sorted(sizes, reverse=not last)
            if sizes != want:
                words = f"The images are divided well, but the longer shards do not belong to the {where} ranks."
                return Finding(words, f"sizes {short(want)}", f"sizes {short(sizes)}", ("longer", sizes))
        return None

    return judge


def shard_from_the_back(n, rank, size, epoch, seed):
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator)
    return order[size - 1 - rank :: size].tolist()


def blocks_with_the_rest_behind(n, rank, size, epoch, seed):
    order = np.random.default_rng((seed, epoch)).permutation(n)
    each, rest = divmod(n, size)
    begin = rank * each + max(0, rank - (size - rest))
    return order[begin : begin + each + (rank >= size - rest)].tolist()


def dealt_from_the_last(n, rank, size, epoch, seed):
    cards = list(range(n))
    random.Random(f"{seed}/{epoch}").shuffle(cards)
    hands = [[] for _ in range(size)]
    while cards:
        for hand in reversed(hands):
            if cards:
                hand.append(cards.pop())
    return hands[rank]


def _other_end(function: object, where: str) -> Mistake:
    return Mistake(
        "one more at the wrong end",
        function,
        f"The images are divided well and as evenly as can be. In your variant it is the {where} ranks that have one more "
        "where they do not divide: who begins, when an order is dealt out, gets the rest.",
    )


def _the_middle(n, rank, size, epoch, seed):
    """The rest goes to the middle: the right order, rotated by one rank."""
    return shard(n, (rank + 1) % size, size, epoch, seed)


_MIDDLE = Mistake(
    "one more in the middle",
    _the_middle,
    "The longer shards are neighbours, but they begin at another rank. Write down the sizes for 7 images on 3 ranks, then "
    "for 5 on 4.",
)

SHARD = (
    Variant(
        PARAMETER, "the first ranks", FIRST,
        Narrowed(
            reference=shard,
            also_right=(shard_of_blocks, shard_by_dealing, shard_as_tensor),
            judge=longer_ones_come(last=False),
            mistakes=(_other_end(shard_from_the_back, "first"), _MIDDLE),
        ),
    ),
    Variant(
        PARAMETER, "the last ranks", LAST,
        Narrowed(
            reference=shard_from_the_back,
            also_right=(blocks_with_the_rest_behind, dealt_from_the_last),
            judge=longer_ones_come(last=True),
            mistakes=(_other_end(shard, "last"), _MIDDLE),
            hints=(
                "No rank sends anything here. What has to be equal on all ranks, so that each can take its own part of it "
                "without asking?",
                "Shuffle all n numbers in the same way on every rank: a generator of your own, seeded from `seed` and "
                "`epoch` but not from `rank`. `torch.randperm(n, generator=...)` then gives every rank the same order.",
                "Every `size`-th entry of that order makes parts whose sizes differ by at most one. The part that begins at "
                "entry 0 is one of the longest: which rank takes it?",
            ),
        ),
    ),
)  # fmt: skip

VARIANTS = {"05.1": SHARD}
