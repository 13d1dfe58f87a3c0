"""11.2 `best_bucket`: the bucket size with which the last reduction ends first.

Floor 4, room `exercises`. Right functions are in `bucket_right.py`, wrong ones in `bucket_mistakes.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lockstep.comm import predict_seconds
from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import Finding
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab11.bucket_mistakes import MISTAKES
from lockstep.exercises.lab11.bucket_right import best_bucket, best_bucket_stub, by_plans, recursively
from lockstep.exercises.observe import Call, Observation
from lockstep.exercises.plain import kind, short

KB, MS = 1000, 1e-3
CLOSE = 1e-9  # seconds


@dataclass(frozen=True)
class RingSeconds:
    """`seconds(nbytes)` of an all-reduce by a ring."""

    ranks: int
    latency: float
    bandwidth: float

    def __call__(self, nbytes: int) -> float:
        return predict_seconds("ring_all_reduce", nbytes, self.ranks, self.latency, self.bandwidth)

    def __repr__(self) -> str:
        return f"ring of {self.ranks}, {self.latency * 1e3:g} ms, {self.bandwidth / 1e6:g} MB/s"


def last_end(gradients: Sequence[tuple[float, int]], seconds: RingSeconds, size: int) -> float:
    """When the last reduction ends with that size."""
    free, held = 0.0, 0
    for place, (ready, nbytes) in enumerate(gradients, 1):
        held += nbytes
        if held >= size or place == len(gradients):
            free, held = max(free, ready) + seconds(held), 0
    return free


def ends_first(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """One of the sizes, and none of the others ends sooner; several may end together."""
    gradients, seconds, sizes = case.args
    got = seen.value.item() if hasattr(seen.value, "item") and getattr(seen.value, "ndim", 1) == 0 else seen.value
    if got is None:
        return Finding("The function returns None: is there a `return` on every path?", short(expected.value), "None")
    if isinstance(got, bool) or not isinstance(got, (int, float)):
        return Finding("A number is asked for, one of `sizes`.", short(expected.value), kind(got), ("type", str(got)))
    if got not in sizes:
        return Finding(
            f"{short(got)} is not one of the sizes {short(list(sizes))}.", short(expected.value), short(got), ("none", got)
        )  # fmt: skip
    mine, best = (last_end(gradients, seconds, size) for size in (got, expected.value))
    if mine <= best + CLOSE:
        return None
    return Finding(
        f"With {got:,} bytes the last reduction ends at {mine / MS:.3f} ms, with {expected.value:,} already at "
        f"{best / MS:.3f} ms.",
        f"{expected.value:,}", f"{got:,}", ("later", got),
    )  # fmt: skip


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Links where latency rules, where bandwidth does, and between; sizes that are just reached, and just missed."""
    even = [(2 * MS * k, 100 * KB) for k in range(1, 7)]
    growing = [(1 * MS, 20 * KB), (2 * MS, 50 * KB), (4 * MS, 100 * KB), (7 * MS, 200 * KB), (11 * MS, 30 * KB)]
    heavy_first = [(1 * MS, 800 * KB), (2 * MS, 40 * KB), (3 * MS, 40 * KB), (8 * MS, 40 * KB), (9 * MS, 20 * KB)]
    sizes = [10**6, 200 * KB, 4, 10**7, 100 * KB, 300 * KB]
    yield _case("one gradient", even[:1], RingSeconds(2, 1 * MS, 1e8), [4, 10**6])
    yield _case("six equal gradients", even, RingSeconds(2, 0.5 * MS, 1e8), sizes)
    yield _case("the same, a link without latency", even, RingSeconds(2, 0.0, 1e8), sizes)
    yield _case("the same, a link with much latency", even, RingSeconds(2, 4 * MS, 1e8), sizes)
    yield _case("layers that grow", growing, RingSeconds(4, 0.2 * MS, 1e8), [400 * KB, 70 * KB, 4, 170 * KB, 10**6])
    yield _case(
        "a heavy last layer", heavy_first, RingSeconds(2, 0.4 * MS, 2e8), [60 * KB, 800 * KB, 10**7, 4, 80 * KB, 10**6]
    )
    for name, count in (("eight", 8), ("twelve", 12), ("twenty", 20), ("thirty", 30)):
        ready = np.cumsum(rng.integers(1, 40, count)) / 10 * MS
        bytes_ = 4 * rng.integers(100, 40_000, count)
        gradients = [(float(when), int(size)) for when, size in zip(ready, bytes_, strict=True)]
        link = RingSeconds(
            int(rng.integers(2, 9)), float(rng.integers(1, 12)) / 10 * MS, float(rng.integers(4, 20)) * 1e7
        )
        caps = rng.permutation([4, 10**8, 10**9, *(4 * rng.integers(1_000, 100_000, 6))]).tolist()
        yield _case(f"{name} gradients, drawn", gradients, link, caps)


def _case(name: str, gradients: list[tuple[float, int]], seconds: RingSeconds, sizes: list[int]) -> Case:
    return Case(f"{name}, {seconds}", (gradients, seconds, sizes))


OBSERVE, JUDGE = Call(), ends_first

BEST_BUCKET = Exercise(
    id="11.2",
    title="The best bucket",
    function="best_bucket",
    points=2,
    asks=(
        "Return the one of `sizes` with which the last reduction ends first. `gradients` is a list of (ready, bytes) in the "
        "order in which they become ready; a bucket closes when it holds `size` bytes or more, and the last one with the "
        "last gradient. Its reduction takes `seconds(bytes)`; it begins when the bucket is closed and the reduction before "
        "it has ended."
    ),
    reference=best_bucket,
    also_right=(by_plans, recursively),
    stub=best_bucket_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    hints=(
        "Write a function of one size first: when does the last reduction end? The rest is one line.",
        "Go through the gradients with two variables: the bytes that the open bucket holds, and when the link will be free. "
        "What happens to both when a bucket closes?",
        "When a bucket closes, its reduction begins at the later of `ready` and the time at which the link is free. That "
        "time then moves to its end, and the bucket begins empty. The last gradient closes the last bucket.",
        "`free = max(free, ready) + seconds(held)`, and in the end `min(sizes, key=last_end)`",
    ),
    mistakes=by_first_failure(OBSERVE, JUDGE, MISTAKES),
    equivalent_mutants=("line 3: free, held = (0.0, 0) -> free, held = (-1.0, 0)",),  # nothing is ready before 0
)
