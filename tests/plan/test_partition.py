"""Balanced partitions: equal to brute force over all cuts."""

import itertools
import random

import pytest

from lockstep.plan import balanced_partition, part_times, spans_of


def brute_force(costs, parts, communication=None, hidden=False, speeds=None, fits=lambda j, a, b: True):
    """(bottleneck, most even sum of squares) over every cut that fits, or None."""
    n, found = len(costs), None
    link = [0, *(communication or [0] * (n - 1)), 0]
    for cuts in itertools.combinations(range(1, n), parts - 1):
        ends = [0, *cuts, n]
        times = []
        for j, (a, b) in enumerate(zip(ends, ends[1:], strict=False)):
            work = sum(costs[a:b]) / (speeds[j] if speeds else 1)
            times.append(max(work, link[a], link[b]) if hidden else work + link[a] + link[b])
        if all(fits(j, a, b) for j, (a, b) in enumerate(zip(ends, ends[1:], strict=False))):
            value = max(times), sum(t * t for t in times)
            found = min(found, value) if found else value
    return found


def test_equal_to_brute_force_on_500_instances():
    draw = random.Random(0)
    impossible = 0
    for _ in range(500):
        n = draw.randint(1, 9)
        k = draw.randint(1, n)
        costs = [draw.choice([0, 1, 2, 3, 5, 8, 13, 40]) for _ in range(n)]
        given = {"hidden": draw.random() < 0.3}
        if draw.random() < 0.6:
            given["communication"] = [draw.randint(0, 12) for _ in range(n - 1)]
        if draw.random() < 0.3:
            given["speeds"] = [draw.choice([1, 2, 4]) for _ in range(k)]
        limits, fits = {}, lambda j, a, b: True
        if draw.random() < 0.5:
            memory, activations = ([draw.randint(0, 9) for _ in range(n)] for _ in range(2))
            limit = [draw.randint(10, 60) for _ in range(k)]
            many = [k - j for j in range(k)]
            limits = {"memory": memory, "limit": limit, "activations": activations, "in_flight": many}

            def fits(j, a, b, memory=memory, activations=activations, limit=limit, many=many):
                return sum(memory[a:b]) + many[j] * sum(activations[a:b]) <= limit[j]

        wanted = brute_force(costs, k, fits=fits, **given)
        if wanted is None:
            impossible += 1
            with pytest.raises(ValueError, match=f"no cut into {k} parts fits"):
                balanced_partition(costs, k, **given, **limits)
            continue
        cuts = balanced_partition(costs, k, **given, **limits)
        times = part_times(costs, cuts, **given)
        assert len(cuts) == k - 1 and len(times) == k
        assert all(fits(j, span.start, span.stop) for j, span in enumerate(spans_of(cuts, n)))
        assert (max(times), sum(t * t for t in times)) == wanted
    assert 20 < impossible < 200


def test_cuts_are_indices_of_first_layers():
    assert balanced_partition([1, 1, 1, 1], 2) == [2]
    assert balanced_partition([4, 1, 1, 1, 1], 2) == [1]
    assert balanced_partition([3.5], 1) == []
    assert balanced_partition([1, 2, 3], 3) == [1, 2]
    assert balanced_partition([1, 1, 1, 1, 1, 1], 4) in ([1, 2, 4], [1, 3, 5], [2, 3, 4], [2, 4, 5], [1, 3, 4])
    # The cheapest cut is not where the layers are equal.
    assert balanced_partition([2, 2, 2, 2], 2, communication=[0, 3, 1]) in ([1], [3])
    assert spans_of([1, 3], 4) == [range(0, 1), range(1, 3), range(3, 4)]


@pytest.mark.parametrize(
    "arguments, said",
    [
        (([1, 2], 3), "2 layers cannot be cut into 3 parts"),
        (([1, 2], 0), "parts is 0"),
        (([1, 2], True), "parts is True"),
        (([1, -2], 1), "costs holds -2"),
        (([1, float("nan")], 1), "costs holds nan"),
        (([1, 2, 3], 2, [1]), "communication has 1 numbers; 2 are needed"),
    ],
)
def test_bad_arguments_get_a_sentence(arguments, said):
    with pytest.raises(ValueError, match=said):
        balanced_partition(*arguments)


def test_bad_limits_get_a_sentence():
    for given, said in (
        ({"memory": [1, 1]}, "without a limit"),
        ({"memory": [1, 1], "limit": [1, 2, 3]}, "limit has 3 numbers"),
        ({"speeds": [1, 0]}, "each must be above 0"),
    ):
        with pytest.raises(ValueError, match=said):
            balanced_partition([1, 2], 2, **given)
    for cuts in ([0], [2], [1, 1]):
        with pytest.raises(ValueError, match="must rise"):
            spans_of(cuts, 2)
