"""What compressing costs in the simulated world: bytes and operations by hand, and so a longer step where links are free."""

import math
from types import SimpleNamespace

import pytest
import torch

from lockstep.comm import AllReduce, Bucket
from lockstep.compress import (
    DGC,
    QSGD,
    CompressedSensing,
    ErrorFeedback,
    Int8,
    OneBit,
    PowerSGD,
    RandomK,
    SignVote,
    TernGrad,
    Threshold,
    TopK,
)
from lockstep.compress.work import working
from lockstep.cost import Cost
from lockstep.hardware import Cluster, Device, Link
from lockstep.world import simulate

# Of a tensor [64, 100] in float32 on two ranks: B bytes; a hundredth are 64 values, at 32 bytes for each that lies alone.
B, LONE = 25_600, 64 * 32


def by_hand():
    """[compressor, bytes that compressing moves, bytes that decompressing moves]; new ones, as they keep things."""
    return [
        (Int8(block=1024), B + 6428, 6428 + 6428 / 2 + 6428 + B),
        (QSGD(levels=7, block=512), B + 3252, 2 * 3252 + B),
        (TernGrad(), 2 * B + 1284, 2 * 1284 + B),
        (OneBit(), B + 1312, 2 * 1312 + B),
        (SignVote(), B + 804, 2 * 804 + B),
        (TopK(0.01), (4 + 1) * B + 512, B + 2 * (512 + 2 * LONE)),
        (Threshold(0.99), 2 * B + 512, B + 2 * (512 + 2 * LONE)),
        (RandomK(0.01), LONE + 256, B + 256 + LONE),
        (DGC(0.01), (5 + 4 + 1) * B + 512 + 2 * LONE, B + 2 * (512 + 2 * LONE)),
        (DGC(0.01, warm_up=4), (5 + 4 + 1) * B + 25 * (512 + 2 * LONE), B + 2 * 25 * (512 + 2 * LONE)),
        (PowerSGD(2), 2 * (B + 1312) + 3 * 3 * 64 * 4, B + 1312),
        (CompressedSensing(0.1, iterations=2), B + 2560, B + 2560),
        (ErrorFeedback(TopK(0.01)), (3 + 5) * B + 512, B + 2 * (512 + 2 * LONE) + 512 + 2 * LONE),
        (ErrorFeedback(OneBit()), (3 + 1) * B + 1312, 2 * 1312 + B + 1312 + 2 * B),
        (ErrorFeedback(RandomK(0.01)), 3 * B + LONE + 256, B + 256 + LONE + 256 + 2 * LONE),
        (ErrorFeedback(Int8(block=1024)), (3 + 1) * B + 6428, 6428 + 6428 / 2 + 6428 + B + 6428 + 2 * B),
        (ErrorFeedback(PowerSGD(2)), 3 * B + 2 * (B + 1312) + 3 * 3 * 64 * 4, B + 1312 + 2 * B + 1312),
        (ErrorFeedback(CompressedSensing(0.1, iterations=2)), 3 * B + B + 2560, B + 2560 + 3 * B),
    ]


def seconds_of_each(comm):
    """Of an exchange that is exact, and of each compressor's."""
    taken = []
    for exchange in (AllReduce(), *(each for each, *_ in by_hand())):
        flat = torch.arange(6400) / 6400
        begun = comm.now()
        exchange.start(comm, Bucket(0, flat, (flat.view(64, 100),))).wait()
        taken.append(comm.now() - begun)
    return taken


def on_free_links(bandwidth, rate):
    device = Device("by hand", {"float32": rate}, bandwidth, 2**30, "this test")
    return simulate(seconds_of_each, 2, cluster=Cluster.uniform(Link(0, math.inf), device), timeout=60)


def test_on_a_link_that_costs_nothing_every_compressor_takes_longer_than_none_by_what_it_moves():
    run = on_free_links(bandwidth=1.0, rate=math.inf)  # a second is a byte
    for dense, *taken in run.values:
        assert dense == 0
        for (compressor, there, back), seconds in zip(by_hand(), taken, strict=True):
            # One more pass looks for what is not finite.
            assert seconds == pytest.approx(B + there + back, rel=1e-12), compressor
    assert {span.name for span in run.trace.spans if span.kind == "compute"} == {"compress", "decompress"}


def test_the_closed_forms_say_the_same_before_anything_runs():
    for compressor, there, back in by_hand():
        if compressor.__class__ is Threshold:  # the data decide
            found = (
                compressor.compress_cost((64, 100), kept=64),
                compressor.combine_cost((64, 100), 1024, torch.float32),
            )
        elif getattr(compressor, "warm_up", 0):
            found = compressor.compress_cost((64, 100), step=0), Cost(bytes=back)
        else:
            found = compressor.compress_cost((64, 100)), compressor.decompress_cost((64, 100), 2)
        assert [cost.bytes for cost in found] == [there, back], compressor


def test_matrix_products_cost_operations():
    _, *taken = on_free_links(bandwidth=math.inf, rate=1.0).values[0]  # a second is an operation
    wanted = {
        "PowerSGD(2)": 3 * 2 * 64 * 100 * 2,
        # Two blocks of 3,200 values in 4,096 = 64 x 64; one transform to measure, and 1 + 3 * 2 to recover.
        "CompressedSensing(0.1)": (1 + 1 + 3 * 2) * 2 * 2 * 4096 * (64 + 64),
        "TopK(0.01)": 0,
    }
    found = {repr(compressor): seconds for (compressor, *_), seconds in zip(by_hand(), taken, strict=True)}
    assert {name: found[name] for name in wanted} == wanted


def test_in_a_paced_run_without_a_device_work_lasts_as_long_as_it_does_here():
    # Story: a run paced for its link alone would have been refused, as a Cost without a device has no seconds.
    asked = []
    for device, wanted in ((None, None), ("A100", Cost(bytes=8))):
        comm = SimpleNamespace(pace=SimpleNamespace(device=device), span=lambda name, cost: asked.append(cost))
        working(comm, "compress", Cost(bytes=8))
        assert asked.pop() == wanted
