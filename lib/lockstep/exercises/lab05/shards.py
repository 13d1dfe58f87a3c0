"""Exercise 05.1: which images a rank works on in an epoch.

Floor 4, room `exercises`; solutions are in `shards_right.py` and `shards_mistakes.py`. Any shuffled order is right, so the judge looks at what every right division shares.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import Finding
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab05.shards_mistakes import MISTAKES
from lockstep.exercises.lab05.shards_right import shard, shard_as_tensor, shard_by_dealing, shard_of_blocks, shard_stub
from lockstep.exercises.observe import Call, Observation
from lockstep.exercises.plain import kind, short

EPOCHS = 3
MANY = 8  # from so many images on, two shuffled orders are never alike by chance


def all_shards(fn: Callable[..., Any], n: int, size: int, seed: int) -> dict[str, Any]:
    """The shards of every rank over some epochs; each call finds generators of its own, as in a process of its own."""

    def call(epoch: int, rank: int, seed: int, salt: int = 0) -> Any:
        _scramble(1000 * salt + 100 * epoch + rank)
        shard = fn(n, rank, size, epoch, seed)
        return shard.tolist() if isinstance(shard, (torch.Tensor, np.ndarray)) else shard

    _scramble(7)
    before = _global_draws()
    _scramble(7)
    fn(n, 0, size, 0, seed)
    after = _global_draws()
    return {
        "epochs": [[call(epoch, rank, seed) for rank in range(size)] for epoch in range(EPOCHS)],
        "again": [call(0, rank, seed, salt=1) for rank in range(size)],
        "other seed": [call(0, rank, seed + 1000) for rank in range(size)],
        "touched": before != after,
    }


def _scramble(own: int) -> None:
    """Leave the global generators where this rank's earlier draws might have left them."""
    torch.default_generator.manual_seed(own)
    np.random.seed(own)
    random.seed(own)


def _global_draws() -> tuple[float, float, float]:
    return torch.rand(()).item(), np.random.random(), random.random()


def divides_the_images(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """Whole numbers; the same for the same arguments; over all ranks every image once; as even as can be; reshuffled."""
    n, size, _ = case.args
    first = seen.value["epochs"][0]
    for rank, part in enumerate(first):
        if not isinstance(part, (list, tuple)) or not all(type(i) is int for i in part):
            want, got = expected.value["epochs"][0][rank], f"{kind(part)}: {short(part)}"
            return Finding(f"Rank {rank} does not get a list of whole numbers.", short(want), got, ("type", got))
    if seen.value["again"] != first:
        got = f"{short(first)}, then {short(seen.value['again'])}"
        return Finding(
            "Called twice with the same arguments, the function gives different indices.", "the same", got, "unstable"
        )
    if seen.value["touched"]:
        return Finding(
            "The call changes the state of a global random generator (torch, NumPy or random).",
            "the global generators as they were", "another state", "touched",
        )  # fmt: skip
    return _uneven(n, size, first) or _unshuffled(n, seen.value)


def _uneven(n: int, size: int, parts: list[list[int]]) -> Finding | None:
    """What is wrong with one epoch's division; the evidence does not depend on the order drawn."""
    together = [i for part in parts for i in part]
    sizes = [len(part) for part in parts]
    shown = f"{sizes} indices by rank: {short(parts, 160)}"
    outside = sorted({i for i in together if not 0 <= i < n})
    if outside:
        return Finding(
            f"There is no image {outside[0]}: the indices run from 0 to {n - 1}.", "0 to n - 1", shown, outside
        )
    if size > 1 and n > 1 and all(part == parts[0] for part in parts):
        return Finding("Every rank works on the same images.", "each image on one rank", shown, "same on all")
    twice = sorted({i for i in together if together.count(i) > 1})
    if twice:
        return Finding(
            f"Image {twice[0]} is worked on more than once in an epoch.", "each image once", shown,
            ("twice", len(together)),
        )  # fmt: skip
    missing = sorted(set(range(n)) - set(together))
    if missing:
        return Finding(
            f"No rank works on image {missing[0]}.", "each image once", shown, ("missing", len(together))
        )  # fmt: skip
    if max(sizes) - min(sizes) > 1:
        return Finding(
            f"One rank has {max(sizes)} images and another {min(sizes)}: the first would make the others wait.",
            "sizes that differ by at most one", shown, sizes,
        )  # fmt: skip
    return None


def _unshuffled(n: int, value: dict[str, Any]) -> Finding | None:
    epochs = value["epochs"]
    if n < MANY:
        return None
    if all(part == sorted(part) for part in epochs[0]) and epochs[0] == epochs[1]:
        return Finding("The images come in their own order.", "a shuffled order", short(epochs[0]), "in order")
    if all(epoch == epochs[0] for epoch in epochs):
        return Finding(
            f"Epochs 0 to {EPOCHS - 1} all have the same order.", "another order in each epoch",
            f"in each: {short(epochs[0])}", "no reshuffle",
        )  # fmt: skip
    if len(epochs[0]) > 1 and all([set(p) for p in epoch] == [set(p) for p in epochs[0]] for epoch in epochs):
        got = f"rank 0, epoch 0: {short(epochs[0][0])}; epoch 1: {short(epochs[1][0])}"
        return Finding(
            "A rank works on the same images in every epoch, only their order changes.",
            "other images for a rank in each epoch", got, "same images",
        )  # fmt: skip
    if value["other seed"] == epochs[0]:
        return Finding(
            "Another seed gives the same order.", "an order that the seed fixes", short(epochs[0]), "seed ignored"
        )
    return None


def cases(rng: np.random.Generator) -> Iterator[Case]:
    for n, size in ((12, 1), (12, 2), (7, 3), (5, 4), (2, 4), (int(rng.integers(90, 99)), 8)):
        ranks = "1 rank" if size == 1 else f"{size} ranks"
        yield Case(f"{n} images, {ranks}", (n, size, int(rng.integers(1, 100))))


OBSERVE, JUDGE = Call(all_shards), divides_the_images

SHARD = Exercise(
    id="05.1",
    title="Who sees which image",
    function="shard",
    points=1,
    asks=(
        "Return the indices of the images that `rank` works on in `epoch`: over all ranks every image from 0 to n - 1 "
        "once, sizes that differ by at most one, shuffled anew in each epoch. Equal arguments give equal indices, and "
        "the global random generators stay as they are."
    ),
    reference=shard,
    also_right=(shard_of_blocks, shard_by_dealing, shard_as_tensor),
    stub=shard_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    hints=(
        (
            "No rank sends anything here. What has to be equal on all ranks, so that each can take its own part of it "
            "without asking?"
        ),
        (
            "Shuffle all n numbers in the same way on every rank: a generator of your own, seeded from `seed` and "
            "`epoch` but not from `rank`. `torch.randperm(n, generator=...)` then gives every rank the same order."
        ),
        (
            "From that order each rank takes its part. Every `size`-th entry, beginning at entry `rank`, makes parts "
            "whose sizes differ by at most one."
        ),
        "The last two lines can be `order = torch.randperm(n, generator=generator)` and "
        "`return order[rank::size].tolist()`.",
    ),
    mistakes=by_first_failure(OBSERVE, JUDGE, MISTAKES),
    equivalent_mutants=(
        "line 2: generator = torch.Generator().manual_seed(seed + epoch) -> "
        "generator = torch.Generator().manual_seed(seed - epoch)",
    ),
)
