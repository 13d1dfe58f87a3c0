"""Priority order against a clock that asks at every tick what may be sent."""

import numpy as np
import pytest

from lockstep.parallel import arrivals, next_forward, priority_order


def by_ticks(ready, seconds):
    """Whole times only."""
    order, busy_until, now = [], 0, 0
    while len(order) < len(ready):
        there = [i for i in range(len(ready)) if i not in order and ready[i] <= now]
        if now >= busy_until and there:
            order.append(min(there))
            busy_until = now + seconds[order[-1]]
        now += 1
    return order


def test_of_those_that_are_ready_the_lowest_layer_goes_first():
    assert priority_order([4, 3, 2, 1], [2, 1, 1, 4]) == [3, 0, 1, 2]
    assert priority_order([], []) == []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        ready, seconds = rng.integers(0, 30, 8).tolist(), rng.integers(1, 9, 8).tolist()
        assert priority_order(ready, seconds) == by_ticks(ready, seconds)


def test_the_next_forward_waits_for_its_own_layers_alone():
    ready, seconds = [3.0, 2.0, 1.0], [1.0, 1.0, 4.0]
    arrived = arrivals([2, 0, 1], ready, seconds)
    assert arrived == [6.0, 7.0, 5.0]
    assert next_forward(arrived, [2.0, 0.5, 1.0], 3.0) == [8.0, 8.5, 9.5]
    assert next_forward([0.0], [1.0], 3.0) == [4.0]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: priority_order([1.0], []), "times for 1 layers and seconds for 0"),
        (lambda: priority_order([-1.0], [1.0]), "-1.0 is no time"),
        (lambda: priority_order([float("nan")], [1.0]), "nan is no time"),
        (lambda: arrivals([0, 0], [1, 2], [1, 2]), "each of the 2 layers once"),
    ],
)
def test_what_cannot_be_is_a_sentence(call, says):
    with pytest.raises(ValueError, match=says):
        call()
