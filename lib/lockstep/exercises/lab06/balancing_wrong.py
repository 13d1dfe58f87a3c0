"""Exercise 06.2: wrong solutions that students write; their sentences are in `balancing_mistakes.py`.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, combinations, pairwise

from lockstep.exercises.lab06.balancing_right import balanced_partition, slowest_of

Numbers = Sequence[float]


def least(
    seconds: Callable[[Numbers, Numbers, int, int], float],
    of: Callable[[Sequence[float]], float] = max,
    first: int = 1,
    spare: int = 0,
) -> Callable[[Numbers, int, Numbers], list[int]]:
    """Tries all cuts for the least `of` the parts' `seconds(costs, carried, a, b)`; the right ones are `worked`, `max`.

    carried: the seconds of a cut before layer a, 0 at both ends. first, spare: the first cut that is tried, and how
    many of the last ones are not.
    """

    def partition(costs: Numbers, parts: int, communication: Numbers) -> list[int]:
        carried, n = [0, *communication, 0], len(costs)

        def goal(cuts: tuple[int, ...]) -> float:
            return of([seconds(costs, carried, a, b) for a, b in pairwise([0, *cuts, n])])

        return list(min(combinations(range(first, n - spare), parts - 1), key=goal, default=range(1, parts)))

    return partition


def worked(costs: Numbers, carried: Numbers, a: int, b: int) -> float:
    return carried[a] + sum(costs[a:b]) + carried[b]


counts_messages_of_senders_only = least(lambda costs, carried, a, b: sum(costs[a:b]) + carried[b])
counts_messages_of_receivers_only = least(lambda costs, carried, a, b: carried[a] + sum(costs[a:b]))
takes_the_larger_of_both = least(lambda costs, carried, a, b: max(sum(costs[a:b]), carried[a] + carried[b]))
doubles_the_messages = least(lambda costs, carried, a, b: 2 * carried[a] + sum(costs[a:b]) + 2 * carried[b])
adds_the_parts_up = least(worked, sum)
evens_the_parts_out = least(worked, lambda times: max(times) - min(times))
makes_the_squares_small = least(worked, lambda times: sum((t - sum(times) / len(times)) ** 2 for t in times))
never_cuts_behind_the_first_layer = least(worked, first=2)
never_cuts_before_the_last_layer = least(worked, spare=1)


def takes_the_next_cuts_message(costs, parts, communication):
    return balanced_partition(costs, parts, [*communication[1:], 0])


def reads_beyond_the_ends(costs, parts, communication):
    def goal(cuts):
        return max(communication[a] + sum(costs[a:b]) + communication[b] for a, b in pairwise([0, *cuts, len(costs)]))

    return min(combinations(range(1, len(costs)), parts - 1), key=goal)


def cuts_where_the_running_sum_passes(costs, parts, communication):
    held = list(accumulate(costs))
    return [next(i + 1 for i, s in enumerate(held) if s >= held[-1] * k / parts) for k in range(1, parts)]


def fills_up_to_a_limit(costs, parts, communication):
    carried, n = [0, *communication, 0], len(costs)

    def filled(limit):
        edges = [0]
        for left in range(parts - 1, -1, -1):
            ends = range(edges[-1] + 1, n - left + 1) if left else [n]
            fitting = [b for b in ends if worked(costs, carried, edges[-1], b) <= limit]
            if not fitting:
                return None
            edges.append(fitting[-1])
        return edges[1:-1]

    limits = sorted({worked(costs, carried, a, b) for a in range(n) for b in range(a + 1, n + 1)})
    return next((cuts for cuts in map(filled, limits) if cuts is not None), list(range(1, parts)))


def moves_cuts_while_that_helps(costs, parts, communication):
    cuts = cuts_equal_counts(costs, parts, communication)
    while True:
        near = [[*cuts[:k], cuts[k] + d, *cuts[k + 1 :]] for k in range(parts - 1) for d in (-1, 1)]
        near = [one for one in near if all(a < b for a, b in pairwise([0, *one, len(costs)]))]
        better = min(near, key=lambda one: slowest_of(one, costs, communication), default=cuts)
        if slowest_of(better, costs, communication) >= slowest_of(cuts, costs, communication):
            return cuts
        cuts = better


def rounds_to_whole_seconds(costs, parts, communication):
    return balanced_partition([int(c) for c in costs], parts, [int(c) for c in communication])


def begins_with_a_best_that_is_too_small(costs, parts, communication):
    best, found = 999, None
    for cuts in combinations(range(1, len(costs)), parts - 1):
        if slowest_of(cuts, costs, communication) < best:
            best, found = slowest_of(cuts, costs, communication), list(cuts)
    return found


def writes_into_its_arguments(costs, parts, communication):
    cuts = balanced_partition(costs, parts, communication)
    communication.insert(0, 0)
    return cuts


def cuts_equal_counts(costs, parts, communication):
    return [round(j * len(costs) / parts) for j in range(1, parts)]


def ignores_the_communication(costs, parts, communication):
    return balanced_partition(costs, parts, [0] * len(communication))


def fills_up_to_the_average(costs, parts, communication):
    average, cuts, held = sum(costs) / parts, [], 0
    for i, cost in enumerate(costs):
        if held and held + cost > average and len(cuts) < parts - 1:
            cuts.append(i)
            held = 0
        held += cost
    return cuts + list(range(len(costs) - (parts - 1 - len(cuts)), len(costs)))


def gives_the_last_layer_of_each_part(costs, parts, communication):
    return [cut - 1 for cut in balanced_partition(costs, parts, communication)]


def gives_the_sizes(costs, parts, communication):
    edges = [0, *balanced_partition(costs, parts, communication), len(costs)]
    return [b - a for a, b in pairwise(edges)]


def gives_the_outer_bounds_too(costs, parts, communication):
    return [0, *balanced_partition(costs, parts, communication), len(costs)]


def leaves_parts_empty(costs, parts, communication):
    best = [sum(costs), []]
    for many in range(1, parts):
        cuts = balanced_partition(costs, many + 1, communication) if many + 1 <= len(costs) else []
        worst = slowest_of(cuts, costs, communication)
        if cuts and worst < best[0]:
            best = [worst, cuts]
    return best[1] + [len(costs)] * (parts - 1 - len(best[1]))
