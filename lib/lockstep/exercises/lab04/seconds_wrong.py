"""04.6 `predict_seconds`: wrong solutions that students write; their sentences are in `seconds_mistakes.py`.

Floor 4, room `exercises`.
"""

from __future__ import annotations

import math

from lockstep.exercises.lab04.seconds_right import predict_seconds


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
