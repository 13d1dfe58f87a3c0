"""04.6 `predict_seconds`: latency and bandwidth say how long a collective takes.

Floor 4, room `exercises`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from lockstep.exercises.compare import differs
from lockstep.exercises.exercise import Case, Exercise, Mistake, Symptom
from lockstep.exercises.judge import Finding
from lockstep.exercises.observe import Call, Observation
from lockstep.exercises.plain import short
from lockstep.trace.units import show_seconds

ALGORITHMS = ("ring_all_reduce", "tree_broadcast", "recursive_doubling_all_reduce")


def predict_seconds(algorithm, nbytes, ranks, latency, bandwidth):
    if algorithm == "ring_all_reduce":
        return 2 * (ranks - 1) * (latency + nbytes / ranks / bandwidth)
    whole = latency + nbytes / bandwidth
    if algorithm == "tree_broadcast":
        return math.ceil(math.log2(ranks)) * whole
    doublings = math.floor(math.log2(ranks))
    folds = 0 if ranks == 2**doublings else 2
    return (doublings + folds) * whole


def by_messages_and_bytes(algorithm, nbytes, ranks, latency, bandwidth):
    p, lg = ranks, (ranks - 1).bit_length()
    doubling = lg if 2**lg == p else lg + 1
    messages, moved = {
        "ring_all_reduce": (2 * p - 2, 2 * nbytes * (p - 1) / p),
        "tree_broadcast": (lg, lg * nbytes),
        "recursive_doubling_all_reduce": (doubling, doubling * nbytes),
    }[algorithm]
    return messages * latency + moved / bandwidth


def by_counting_levels(algorithm, nbytes, ranks, latency, bandwidth):
    def message(size):
        return latency + size * (1 / bandwidth)

    if "ring" in algorithm:
        return sum(message(nbytes / ranks) for _ in range(ranks - 1)) + (ranks - 1) * message(nbytes / ranks)
    total, have = 0.0, 1
    while have < ranks and ("tree" in algorithm or 2 * have <= ranks):
        total, have = total + message(nbytes), 2 * have
    return total if "tree" in algorithm or have == ranks else total + message(nbytes) * 2


def predict_seconds_stub(algorithm, nbytes, ranks, latency, bandwidth):
    raise NotImplementedError("seconds of `algorithm` from its messages and its bytes")


def latency_left_out(algorithm, nbytes, ranks, latency, bandwidth):
    return predict_seconds(algorithm, nbytes, ranks, 0, bandwidth)


def latency_counted_once(algorithm, nbytes, ranks, latency, bandwidth):
    return predict_seconds(algorithm, nbytes, ranks, 0, bandwidth) + (latency if ranks > 1 else 0)


def bandwidth_multiplied(algorithm, nbytes, ranks, latency, bandwidth):
    return predict_seconds(algorithm, nbytes, ranks, latency, 1 / bandwidth)


def bandwidth_in_bits(algorithm, nbytes, ranks, latency, bandwidth):
    return predict_seconds(algorithm, 8 * nbytes, ranks, latency, bandwidth)


def ring_sends_whole_tensors(algorithm, nbytes, ranks, latency, bandwidth):
    if algorithm == "ring_all_reduce":
        return 2 * (ranks - 1) * (latency + nbytes / bandwidth)
    return predict_seconds(algorithm, nbytes, ranks, latency, bandwidth)


def half_a_ring(algorithm, nbytes, ranks, latency, bandwidth):
    return predict_seconds(algorithm, nbytes, ranks, latency, bandwidth) / (2 if algorithm == "ring_all_reduce" else 1)


def ring_without_its_own_chunk(algorithm, nbytes, ranks, latency, bandwidth):
    if algorithm == "ring_all_reduce":
        return 2 * (ranks - 1) * latency + 2 * nbytes / bandwidth
    return predict_seconds(algorithm, nbytes, ranks, latency, bandwidth)


def ring_of_p_steps(algorithm, nbytes, ranks, latency, bandwidth):
    if algorithm == "ring_all_reduce":
        return 2 * ranks * (latency + nbytes / ranks / bandwidth)
    return predict_seconds(algorithm, nbytes, ranks, latency, bandwidth)


def ring_divides_the_latency(algorithm, nbytes, ranks, latency, bandwidth):
    if algorithm == "ring_all_reduce":
        return 2 * (ranks - 1) * (latency + nbytes / bandwidth) / ranks
    return predict_seconds(algorithm, nbytes, ranks, latency, bandwidth)


def ring_of_one_chunk(algorithm, nbytes, ranks, latency, bandwidth):
    if algorithm == "ring_all_reduce":
        return 2 * (ranks - 1) * latency + nbytes / ranks / bandwidth
    return predict_seconds(algorithm, nbytes, ranks, latency, bandwidth)


def ring_pays_latency_once(algorithm, nbytes, ranks, latency, bandwidth):
    if algorithm == "ring_all_reduce":
        return latency + 2 * (ranks - 1) * nbytes / ranks / bandwidth
    return predict_seconds(algorithm, nbytes, ranks, latency, bandwidth)


def always_folds(algorithm, nbytes, ranks, latency, bandwidth):
    if algorithm == "recursive_doubling_all_reduce":
        return (math.floor(math.log2(ranks)) + 2) * (latency + nbytes / bandwidth)
    return predict_seconds(algorithm, nbytes, ranks, latency, bandwidth)


def tree_rounded_to_the_nearest(algorithm, nbytes, ranks, latency, bandwidth):
    if algorithm == "tree_broadcast":
        return round(math.log2(ranks)) * (latency + nbytes / bandwidth)
    return predict_seconds(algorithm, nbytes, ranks, latency, bandwidth)


def natural_logarithm_in_the_tree(algorithm, nbytes, ranks, latency, bandwidth):
    if algorithm == "tree_broadcast":
        return math.ceil(math.log(ranks)) * (latency + nbytes / bandwidth)
    return predict_seconds(algorithm, nbytes, ranks, latency, bandwidth)


def logarithm_not_rounded(algorithm, nbytes, ranks, latency, bandwidth):
    if algorithm == "ring_all_reduce":
        return predict_seconds(algorithm, nbytes, ranks, latency, bandwidth)
    return math.log2(ranks) * (latency + nbytes / bandwidth)


def tree_rounded_down(algorithm, nbytes, ranks, latency, bandwidth):
    if algorithm == "tree_broadcast":
        return int(math.log2(ranks)) * (latency + nbytes / bandwidth)
    return predict_seconds(algorithm, nbytes, ranks, latency, bandwidth)


def natural_logarithm(algorithm, nbytes, ranks, latency, bandwidth):
    if algorithm == "ring_all_reduce":
        return predict_seconds(algorithm, nbytes, ranks, latency, bandwidth)
    return math.ceil(math.log(ranks)) * (latency + nbytes / bandwidth)


def assumes_a_power_of_two(algorithm, nbytes, ranks, latency, bandwidth):
    if algorithm == "recursive_doubling_all_reduce":
        return math.floor(math.log2(ranks)) * (latency + nbytes / bandwidth)
    return predict_seconds(algorithm, nbytes, ranks, latency, bandwidth)


def doubling_rounded_up(algorithm, nbytes, ranks, latency, bandwidth):
    if algorithm == "recursive_doubling_all_reduce":
        return math.ceil(math.log2(ranks)) * (latency + nbytes / bandwidth)
    return predict_seconds(algorithm, nbytes, ranks, latency, bandwidth)


def tree_like_a_chain(algorithm, nbytes, ranks, latency, bandwidth):
    if algorithm == "tree_broadcast":
        return (ranks - 1) * (latency + nbytes / bandwidth)
    return predict_seconds(algorithm, nbytes, ranks, latency, bandwidth)


def right_seconds(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """The same seconds; the evidence is by what factor they are wrong, since seconds may be very few."""
    difference = differs(seen.value, expected.value, rtol=1e-6, atol=0.0)
    if difference is None:
        return None
    number = isinstance(seen.value, (int, float)) and not isinstance(seen.value, bool)
    if not number:
        sentence = (
            "It returns None: is there a `return` for this algorithm?" if seen.value is None else f"{difference}."
        )
        return Finding(sentence[0].upper() + sentence[1:], short(expected.value), short(seen.value), "no number")
    want, got = show_seconds(expected.value), show_seconds(seen.value)
    factor = seen.value / expected.value if expected.value else 1e6 * seen.value
    return Finding(f"It should be {want}, and comes out as {got}.", want, got, ("factor", factor))


def gives(formula: Callable[..., float], ranks: int | None = None) -> Symptom:
    """The seconds of `formula`, for solutions with more than one mistake.

    ranks: the first number of ranks at which it is wrong, where others give the same further on.
    """

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        number = seen.error is None and isinstance(seen.value, (int, float)) and ranks in (None, case.args[2])
        return number and differs(seen.value, formula(*case.args), rtol=1e-6, atol=0.0) is None

    return symptom


def prediction_cases(rng: np.random.Generator) -> Iterator[Case]:
    # 6 ranks before 5 tell the natural logarithm from one that is rounded to the nearest; a single rank, where
    # nothing is sent, comes last, since what is wrong there says little of the formula.
    many = ((2, 1000), (3, 99), (4, 0), (6, 300), (5, 1_000_000), (8, 4000), (64, 16_000_000))
    for ranks, numbers in (*many, (1, 10)):
        latency, bandwidth = round(float(rng.uniform(5e-6, 5e-5)), 7), round(float(rng.uniform(1e9, 2e10)), -7)
        for algorithm in ALGORITHMS:
            name = f"{algorithm}, {4 * numbers:,} bytes, {ranks} rank{'s' * (ranks > 1)}"
            name += f", latency {1e6 * latency:g} µs, bandwidth {bandwidth / 1e9:g} GB/s"
            yield Case(name, (algorithm, 4 * numbers, ranks, latency, bandwidth))


PREDICT_SECONDS = Exercise(
    id="04.6",
    title="Seconds of a collective",
    function="predict_seconds",
    points=2,
    asks=(
        'Return the seconds that `algorithm` ("ring_all_reduce", "tree_broadcast" or "recursive_doubling_all_reduce") '
        "takes for a tensor of `nbytes` over `ranks` ranks, when a message of m bytes takes `latency` + m / `bandwidth` "
        "seconds. A chunk may be any fraction of `nbytes`."
    ),
    reference=predict_seconds,
    also_right=(by_messages_and_bytes, by_counting_levels),
    stub=predict_seconds_stub,
    cases=prediction_cases,
    observe=Call(),
    judge=right_seconds,
    hints=(
        (
            "For each algorithm answer two questions: how many messages come one after the other, and how many bytes "
            "has each of them? The table above the exercise holds both."
        ),
        (
            "A ring makes 2(p - 1) messages of nbytes / p bytes. A tree has a level more whenever the number of ranks "
            "passes a power of two, so its logarithm is rounded up."
        ),
        (
            "Recursive doubling: the logarithm rounded down, and two messages more when the number of ranks is no power "
            "of two. `(ranks - 1).bit_length()` is the logarithm rounded up, `ranks.bit_length() - 1` rounded down."
        ),
    ),
    mistakes=(
        Mistake(
            "latency term missing",
            latency_left_out,
            "Your seconds are those of the bytes alone. Every message costs the latency as well, and for a tensor of a "
            "few bytes nothing but that.",
            symptom=gives(latency_left_out),
        ),
        Mistake(
            "latency counted once",
            latency_counted_once,
            "You count the latency once, but every message of the chain costs it again: the next one cannot begin "
            "before the one before it has arrived.",
            symptom=gives(latency_counted_once),
        ),
        Mistake(
            "multiplies by the bandwidth",
            bandwidth_multiplied,
            "More bandwidth makes your collective slower. It is in bytes per second, so the bytes are divided by it.",
            symptom=gives(bandwidth_multiplied),
        ),
        Mistake(
            "takes the bandwidth for bits",
            bandwidth_in_bits,
            "Your bytes take eight times as long: `bandwidth` is in bytes per second here, not in bits.",
            symptom=gives(bandwidth_in_bits),
        ),
        Mistake(
            "whole tensors round the ring",
            ring_sends_whole_tensors,
            "Your ring sends the whole tensor at every step. It sends a chunk, the part of one rank.",
            symptom=gives(ring_sends_whole_tensors),
        ),
        Mistake(
            "half a ring",
            half_a_ring,
            "That is one half of the ring: a reduce-scatter alone. The all-gather takes as many steps again.",
            symptom=gives(half_a_ring),
        ),
        Mistake(
            "latency of the ring counted once",
            ring_pays_latency_once,
            "You count the ring's latency once. Each of its 2(p - 1) messages costs it again, since the next one cannot "
            "begin before the one before it has arrived.",
            symptom=gives(ring_pays_latency_once, ranks=3),
        ),
        Mistake(
            "divides the latency too",
            ring_divides_the_latency,
            "Your ring divides everything by the number of ranks. Only the bytes are cut into chunks: every message "
            "costs the whole latency.",
            symptom=gives(ring_divides_the_latency, ranks=3),
        ),
        Mistake(
            "bytes of one chunk only",
            ring_of_one_chunk,
            "Your ring pays for the bytes of one message only. Each of its 2(p - 1) messages carries a chunk of n / p.",
            symptom=gives(ring_of_one_chunk),
        ),
        Mistake(
            "two whole tensors round the ring",
            ring_without_its_own_chunk,
            "Your ring moves 2 n bytes. That is where it ends up with very many ranks; exactly it is 2(p - 1) chunks of "
            "n / p, and nothing at all with a single rank.",
            symptom=gives(ring_without_its_own_chunk),
        ),
        Mistake(
            "as many steps as ranks",
            ring_of_p_steps,
            "Your ring makes p steps in each half. One fewer is enough, and a single rank sends nothing at all.",
            symptom=gives(ring_of_p_steps),
        ),
        Mistake(
            "does not round the logarithm",
            logarithm_not_rounded,
            "There is no half message. With 3 ranks the logarithm is 1.58, and a tree needs 2 levels: round it.",
            symptom=gives(logarithm_not_rounded),
        ),
        Mistake(
            "rounds the tree down",
            tree_rounded_down,
            "With 3 ranks one level gives the tensor to 2 of them. The third needs another level: round up.",
            symptom=gives(tree_rounded_down, ranks=3),
        ),
        Mistake(
            "rounds the tree to the nearest",
            tree_rounded_to_the_nearest,
            "With 5 ranks the logarithm is 2.32, and two levels give the tensor to 4 of them. The fifth needs another "
            "level: round up always, not to the nearest.",
            symptom=gives(tree_rounded_to_the_nearest, ranks=5),
        ),
        Mistake(
            "the natural logarithm in the tree",
            natural_logarithm_in_the_tree,
            "`math.log` is the natural logarithm. The number of ranks that have the tensor doubles at each level: take "
            "the one to base 2, `math.log2`.",
            symptom=gives(natural_logarithm_in_the_tree, ranks=6),
        ),
        Mistake(
            "the wrong logarithm",
            natural_logarithm,
            "The number of ranks that have the tensor doubles at each level, so the logarithm is to base 2; `math.log` "
            "is the natural one.",
            symptom=gives(natural_logarithm),
        ),
        Mistake(
            "assumes a power of two",
            assumes_a_power_of_two,
            "Right for 2, 4, 8 ranks. Otherwise recursive doubling folds the surplus ranks into others before it "
            "begins, and gives them the result after: two messages more.",
            symptom=gives(assumes_a_power_of_two),
        ),
        Mistake(
            "always folds",
            always_folds,
            "You add two messages in any case. Where the number of ranks is a power of two, every rank has a partner at "
            "each step, and nothing is folded.",
            symptom=gives(always_folds),
        ),
        Mistake(
            "rounds the doubling up",
            doubling_rounded_up,
            "When the number of ranks is no power of two, recursive doubling does not only need one more level: it "
            "folds before and after, so round down and add two messages.",
            symptom=gives(doubling_rounded_up),
        ),
        Mistake(
            "a tree like a chain",
            tree_like_a_chain,
            "p - 1 is the number of messages of the whole tree, but those of one level run at the same time. Count the "
            "levels.",
            symptom=gives(tree_like_a_chain),
        ),
    ),
)
