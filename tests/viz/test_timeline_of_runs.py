"""Traces of real runs, of both worlds, read and drawn."""

import time

import pytest
import torch

from lockstep.hardware import Cluster, Link
from lockstep.trace import Span, critical_path, usage
from lockstep.viz import timeline
from lockstep.world import launch, simulate


def two_unequal_ranks(comm):
    with comm.span("forward", cost=1.0 + comm.rank):
        pass
    comm.all_reduce(torch.zeros(1000))  # ring of two: each rank sends 2 x 2,000 bytes
    with comm.span("step", cost=1.0):
        pass


def test_a_simulated_run_by_hand():
    # rank 0  F....[==]S     forward takes 1 s and 2 s, two rounds of a ring 0.5 s each, the step 1 s
    # rank 1  FFFFF[==]S
    run = simulate(two_unequal_ranks, 2, cluster=Cluster.uniform(Link(0.0, 4000.0, "test")))
    assert run.seconds == pytest.approx(4.0)
    first, second = usage(run.trace)
    assert (first.computing, first.exposed, first.idle) == pytest.approx((2, 1, 1))
    assert (second.computing, second.exposed, second.idle) == pytest.approx((3, 1, 0))
    path = critical_path(run.trace)
    lengths = [e.seconds if isinstance(e, Span) else e.received - e.sent for e in path]
    assert lengths == pytest.approx([2, 0.5, 0.5, 1])
    alt = timeline(run).alt
    assert "2 ranks over 4 s." in alt
    assert "Rank 0: computes 50 %, exposed communication 25 %, idle 25 %." in alt
    assert "4 messages, 8 kB in all." in alt


def measured(comm):
    with comm.span("forward"):
        time.sleep(0.02 + 0.2 * comm.rank)
    comm.all_reduce(torch.zeros(1000))


@pytest.mark.stalls
def test_a_measured_run_shows_who_waited_for_whom():
    run = launch(measured, 2)
    first, second = usage(run.trace)
    assert first.idle > 0.1 > second.idle  # rank 0 was in the all-reduce, but its partner was not
    assert [e.name for e in critical_path(run.trace)] == ["forward", "all_reduce"]
    assert critical_path(run.trace)[0].rank == 1
    assert timeline(run).alt.startswith("Timeline (measured). 2 ranks over ")
