"""Exercise 05.1: which images a rank works on in an epoch.

Floor 4, room `exercises`. Any shuffled order is right, so the judge looks at what every right division shares.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.judge import Finding
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.observe import Call, Observation
from lockstep.exercises.plain import kind, short

EPOCHS = 3
MANY = 8  # from so many images on, two shuffled orders are never alike by chance


def shard(n, rank, size, epoch, seed):
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator)
    return order[rank::size].tolist()


def shard_of_blocks(n, rank, size, epoch, seed):
    order = np.random.default_rng((seed, epoch)).permutation(n)
    return np.array_split(order, size)[rank]


def shard_by_dealing(n, rank, size, epoch, seed):
    cards = list(range(n))
    random.Random(f"{seed} {epoch}").shuffle(cards)
    return [card for place, card in enumerate(cards) if place % size == rank]


def shard_as_tensor(n, rank, size, epoch, seed):
    generator = torch.Generator()
    generator.manual_seed(1000 * seed + epoch)
    return torch.tensor_split(torch.randperm(n, generator=generator), size)[rank]


def shard_stub(n, rank, size, epoch, seed):
    generator = torch.Generator()  # noqa: F841 - the skeleton, as students get it
    order = ...  # noqa: F841
    raise NotImplementedError("return this rank's part of the order")


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
    mistakes=by_first_failure(
        OBSERVE,
        JUDGE,
        (
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
                "When the images do not divide evenly, those left over are never seen in that epoch. Give some ranks one "
                "more.",
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
        ),
    ),
    equivalent_mutants=(
        "line 2: generator = torch.Generator().manual_seed(seed + epoch) -> "
        "generator = torch.Generator().manual_seed(seed - epoch)",
    ),
)
