"""11.2 `best_bucket`: the bucket size with which the last reduction ends first.

Floor 4, room `exercises`. Right functions are in `bucket_right.py`, wrong ones in `bucket_wrong.py`, what
they are told in `bucket_mistakes.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lockstep.comm import predict_seconds
from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import Finding
from lockstep.exercises.lab11.bucket_mistakes import MISTAKES
from lockstep.exercises.lab11.bucket_right import best_bucket, best_bucket_stub, by_plans, recursively
from lockstep.exercises.lab11.told import NO_RETURN
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
        return (
            f"`seconds`: {2 * (self.ranks - 1)} steps, each of {self.latency * 1e3:g} ms and 1/{self.ranks} of the bytes "
            f"at {self.bandwidth / 1e6:g} MB/s"
        )


def reductions(
    gradients: Sequence[tuple[float, int]], seconds: RingSeconds, size: int
) -> list[tuple[int, int, float, float]]:
    """With that size: (gradients, bytes, begin, end) of each reduction, in seconds."""
    found, many, held, free = [], 0, 0, 0.0
    for place, (ready, nbytes) in enumerate(gradients, 1):
        many, held = many + 1, held + nbytes
        if held >= size or place == len(gradients):
            begin = max(free, ready)
            free = begin + seconds(held)
            found.append((many, held, begin, free))
            many = held = 0
    return found


def last_end(gradients: Sequence[tuple[float, int]], seconds: RingSeconds, size: int) -> float:
    """When the last reduction ends with that size."""
    return reductions(gradients, seconds, size)[-1][-1]


def ends_first(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """One of the sizes, and none of the others ends sooner; several may end together.

    The evidence is how the gradients are divided: two sizes that divide them alike are one choice.
    """
    gradients, seconds, sizes = case.args
    got = seen.value.item() if hasattr(seen.value, "item") and getattr(seen.value, "ndim", 1) == 0 else seen.value
    if got is None:
        return Finding(NO_RETURN, short(expected.value), "None", ("type", "None"))
    if isinstance(got, bool) or not isinstance(got, (int, float)):
        return Finding("A number is asked for, one of `sizes`.", short(expected.value), kind(got), ("type", str(got)))
    if got not in sizes:
        return Finding(
            f"{short(got)} is not one of the sizes {short(list(sizes))}.", short(expected.value), short(got), ("none", got)
        )  # fmt: skip
    mine, best = (reductions(gradients, seconds, size) for size in (got, expected.value))
    if mine[-1][-1] <= best[-1][-1] + CLOSE:
        return None
    return Finding(
        f"With {got:,} bytes the last reduction ends at {mine[-1][-1] / MS:.3f} ms, with {expected.value:,} already at "
        f"{best[-1][-1] / MS:.3f} ms. {_in_turn(got, mine)} {_in_turn(expected.value, best)}",
        f"{expected.value:,}", f"{got:,}", ("later", [many for many, *_ in mine]),
    )  # fmt: skip


def _in_turn(size: int, found: list[tuple[int, int, float, float]]) -> str:
    """ "With 200,000: 2 gradients, 4 to 7 ms; 1 gradient, 8 to 9 ms." """
    each = [
        f"{many} gradient{'s' * (many > 1)} from {begin / MS:.4g} to {end / MS:.4g} ms" for many, _, begin, end in found
    ]
    more = f"; {len(each) - 7} more; {each[-1]}" if len(each) > 8 else ""
    return f"With {size:,} bytes: {'; '.join(each[:7] if more else each)}{more}."


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Links where latency rules, where bandwidth does, and between; sizes that are just reached, and just missed."""
    even = [(2 * MS * k, 100 * KB) for k in range(1, 7)]
    growing = [(1 * MS, 20 * KB), (2 * MS, 50 * KB), (4 * MS, 100 * KB), (7 * MS, 200 * KB), (11 * MS, 30 * KB)]
    heavy_first = [(1 * MS, 800 * KB), (2 * MS, 40 * KB), (3 * MS, 40 * KB), (8 * MS, 40 * KB), (9 * MS, 20 * KB)]
    sizes = [10**6, 200 * KB, 4, 10**7, 100 * KB, 300 * KB]
    yield _case(even[:1], RingSeconds(2, 1 * MS, 1e8), [4, 10**6])
    # Next to no latency, and not none: without any all sizes keep the link busy for as long, up to rounding.
    for latency in (0.5, 0.001, 4):
        yield _case(even, RingSeconds(2, latency * MS, 1e8), sizes)
    yield _case(growing, RingSeconds(4, 0.2 * MS, 1e8), [400 * KB, 70 * KB, 4, 170 * KB, 10**6])
    yield _case(heavy_first, RingSeconds(2, 0.4 * MS, 2e8), [60 * KB, 800 * KB, 10**7, 4, 80 * KB, 10**6])
    # Powers of two, so that nothing is rounded and the three ways to make two buckets take the link for equally long.
    exact = [(k / 512, 2**17) for k in range(1, 7)]
    yield _case(exact, RingSeconds(2, 2**-13, 2**27), [4 * 2**17, 3 * 2**17, 4, 5 * 2**17])
    for number, count in enumerate((5, 6, 8, 9, 12, 12, 15, 20, 30)):
        ready = np.cumsum(rng.integers(1, 40, count)) / 10 * MS
        nbytes = 4 * rng.integers(100, 40_000, count)
        gradients = [(float(when), int(size)) for when, size in zip(ready, nbytes, strict=True)]
        link = RingSeconds(
            int(rng.integers(2, 5)), float(rng.integers(1, 9)) / 20 * MS, float(rng.integers(5, 20)) * 1e7
        )
        yield _case(gradients, link, _sizes(rng, gradients, link, whole=number % 2 == 0))


def _sizes(rng: np.random.Generator, gradients: list[tuple[float, int]], link: RingSeconds, whole: bool) -> list[int]:
    """One for each number of buckets, many or few; without the one bucket that wins whatever is hidden, unless `whole`."""
    total = sum(nbytes for _, nbytes in gradients)
    tried = [*(4 * rng.integers(total // 80, total // 4, 24)).tolist(), 4, 2 * total]
    counts = {len(reductions(gradients, link, size)): size for size in tried}
    kept = [size for many, size in counts.items() if whole or many > 1]
    return rng.permutation(kept).tolist()


def _case(gradients: list[tuple[float, int]], seconds: RingSeconds, sizes: list[int]) -> Case:
    """Its name tells all that is needed to work out a short one by hand."""
    shown = ", ".join(f"{nbytes / KB:g} kB at {ready / MS:g} ms" for ready, nbytes in gradients[:6])
    many = f"{len(gradients)} gradient{'s' * (len(gradients) > 1)}"
    return Case(f"{many}: {shown}{', …' * (len(gradients) > 6)}; {seconds}", (gradients, seconds, sizes))


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
    mistakes=MISTAKES,
    equivalent_mutants=("line 3: free, held = (0.0, 0) -> free, held = (-1.0, 0)",),  # nothing is ready before 0
)
