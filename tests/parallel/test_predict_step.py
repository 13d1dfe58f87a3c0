"""Predicted steps against the simulated world, where the real wrapper runs with the same costs and the same link."""

import pytest
import torch
from torch import nn

from lockstep.comm import Central
from lockstep.cost import Cost, LayerCost
from lockstep.hardware import Device, Link
from lockstep.parallel import DistributedDataParallel, measure_profile, predict_step
from lockstep.world import simulate

LINK = Link(1e-3, 1e6)


def network():
    """Layers of 4 to 16 kB, one of them without a cost, one frozen, one tied to another."""
    model = nn.Sequential(
        nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 64), nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10)
    )
    model[4].weight = model[3].weight
    model[2].bias.requires_grad_(False)
    return model


PROFILE = {
    "0": LayerCost(0.002, 0.008),
    "1": LayerCost(0.001, 0.001),
    "2": LayerCost(0.003, 0.012),
    "3": LayerCost(0.004, 0.015),
    "5": LayerCost(0.002, 0.004),
}


def one_step(comm, bucket_bytes, overlap, exchange):
    model = DistributedDataParallel(network(), comm, bucket_bytes, overlap, exchange)
    comm.charge(model.module, PROFILE)
    x = torch.ones(2, 32)
    for _ in range(2):
        with comm.span("align", cost=1.0 - comm.now() % 1.0):
            pass
        begun = comm.now()
        model(x).mean().backward()
        taken = comm.now() - begun
    return taken


@pytest.mark.parametrize(
    ("bucket_bytes", "overlap", "central"),
    [(1, True, False), (9000, True, False), (9000, False, False), (2**20, True, False), (9000, True, True)],
)
def test_a_step_takes_the_predicted_seconds(bucket_bytes, overlap, central):
    for p in (2, 3, 4):
        run = simulate(one_step, p, bucket_bytes, overlap, Central() if central else None, cluster=LINK)
        step = predict_step(
            network(), PROFILE, p, LINK.latency, LINK.bandwidth, bucket_bytes=bucket_bytes, overlap=overlap,
            algorithm="central_all_reduce" if central else "ring_all_reduce",
        )  # fmt: skip
        assert step.seconds == pytest.approx(max(run.values), rel=1e-2)
        assert step.forward == pytest.approx(0.012) and step.backward == pytest.approx(0.040)


def test_by_hand():
    model = nn.Sequential(nn.Linear(10, 10, bias=False), nn.Linear(10, 10, bias=False))
    profile = {"0": LayerCost(1.0, 2.0), "1": LayerCost(1.0, 2.0)}
    # Two ranks, 400 bytes each layer at 100 bytes a second: an exchange takes 4 s.
    step = predict_step(model, profile, 2, 0.0, 100.0, bucket_bytes=400)
    assert step.exchanges == ((4.0, 8.0), (8.0, 12.0))
    assert (step.seconds, step.exposed) == (12.0, 6.0)
    late = predict_step(model, profile, 2, 0.0, 100.0, bucket_bytes=400, overlap=False)
    assert late.exchanges == ((6.0, 10.0), (10.0, 14.0))
    alone = predict_step(model, profile, 1, 0.0, 100.0, bucket_bytes=400)
    assert (alone.seconds, alone.exposed) == (6.0, 0.0)
    device = Device("d", {"float32": 10.0}, 10.0, 1, "test")
    costs = {"0": LayerCost(Cost(10), Cost(20)), "1": LayerCost(Cost(0, 10), Cost(20))}
    assert predict_step(model, costs, 2, 0.0, 100.0, bucket_bytes=400, device=device) == step
    frozen = nn.Linear(2, 2).requires_grad_(False)
    assert predict_step(frozen, {"": LayerCost(1.0, 0.0)}, 2, 0.0, 1.0).seconds == 1.0


def test_what_cannot_be_is_a_sentence():
    model = nn.Sequential(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="takes seconds on a device"):
        predict_step(model, {"0": LayerCost(Cost(1.0), 0.0)}, 2, 0.0, 1.0)
    with pytest.raises(ValueError, match="cost for '7'"):
        predict_step(model, {"7": LayerCost()}, 2, 0.0, 1.0)
    with pytest.raises(ValueError, match="bucket_bytes is 0"):
        predict_step(model, {}, 2, 0.0, 1.0, bucket_bytes=0)
    with pytest.raises(ValueError, match="ran no layer"):
        measure_profile(model, lambda: torch.ones(1, requires_grad=True).sum())


def test_a_measured_profile_has_every_layer_in_order_and_adds_up_to_the_pass():
    model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Linear(256, 1))
    calls = []

    def loss():
        calls.append(1)
        return model(torch.ones(256, 64)).sum()

    profile = measure_profile(model, loss, repeats=3)
    assert list(profile) == ["0", "1", "2", "3"] and len(calls) == 4
    assert all(cost.forward > 0 and cost.backward > 0 for cost in profile.values())
    assert not model[0]._forward_hooks
    assert predict_step(model, profile, 2, 1e-4, 1e9).seconds > 0
