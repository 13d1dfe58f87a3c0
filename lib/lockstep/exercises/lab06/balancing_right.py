"""Exercise 06.2: right solutions, written independently, and the stub.

Floor 4, room `exercises`; the exercise is in `balancing.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import combinations, pairwise


def balanced_partition(costs, parts, communication):
    n, carried = len(costs), [0, *communication, 0]

    def seconds(a, b):
        return carried[a] + sum(costs[a:b]) + carried[b]

    best = {b: (seconds(0, b), []) for b in range(1, n + 1)}
    for part in range(1, parts):
        best = {
            b: min((max(best[a][0], seconds(a, b)), [*best[a][1], a]) for a in range(part, b))
            for b in range(part + 1, n + 1)
        }
    return best[n][1]


def partition_by_trying_all(costs, parts, communication):
    def slowest(cuts):
        edges = [0, *cuts, len(costs)]
        times = [sum(costs[a:b]) for a, b in pairwise(edges)]
        for j, cut in enumerate(cuts):
            times[j] += communication[cut - 1]
            times[j + 1] += communication[cut - 1]
        return max(times)

    return list(min(combinations(range(1, len(costs)), parts - 1), key=slowest))


def partition_by_asking_what_is_left(costs, parts, communication):
    @cache
    def rest(start, left):
        before = communication[start - 1] if start else 0
        if left == 1:
            return before + sum(costs[start:]), ()
        options = []
        work = before
        for cut in range(start + 1, len(costs) - left + 2):
            work += costs[cut - 1]
            behind, cuts = rest(cut, left - 1)
            options.append((max(work + communication[cut - 1], behind), (cut, *cuts)))
        return min(options)

    return list(rest(0, parts)[1])


def balanced_partition_stub(costs, parts, communication):
    raise NotImplementedError("return the index of the first layer of each part but the first")


def slowest_of(cuts: Sequence[int], costs: Sequence[float], communication: Sequence[float]) -> float:
    """Seconds of the slowest part, its messages included."""
    carried = [0, *communication, 0]
    return max(carried[a] + sum(costs[a:b]) + carried[b] for a, b in pairwise([0, *cuts, len(costs)]))
