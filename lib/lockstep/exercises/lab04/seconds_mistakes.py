"""04.6 `predict_seconds`: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; the exercise is in `seconds.py`, wrong solutions are in `seconds_wrong.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from lockstep.exercises.compare import differs
from lockstep.exercises.exercise import Case, Mistake, Symptom
from lockstep.exercises.lab04 import seconds_wrong as wrong
from lockstep.exercises.observe import Observation


def gives(formula: Callable[..., float], ranks: int | None = None) -> Symptom:
    """The seconds of `formula`, for solutions with more than one mistake.

    ranks: the first number of ranks at which it is wrong, where others give the same further on.
    """

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        number = seen.error is None and isinstance(seen.value, (int, float)) and ranks in (None, case.args[2])
        return number and differs(seen.value, formula(*case.args), rtol=1e-6, atol=0.0) is None

    return symptom


MISTAKES = (
    Mistake(
        "latency term missing",
        wrong.latency_left_out,
        "Your seconds are those of the bytes alone. Every message costs the latency as well, and for a tensor of a "
        "few bytes nothing but that.",
        symptom=gives(wrong.latency_left_out),
    ),
    Mistake(
        "latency counted once",
        wrong.latency_counted_once,
        "You count the latency once, but every message of the chain costs it again: the next one cannot begin "
        "before the one before it has arrived.",
        symptom=gives(wrong.latency_counted_once),
    ),
    Mistake(
        "multiplies by the bandwidth",
        wrong.bandwidth_multiplied,
        "More bandwidth makes your collective slower. It is in bytes per second, so the bytes are divided by it.",
        symptom=gives(wrong.bandwidth_multiplied),
    ),
    Mistake(
        "takes the bandwidth for bits",
        wrong.bandwidth_in_bits,
        "Your bytes take eight times as long: `bandwidth` is in bytes per second here, not in bits.",
        symptom=gives(wrong.bandwidth_in_bits),
    ),
    Mistake(
        "whole tensors round the ring",
        wrong.ring_sends_whole_tensors,
        "Your ring sends the whole tensor at every step. It sends a chunk, the part of one rank.",
        symptom=gives(wrong.ring_sends_whole_tensors),
    ),
    Mistake(
        "half a ring",
        wrong.half_a_ring,
        "That is one half of the ring: a reduce-scatter alone. The all-gather takes as many steps again.",
        symptom=gives(wrong.half_a_ring),
    ),
    Mistake(
        "latency of the ring counted once",
        wrong.ring_pays_latency_once,
        "You count the ring's latency once. Each of its 2(p - 1) messages costs it again, since the next one cannot "
        "begin before the one before it has arrived.",
        symptom=gives(wrong.ring_pays_latency_once, ranks=3),
    ),
    Mistake(
        "divides the latency too",
        wrong.ring_divides_the_latency,
        "Your ring divides everything by the number of ranks. Only the bytes are cut into chunks: every message "
        "costs the whole latency.",
        symptom=gives(wrong.ring_divides_the_latency, ranks=3),
    ),
    Mistake(
        "bytes of one chunk only",
        wrong.ring_of_one_chunk,
        "Your ring pays for the bytes of one message only. Each of its 2(p - 1) messages carries a chunk of n / p.",
        symptom=gives(wrong.ring_of_one_chunk),
    ),
    Mistake(
        "two whole tensors round the ring",
        wrong.ring_without_its_own_chunk,
        "Your ring moves 2 n bytes. That is where it ends up with very many ranks; exactly it is 2(p - 1) chunks of "
        "n / p, and nothing at all with a single rank.",
        symptom=gives(wrong.ring_without_its_own_chunk),
    ),
    Mistake(
        "as many steps as ranks",
        wrong.ring_of_p_steps,
        "Your ring makes p steps in each half. One fewer is enough, and a single rank sends nothing at all.",
        symptom=gives(wrong.ring_of_p_steps),
    ),
    Mistake(
        "does not round the logarithm",
        wrong.logarithm_not_rounded,
        "There is no half message. With 3 ranks the logarithm is 1.58, and a tree needs 2 levels: round it.",
        symptom=gives(wrong.logarithm_not_rounded),
    ),
    Mistake(
        "rounds the tree down",
        wrong.tree_rounded_down,
        "With 3 ranks one level gives the tensor to 2 of them. The third needs another level: round up.",
        symptom=gives(wrong.tree_rounded_down, ranks=3),
    ),
    Mistake(
        "rounds the tree to the nearest",
        wrong.tree_rounded_to_the_nearest,
        "With 5 ranks the logarithm is 2.32, and two levels give the tensor to 4 of them. The fifth needs another "
        "level: round up always, not to the nearest.",
        symptom=gives(wrong.tree_rounded_to_the_nearest, ranks=5),
    ),
    Mistake(
        "the natural logarithm in the tree",
        wrong.natural_logarithm_in_the_tree,
        "`math.log` is the natural logarithm. The number of ranks that have the tensor doubles at each level: take "
        "the one to base 2, `math.log2`.",
        symptom=gives(wrong.natural_logarithm_in_the_tree, ranks=6),
    ),
    Mistake(
        "the wrong logarithm",
        wrong.natural_logarithm,
        "The number of ranks that have the tensor doubles at each level, so the logarithm is to base 2; `math.log` "
        "is the natural one.",
        symptom=gives(wrong.natural_logarithm),
    ),
    Mistake(
        "assumes a power of two",
        wrong.assumes_a_power_of_two,
        "Right for 2, 4, 8 ranks. Otherwise recursive doubling folds the surplus ranks into others before it "
        "begins, and gives them the result after: two messages more.",
        symptom=gives(wrong.assumes_a_power_of_two),
    ),
    Mistake(
        "always folds",
        wrong.always_folds,
        "You add two messages in any case. Where the number of ranks is a power of two, every rank has a partner at "
        "each step, and nothing is folded.",
        symptom=gives(wrong.always_folds),
    ),
    Mistake(
        "rounds the doubling up",
        wrong.doubling_rounded_up,
        "When the number of ranks is no power of two, recursive doubling does not only need one more level: it "
        "folds before and after, so round down and add two messages.",
        symptom=gives(wrong.doubling_rounded_up),
    ),
    Mistake(
        "a tree like a chain",
        wrong.tree_like_a_chain,
        "p - 1 is the number of messages of the whole tree, but those of one level run at the same time. Count the "
        "levels.",
        symptom=gives(wrong.tree_like_a_chain),
    ),
)
