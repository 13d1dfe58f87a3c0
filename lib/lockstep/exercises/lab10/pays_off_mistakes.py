"""What goes wrong in exercise 10.7, and the sentence that each fault gets.

Floor 4, room `exercises`; the exercise is in `pays_off.py`.
"""

from __future__ import annotations

import math

from lockstep.exercises.exercise import Mistake
from lockstep.exercises.lab03.words import by_wrong_number
from lockstep.exercises.lab10.pays_off_right import pays_off
from lockstep.exercises.symptoms import raises


def counted(
    n, ranks, k, method, seconds, bandwidth, *,
    ring=lambda p: 2 * (p - 1) / p, dense_item=4, gathers=lambda p: p - 1, gathered_item=8, summed_item=4,
    all_gathered=False, all_summed=False, charged=True,
):  # fmt: skip
    """The right answer, in which one count can be another."""
    dense = ring(ranks) * dense_item * n
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


def gathers_a_share(*case):
    return counted(*case, gathers=lambda p: (p - 1) / p)


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


MISTAKES = (
    *by_wrong_number(
        (
            Mistake(
                "counts values but not indices",
                values_without_indices,
                "You count top-k's values alone. Every rank chooses other places, so each value travels with its index: 8 "
                "bytes, not 4.",
            ),
            Mistake(
                "indices of 8 bytes",
                wide_indices,
                "You count 8 bytes for an index. 4 are enough for four thousand million places, and 4 are what is asked.",
            ),
            Mistake(
                "random-k with indices",
                indices_of_random_k,
                "You count indices for random-k. All ranks draw the places from one seed, so nobody sends them.",
            ),
            Mistake(
                "a ring adds up top-k",
                ring_for_top_k,
                "You let a ring add up top-k's payloads. Ranks choose different places, so there is nothing to add on the "
                "way: each rank gets the payloads of all others, `N-1` of them.",
            ),
            Mistake(
                "random-k gathered",
                gathers_random_k,
                "You gather random-k's values. At places that all ranks share values add up, so a ring reduces them: "
                "2(N-1)/N of the payload, however many ranks there are.",
            ),
            Mistake(
                "one payload, however many ranks",
                gathers_one_payload,
                "You count one payload of top-k. In an all-gather a rank passes on those of the others, too: `N-1` of them.",
            ),
            Mistake(
                "a payload too many",
                gathers_own_too,
                "You count `N` payloads of top-k. A rank's own needs to reach `N-1` others, and the last of the ring passes "
                "nothing on: each rank sends `N-1`.",
            ),
            Mistake(
                "a share of a payload",
                gathers_a_share,
                "You count (N-1)/N payloads of top-k. That is the all-gather of *one* tensor in N pieces; here every rank has a "
                "payload of its own.",
            ),
            Mistake(
                "adds up the ranks",
                counts_all_ranks,
                "You count the bytes of all ranks together. Their links work at the same time: take what one rank sends.",
            ),
            Mistake(
                "half a ring",
                half_a_ring,
                "You count (N-1)/N for the ring. That is a reduce-scatter alone; an all-reduce has an all-gather after it.",
            ),
            Mistake(
                "a ring without end",
                ring_of_many,
                "You count each number twice, whatever the ranks. A ring sends it 2(N-1)/N times, once in all between two "
                "ranks.",
            ),
            Mistake(
                "everything in each step of the ring",
                everything_each_step,
                "You send all numbers in each of the ring's 2(N-1) steps. A step moves one N-th of them.",
            ),
            Mistake(
                "compressing is free",
                compressing_is_free,
                "You leave out the seconds that compressing takes. They are what makes it a loss on a fast link.",
            ),
            Mistake(
                "bits for bytes",
                bits_a_second,
                "You count bits, or a bandwidth of bits a second. Both are in bytes here.",
            ),
            Mistake(
                "a bandwidth below zero",
                below_zero,
                "Where the compressor sends more than the ring it can never be faster, and your bandwidth is below zero: "
                "return 0 there.",
            ),
            Mistake(
                "infinity where it never pays",
                always_where_never,
                "You return infinity where the compressor sends as much as the ring, or more. It is faster below no bandwidth: 0.",
            ),
            Mistake(
                "zero where it always pays",
                never_where_always,
                "You return 0 where compressing takes no time. It sends less and costs nothing, so it is faster on every link: "
                "`math.inf`.",
            ),
            Mistake(
                "seconds a byte",
                upside_down,
                "Your break-even is upside down: saved bytes over seconds are bytes a second; you have seconds a byte.",
            ),
            Mistake(
                "all of the dense bytes saved",
                saves_all_of_dense,
                "Your break-even counts all bytes of the dense ring as saved. The compressor sends some as well: what it saves "
                "is the difference.",
            ),
        )
    ),
    Mistake(
        "divides by zero",
        divides_by_zero,
        "Where compressing takes no time you divide by zero. If it sends less and costs nothing it always pays: return "
        "`math.inf`.",
        symptom=raises("ZeroDivisionError"),
    ),
)
