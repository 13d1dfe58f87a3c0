"""Wrong solutions of exercise 10.7.

Floor 4, room `exercises`; what each of them is told is in `pays_off_mistakes.py`.
"""

from __future__ import annotations

import math

from lockstep.exercises.lab10.pays_off_right import pays_off


def counted(
    n, ranks, k, method, seconds, bandwidth, *,
    ring=lambda p: 2 * (p - 1) / p, dense_item=4, gathers=lambda p: p - 1, gathered_item=8, summed_item=4,
    all_gathered=False, all_summed=False, charged=True, dense_ring=None, workers=lambda p: 1,
):  # fmt: skip
    """The right answer, in which one count can be another."""
    dense = (dense_ring or ring)(ranks) * dense_item * n
    seconds *= workers(ranks)
    summed = (method != "top-k" and not all_gathered) or all_summed
    item = gathered_item if method == "top-k" else summed_item
    compressed = (ring(ranks) if summed else gathers(ranks)) * item * k
    saved = dense - compressed
    limit = 0.0 if saved <= 0 else saved / seconds if seconds else math.inf
    spent = seconds if charged else 0.0
    return {"dense": dense / bandwidth, "compressed": spent + compressed / bandwidth, "break_even": limit}


def values_without_indices(*case):
    return counted(*case, gathered_item=4)


def indices_of_random_k(*case):
    return counted(*case, summed_item=8)


def wide_indices(*case):
    return counted(*case, gathered_item=12)


def ring_for_top_k(*case):
    return counted(*case, all_summed=True)


def gathers_random_k(*case):
    return counted(*case, all_gathered=True)


def gathers_one_payload(*case):
    return counted(*case, gathers=lambda p: 1)


def gathers_own_too(*case):
    return counted(*case, gathers=lambda p: p)


def counts_all_ranks(*case):
    return counted(*case, gathers=lambda p: p * (p - 1), ring=lambda p: 2 * (p - 1))


def half_a_ring(*case):
    return counted(*case, ring=lambda p: (p - 1) / p)


def ring_of_many(*case):
    return counted(*case, ring=lambda p: 2 if p > 1 else 0)


def everything_each_step(*case):
    return counted(*case, ring=lambda p: 2 * (p - 1), gathers=lambda p: p - 1)


def compressing_is_free(*case):
    return counted(*case, charged=False)


def always_top_k(n, ranks, k, method, seconds, bandwidth):
    return pays_off(n, ranks, k, "top-k", seconds, bandwidth)


def never_top_k(n, ranks, k, method, seconds, bandwidth):
    return pays_off(n, ranks, k, "random-k", seconds, bandwidth)


def dense_sent_once(*case):
    return counted(*case, dense_ring=lambda p: 1)


def dense_sent_twice(*case):
    return counted(*case, dense_ring=lambda p: 2)


def dense_gathered(*case):
    return counted(*case, dense_ring=lambda p: p - 1)


def each_ranks_seconds(*case):
    return counted(*case, workers=lambda p: p)


def equal_bytes_pay(n, ranks, k, method, seconds, bandwidth):
    """For `inf if seconds == 0 else max(0, saved / seconds)`, and for `saved < 0` where `<=` is due."""
    right = pays_off(n, ranks, k, method, seconds, bandwidth)
    equal = not seconds and right["dense"] == right["compressed"]
    return right | {"break_even": math.inf if equal else right["break_even"]}


def at_this_bandwidth(n, ranks, k, method, seconds, bandwidth):
    right = pays_off(n, ranks, k, method, seconds, bandwidth)
    return right | {"break_even": right["break_even"] if right["compressed"] < right["dense"] else 0.0}


def bits_a_second(n, ranks, k, method, seconds, bandwidth):
    right = pays_off(n, ranks, k, method, seconds, bandwidth / 8)
    return right | {"break_even": 8 * right["break_even"]}


def below_zero(n, ranks, k, method, seconds, bandwidth):
    right = pays_off(n, ranks, k, method, seconds, bandwidth)
    saved = (right["dense"] - right["compressed"] + seconds) * bandwidth
    return right | {"break_even": saved / seconds if seconds else math.inf}


def divides_by_zero(n, ranks, k, method, seconds, bandwidth):
    right = pays_off(n, ranks, k, method, seconds, bandwidth)
    return right | {"break_even": max(0.0, (right["dense"] - right["compressed"] + seconds) * bandwidth / seconds)}


def upside_down(n, ranks, k, method, seconds, bandwidth):
    right = pays_off(n, ranks, k, method, seconds, bandwidth)
    limit = right["break_even"]
    return right | {"break_even": 1 / limit if 0 < limit < math.inf else limit}


def always_where_never(n, ranks, k, method, seconds, bandwidth):
    right = pays_off(n, ranks, k, method, seconds, bandwidth)
    return right | {"break_even": right["break_even"] or math.inf}


def never_where_always(n, ranks, k, method, seconds, bandwidth):
    right = pays_off(n, ranks, k, method, seconds, bandwidth)
    return right | {"break_even": right["break_even"] if seconds else 0.0}


def saves_all_of_dense(n, ranks, k, method, seconds, bandwidth):
    right = pays_off(n, ranks, k, method, seconds, bandwidth)
    if not right["break_even"] or not seconds:
        return right
    return right | {"break_even": right["dense"] * bandwidth / seconds}
