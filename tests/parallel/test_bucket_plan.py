"""Planned buckets against all ways to cut, and a profile read from a trace against the costs that were charged."""

from itertools import combinations

import numpy as np
import pytest
import torch
from torch import nn

from lockstep.comm import predict_seconds
from lockstep.cost import LayerCost
from lockstep.hardware import Link
from lockstep.parallel import (
    ReadyGradient,
    best_bucket_bytes,
    gradients_of,
    plan_buckets,
    predict_step,
    profile_of,
    steps_by_bucket_bytes,
)
from lockstep.trace import Trace
from lockstep.world import simulate

LINK = Link(1e-3, 1e6)


def network():
    """Layers of unequal size, the second frozen."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 8), nn.Tanh(), nn.Linear(8, 64), nn.Linear(64, 4))
    model[1].requires_grad_(False)
    return model


PROFILE = {
    "0": LayerCost(2e-3, 5e-3),
    "1": LayerCost(1e-3, 2e-3),
    "3": LayerCost(3e-3, 6e-3),
    "4": LayerCost(1e-3, 3e-3),
}


def charged(comm, slower_layer):
    model = network()
    profile = PROFILE | {slower_layer: LayerCost(4e-3, 8e-3)} if comm.rank == 1 else PROFILE
    comm.charge(model, profile)
    for _ in range(2):
        model(torch.ones(2, 16)).mean().backward()


def test_a_profile_is_read_from_a_trace_from_the_slowest_rank():
    read = profile_of(network(), simulate(charged, 2, "3"))
    expected = PROFILE | {"3": LayerCost(4e-3, 8e-3)}
    assert list(read) == list(expected)
    for name, cost in expected.items():
        assert (read[name].forward, read[name].backward) == pytest.approx((cost.forward, cost.backward))
    with pytest.raises(ValueError, match="no spans of the model's layers"):
        profile_of(network(), Trace.of(1, [], []))


def test_gradients_are_ready_in_the_order_of_backward_and_frozen_ones_never():
    found = gradients_of(network(), PROFILE)
    assert [one.name for one in found] == ["4.bias", "4.weight", "3.bias", "3.weight", "0.bias", "0.weight"]
    assert [one.ready for one in found] == pytest.approx([0.010, 0.010, 0.016, 0.016, 0.023, 0.023])
    assert found[1].bytes == 4 * 64 * 4


def all_cuts(n):
    for many in range(n):
        for cuts in combinations(range(1, n), many):
            edges = [0, *cuts, n]
            yield list(zip(edges, edges[1:], strict=False))


def test_no_other_cut_ends_sooner():
    for seed in range(8):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 9))
        ready, sizes = np.cumsum(rng.integers(0, 20, n)) * 1e-3, rng.integers(1, 30, n) * 1000
        gradients = [ReadyGradient(str(i), int(sizes[i]), float(ready[i])) for i in range(n)]
        latency = float(rng.integers(0, 8)) * 1e-3

        def seconds(nbytes, latency=latency):
            return latency + nbytes / 5e6

        def end(cut, ready=ready, sizes=sizes, seconds=seconds):
            free = 0.0
            for a, b in cut:
                free = max(free, ready[b - 1]) + seconds(sizes[a:b].sum())
            return free

        plan = plan_buckets(gradients, seconds)
        best = min(map(end, all_cuts(n)))
        assert plan.end == pytest.approx(best)
        assert [name for bucket in plan.buckets for name in bucket] == [str(i) for i in range(n)]
        for bucket, (begin, _) in zip(plan.buckets, plan.exchanges, strict=True):
            assert begin >= ready[int(bucket[-1])]
    with pytest.raises(ValueError, match="no gradients"):
        plan_buckets([], lambda nbytes: 0.0)


def test_the_best_size_is_the_best_of_the_predicted_steps_and_no_better_than_free_cuts():
    settings = network(), PROFILE, 2, LINK.latency, LINK.bandwidth
    steps = steps_by_bucket_bytes(*settings)
    best = best_bucket_bytes(*settings)
    assert list(steps)[0] == 1024 and list(steps)[-1] >= sum(
        p.nbytes for p in network().parameters() if p.requires_grad
    )
    assert steps[best].seconds == min(step.seconds for step in steps.values())
    assert best == max(size for size, step in steps.items() if step.seconds == steps[best].seconds)
    assert steps[best].seconds == predict_step(*settings, bucket_bytes=best).seconds
    plan = plan_buckets(
        gradients_of(*settings[:2]),
        lambda nbytes: predict_seconds("ring_all_reduce", nbytes, 2, LINK.latency, LINK.bandwidth),
    )
    assert plan.end <= steps[best].seconds + 1e-12
    with pytest.raises(ValueError, match="sizes is empty"):
        best_bucket_bytes(*settings, sizes=[])
