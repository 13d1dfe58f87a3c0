"""Right solutions of exercise 10.7.

Floor 4, room `exercises`; the exercise is in `pays_off.py`.
"""

from __future__ import annotations

import math


def pays_off(n, ranks, k, method, seconds, bandwidth):
    ring = 2 * (ranks - 1) / ranks
    dense = ring * 4 * n
    compressed = (ranks - 1) * 8 * k if method == "top-k" else ring * 4 * k
    saved = dense - compressed
    if saved <= 0:
        limit = 0.0
    else:
        limit = saved / seconds if seconds else math.inf
    return {
        "dense": dense / bandwidth,
        "compressed": seconds + compressed / bandwidth,
        "break_even": limit,
    }


def by_messages(n, ranks, k, method, seconds, bandwidth):
    """Adds up what each of the ring's steps moves."""

    def all_reduce(numbers):
        return sum(4 * numbers / ranks for _ in range(2 * ranks - 2))

    gathered = sum(4 * k + 4 * k for _ in range(ranks - 1))
    with_it = {"top-k": gathered, "random-k": all_reduce(k)}[method]
    less = all_reduce(n) - with_it
    return {
        "dense": all_reduce(n) / bandwidth,
        "compressed": with_it / bandwidth + seconds,
        "break_even": 0 if less <= 1e-9 * n else math.inf if seconds == 0 else less / seconds,
    }


def by_a_ratio(n, ranks, k, method, seconds, bandwidth):
    """In units of the dense ring's bytes: N k/n for top-k, k/n for random-k."""
    nbytes = 8 * n * (ranks - 1) / ranks
    ratio = k / n * (ranks if method == "top-k" else 1)
    better = max(0.0, 1 - ratio) * nbytes
    times = nbytes / bandwidth, seconds + ratio * nbytes / bandwidth
    limit = better and (better / seconds if seconds > 0 else float("inf"))
    return dict(zip(("dense", "compressed", "break_even"), (*times, limit), strict=True))


def pays_off_stub(n, ranks, k, method, seconds, bandwidth):
    raise NotImplementedError("seconds dense and compressed, and the bandwidth below which compressing is faster")
