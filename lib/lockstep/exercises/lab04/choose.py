"""04.7 `choose`: the fastest all-reduce for a size and a number of ranks.

Floor 4, room `exercises`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.judge import Finding
from lockstep.exercises.observe import Call, Observation
from lockstep.exercises.plain import short
from lockstep.trace.units import show_seconds

RING, DOUBLING, RABENSEIFNER = NAMES = (
    "ring_all_reduce", "recursive_doubling_all_reduce", "rabenseifner_all_reduce",
)  # fmt: skip
NEARLY = 1.005  # as good as the fastest: whole elements in a chunk make a difference of this kind


def choose(nbytes, ranks, latency, bandwidth):
    p, k = ranks, int(math.log2(ranks))
    fold = 0 if p == 2**k else 2
    alpha, n_beta = latency, nbytes / bandwidth
    seconds = {
        "ring_all_reduce": 2 * (p - 1) * alpha + 2 * (p - 1) / p * n_beta,
        "recursive_doubling_all_reduce": (k + fold) * (alpha + n_beta),
        "rabenseifner_all_reduce": 2 * k * alpha + 2 * (1 - 1 / 2**k) * n_beta + fold * (alpha + n_beta),
    }
    return min(seconds, key=seconds.get)


def from_a_table_of_chains(nbytes, ranks, latency, bandwidth):
    k = ranks.bit_length() - 1
    two = 2 * (ranks & (ranks - 1) != 0)
    chains = [
        (2 * ranks - 2, 2 * nbytes - 2 * nbytes / ranks, "ring_all_reduce"),
        (k + two, (k + two) * nbytes, "recursive_doubling_all_reduce"),
        (2 * k + two, (2 - 2 / (1 << k) + two) * nbytes, "rabenseifner_all_reduce"),
    ]
    return sorted((m * latency + size / bandwidth, name) for m, size, name in chains)[0][1]


def by_the_library(nbytes, ranks, latency, bandwidth):
    from lockstep.comm import predict_seconds

    best, least = "", math.inf
    for name in ("rabenseifner_all_reduce", "recursive_doubling_all_reduce", "ring_all_reduce"):
        seconds = predict_seconds(name, nbytes, ranks, latency, bandwidth)
        if seconds < least:
            best, least = name, seconds
    return best


def choose_stub(nbytes, ranks, latency, bandwidth):
    raise NotImplementedError("the name of the fastest all-reduce")


def chain(name: str, nbytes: float, p: int, powers_only: bool = False) -> tuple[float, float]:
    """Messages one after the other, and the bytes they move; `powers_only` forgets the fold."""
    k = p.bit_length() - 1
    fold = 0 if p == 2**k or powers_only else 2
    return {
        RING: (2 * (p - 1), 2 * (p - 1) / p * nbytes),
        DOUBLING: (k + fold, (k + fold) * nbytes),
        RABENSEIFNER: (2 * k + fold, (2 * (1 - 1 / 2**k) + fold) * nbytes),
    }[name]


def seconds_of(name: str, nbytes: float, ranks: int, latency: float, bandwidth: float) -> float:
    """Seconds of one of the three."""
    messages, moved = chain(name, nbytes, ranks)
    return messages * latency + moved / bandwidth


def always_the_ring(nbytes, ranks, latency, bandwidth):
    return RING


def always_doubling(nbytes, ranks, latency, bandwidth):
    return DOUBLING


def always_rabenseifner(nbytes, ranks, latency, bandwidth):
    return RABENSEIFNER


def a_fixed_threshold(nbytes, ranks, latency, bandwidth):
    return DOUBLING if nbytes < 65536 else RING


def forgets_the_fold(nbytes, ranks, latency, bandwidth):
    def seconds(name):
        messages, moved = chain(name, nbytes, ranks, powers_only=True)
        return messages * latency + moved / bandwidth

    return min(NAMES, key=seconds)


def takes_the_slowest(nbytes, ranks, latency, bandwidth):
    return max(NAMES, key=lambda name: seconds_of(name, nbytes, ranks, latency, bandwidth))


def returns_the_seconds(nbytes, ranks, latency, bandwidth):
    return min(seconds_of(name, nbytes, ranks, latency, bandwidth) for name in NAMES)


def leaves_rabenseifner_out(nbytes, ranks, latency, bandwidth):
    return min((RING, DOUBLING), key=lambda name: seconds_of(name, nbytes, ranks, latency, bandwidth))


def a_name_of_its_own(nbytes, ranks, latency, bandwidth):
    return choose(nbytes, ranks, latency, bandwidth).removesuffix("_all_reduce")


def fast_enough(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """The chosen algorithm takes no longer than the reference's choice."""
    if seen.value not in NAMES:
        known = ", ".join(f'"{name}"' for name in NAMES)
        evidence = "another name" if isinstance(seen.value, str) else "no name"
        return Finding(f"It should return one of {known}.", short(expected.value), short(seen.value), evidence)
    got, want = (seconds_of(one.value, *case.args) for one in (seen, expected))
    if got <= NEARLY * want:
        return None
    return Finding(
        f"{expected.value} takes {show_seconds(want)} here, {seen.value} {show_seconds(got)}.",
        expected.value,
        seen.value,
        ("chosen", NAMES.index(seen.value)),
    )


def folds_badly(case: Case, seen: Observation, expected: Observation) -> bool:
    """What was chosen would be the fastest if a fold, or its latency, or its bytes, cost nothing."""
    nbytes, ranks, latency, bandwidth = case.args
    saved = 2 * latency, 2 * nbytes / bandwidth, 2 * (latency + nbytes / bandwidth)
    for folding in ((DOUBLING,), (RABENSEIFNER,), (DOUBLING, RABENSEIFNER)):
        for less in saved if ranks & (ranks - 1) else ():
            seconds = {name: seconds_of(name, *case.args) - (less if name in folding else 0) for name in NAMES}
            if seen.value == min(seconds, key=seconds.get):
                return True
    return False


def crossing(one: str, other: str, ranks: int, latency: float, bandwidth: float) -> float | None:
    """The size in bytes at which two of the algorithms take equally long, None when one of them always wins."""
    (m, moved), (n, carried) = chain(one, 1.0, ranks), chain(other, 1.0, ranks)
    if moved == carried or (size := (n - m) * latency * bandwidth / (moved - carried)) <= 0:
        return None
    return size


def choice_cases(rng: np.random.Generator) -> Iterator[Case]:
    """Both sides of every crossing, for a slow and a fast link."""
    for ranks in (1, 2, 3, 4, 5, 6, 8, 12, 64):
        latency, bandwidth = round(float(rng.uniform(3e-6, 8e-5)), 7), round(float(rng.uniform(1e9, 2e10)), -7)
        sizes = {4 * ranks, 64 * 2**20}
        for one, other in ((RING, DOUBLING), (DOUBLING, RABENSEIFNER), (RING, RABENSEIFNER)):
            size = crossing(one, other, ranks, latency, bandwidth)
            sizes |= {int(size * share) // (4 * ranks) * 4 * ranks for share in (0.75, 1.3)} if size else set()
        for nbytes in sorted(sizes - {0}):
            name = f"{nbytes:,} bytes, {ranks} rank{'s' * (ranks > 1)}"
            name += f", latency {1e6 * latency:g} µs, bandwidth {bandwidth / 1e9:g} GB/s"
            yield Case(name, (nbytes, ranks, latency, bandwidth))


CHOOSE = Exercise(
    id="04.7",
    title="Choose the all-reduce",
    function="choose",
    points=2,
    asks=(
        "Return the name of the fastest all-reduce for `nbytes` over `ranks` ranks on a network of this `latency` and "
        '`bandwidth`: "ring_all_reduce", "recursive_doubling_all_reduce" or "rabenseifner_all_reduce".'
    ),
    reference=choose,
    also_right=(from_a_table_of_chains, by_the_library),
    stub=choose_stub,
    cases=choice_cases,
    observe=Call(),
    judge=fast_enough,
    equivalent_mutants=(  # without a fold the ring never wins, and the other two lose alike
        "line 3: fold = 0 if p == 2 ** k else 2 -> fold = -1 if p == 2 ** k else 2",
    ),
    core=False,
    hints=(
        "You can predict the seconds of each. What remains is to compare three numbers.",
        (
            "Rabenseifner's algorithm, with k the logarithm rounded down: 2k messages, which carry 2 (1 - 1/2^k) times "
            "the tensor in all together. When the number of ranks is no power of two, two messages of the whole tensor more."
        ),
        "Put name and seconds into a dictionary; `min(seconds, key=seconds.get)` is the name with the least.",
    ),
    mistakes=(
        Mistake(
            "always the ring",
            always_the_ring,
            "You always choose the ring. It moves the fewest bytes, but in 2(p - 1) messages, each of which costs the "
            "latency: for a short tensor that is all there is to pay.",
        ),
        Mistake(
            "always recursive doubling",
            always_doubling,
            "You always choose recursive doubling. It makes the fewest messages, but each of them carries the whole "
            "tensor, which a long one pays for.",
        ),
        Mistake(
            "always Rabenseifner",
            always_rabenseifner,
            "You always choose Rabenseifner's algorithm. It makes twice the messages of recursive doubling, and where "
            "the number of ranks is no power of two it sends the whole tensor twice more.",
        ),
        Mistake(
            "a fixed threshold",
            a_fixed_threshold,
            "You compare the size with a fixed number. Where the better algorithm changes depends on the latency, the "
            "bandwidth and the number of ranks: compare seconds.",
        ),
        Mistake(
            "forgets the fold",
            forgets_the_fold,
            "Where the number of ranks is no power of two, recursive doubling and Rabenseifner's algorithm both send the "
            "whole tensor once before and once after. Did you add those two messages to both, each with its latency and "
            "its bytes? And is the ring among your choices?",
            symptom=folds_badly,
        ),
        Mistake(
            "takes the slowest",
            takes_the_slowest,
            "That is the slowest of the three. The fastest one takes the fewest seconds: `min`, not `max`.",
        ),
        Mistake(
            "returns the seconds",
            returns_the_seconds,
            "You return how long the fastest one takes. Its name is asked for.",
        ),
        Mistake(
            "another name",
            a_name_of_its_own,
            "You return a name, but none of the three that are asked for: write it out, as it stands in the task.",
        ),
        Mistake(
            "leaves Rabenseifner's algorithm out",
            leaves_rabenseifner_out,
            "You do not choose Rabenseifner's algorithm where it is the fastest. Is it among your choices? And do you "
            "count its bytes once: 2(1 - 1/2^k) n is what all its 2k messages carry together, not each of them.",
        ),
    ),
)
