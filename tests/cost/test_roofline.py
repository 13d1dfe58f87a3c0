"""The roofline: time is the longer of computing and moving bytes."""

import pytest

from lockstep.cost import Cost, LayerCost
from lockstep.hardware import Device, device

TOY = Device(
    "toy", {"float32": 100.0, "bfloat16": 200.0}, memory_bandwidth=10.0, memory=1, source="made up for this test"
)


def test_the_longer_of_computing_and_moving_bytes_counts():
    # 100 FLOP/s and 10 bytes/s: the ridge lies at 10 FLOPs per byte.
    assert Cost(flops=1000, bytes=10).seconds(TOY) == 10.0  # 1000/100, while 10/10 is 1
    assert Cost(flops=100, bytes=50).seconds(TOY) == 5.0  # 50/10, while 100/100 is 1
    assert Cost(flops=1000, bytes=10).seconds(TOY, "bfloat16") == 5.0


def test_costs_add_and_repeat():
    assert Cost(2, 8) + Cost(3, 4) == Cost(5, 12)
    assert 3 * Cost(2, 8) == Cost(2, 8) * 3 == Cost(6, 24)
    assert sum([Cost(1, 2), Cost(3, 4)], Cost()) == Cost(4, 6)


def test_resnet50_forward_on_an_a100_is_bound_by_arithmetic():
    # 4,089,184,256 multiply-adds an image (torchvision's own count), 2 FLOPs each, at 19.5 TFLOP/s.
    cost = Cost(flops=2 * 4_089_184_256, bytes=25_557_032 * 4)
    assert cost.seconds(device("A100")) == pytest.approx(8_178_368_512 / 19.5e12)


@pytest.mark.parametrize("bad", [-1, float("nan"), float("inf")])
def test_a_cost_that_is_no_amount_is_refused(bad):
    with pytest.raises(ValueError, match="at least 0"):
        Cost(flops=bad)
    with pytest.raises(ValueError, match="at least 0"):
        Cost(bytes=bad)


def test_seconds_are_not_added_to_a_cost():
    with pytest.raises(TypeError):
        Cost(1, 1) + 2.0


def test_a_layer_has_a_cost_each_way():
    assert LayerCost(forward=Cost(10), backward=0.5).backward == 0.5
