"""Paced runs against the simulated world: the same program, never faster, and not much slower.

A message may never arrive before its time, so lower bounds are exact. Upper bounds leave room for a machine that is busy.
"""

import pytest
import torch
from torch import nn

from lockstep.cost import Cost, LayerCost
from lockstep.hardware import Device, Link
from lockstep.trace import overlap_share
from lockstep.world import DeadlockError, RankError, RunTimeout, launch, simulate
from lockstep.world.ports import UNDER_WAY, Ports, Ticket

SLOW = Link(latency=10e-3, bandwidth=1e6)  # 10,000 bytes take 20 ms
LATE = 4.0  # seconds that a whole run may take longer than in the simulated world


@pytest.fixture
def ports(tmp_path):
    Ports.create(tmp_path / "ports", 4)
    return Ports(tmp_path / "ports", 4)


class TestPorts:
    def test_the_later_post_counts_whoever_makes_it(self, ports):
        for src, dst, sender_first in ((0, 1, True), (2, 3, False)):
            first = ports.post(src, dst, sender_first, 5, 10.0, 2.0)
            assert isinstance(first, Ticket)
            assert ports.post(src, dst, not sender_first, 5, 20.0, 2.0) == 22.0 == ports.end(first)

    def test_one_message_at_a_time_through_a_port_and_both_ways_at_once(self, ports):
        for dst in (1, 2):  # rank 0 has one port to send
            ports.post(0, dst, True, 5, 0.0, 3.0)
        assert ports.post(0, 1, False, 5, 0.0, 3.0) == 3.0
        assert ports.post(0, 2, False, 5, 0.0, 3.0) == 6.0
        ports.post(3, 2, True, 5, 0.0, 3.0)  # rank 2's port to receive is taken until 6
        assert ports.post(3, 2, False, 5, 0.0, 3.0) == 9.0
        ports.post(1, 0, True, 5, 0.0, 3.0)  # the other way is free
        assert ports.post(1, 0, False, 5, 0.0, 3.0) == 3.0

    def test_equal_keys_meet_in_order_and_other_keys_never(self, ports):
        first, second = ports.post(0, 1, True, 5, 1.0, 1.0), ports.post(0, 1, True, 5, 2.0, 1.0)
        other = ports.post(0, 1, False, 6, 0.0, 1.0)
        assert isinstance(other, Ticket)
        assert ports.post(0, 1, False, 5, 0.0, 1.0) == 2.0 == ports.end(first)
        assert ports.post(0, 1, False, 5, 10.0, 1.0) == 11.0 == ports.end(second)
        assert ports.post(0, 1, True, 6, 0.0, 1.0) == 12.0 == ports.end(other)

    def test_too_many_messages_under_way_is_a_sentence(self, ports):
        for _ in range(UNDER_WAY):
            ports.post(0, 1, True, 5, 0.0, 1.0)
        with pytest.raises(RuntimeError, match="512 messages from rank 0 to rank 1 are under way"):
            ports.post(0, 1, True, 5, 0.0, 1.0)


def every_call(comm):
    """Most of what a communicator offers; gives what came of it."""
    r, p = comm.rank, comm.size
    right, left = (r + 1) % p, (r - 1) % p
    x, y = torch.full((2500,), float(r)), torch.empty(2500)
    comm.exchange([(x, right)], [(y, left)])
    got = [y.clone(), comm.all_reduce(x + 1), comm.all_reduce(torch.tensor([r, 7]), "max")]
    arriving, leaving = comm.irecv(y, left), comm.isend(x, right)
    got += [arriving.wait().clone(), comm.reduce_scatter(x), comm.all_gather(x[:3])]
    leaving.wait()
    got += [comm.broadcast(x.clone(), 1), comm.all_to_all(torch.arange(2.0 * p) + r)]
    got += [comm.all_to_all(torch.arange(3.0) + r, [1, 1, 1], [1, 1, 1])]
    got += comm.gather(x[: r + 1], 0, [1, 2, 3]) or [x]
    got += [comm.scatter(torch.empty(2), [torch.full((2,), float(i)) for i in range(p)] if r == 2 else None, 2)]
    got += [comm.reduce(torch.ones(4) * r, 1)]
    half = comm.split(r // 2)
    got += [half.all_reduce(torch.ones(5) * r, async_op=True).wait()]
    comm.barrier()
    if r == 0:
        got += [torch.tensor(comm.recv(y)), y.clone()]
    elif r == 1:
        comm.send(x, 0)
    return got


@pytest.mark.stalls
def test_every_call_gives_the_same_as_simulated_and_is_never_faster():
    paced, simulated = launch(every_call, 3, pace=True, link=SLOW), simulate(every_call, 3, cluster=SLOW)
    for mine, theirs in zip(paced.values, simulated.values, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))
    assert paced.traffic == simulated.traffic  # collectives are comm's own, so nothing is nominal
    assert paced.trace.world == "paced"
    assert simulated.seconds <= paced.seconds < simulated.seconds + LATE
    assert len(paced.trace.messages) == len(simulated.trace.messages)
    for message in paced.trace.messages:
        assert message.received - message.sent >= SLOW.seconds(message.bytes) - 1e-9


DEVICE = Device("slow", {"float32": 1e6}, 1e6, 2**30, "test")


def layers(comm):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    charge = comm.charge(model, {"0": LayerCost(0.03, 0.05), "2": LayerCost(Cost(20e3), Cost(0, 40e3))})
    with comm.span("step"):
        model(torch.ones(3, 4)).sum().backward()
    charge.remove()
    with comm.span("outer", cost=9.0), comm.span("inner", cost=0.02):  # inner costs count, an outer one adds none
        pass
    with comm.span("flops", cost=Cost(30e3)):
        pass
    with comm.span("wait", kind="wait"):
        pass


@pytest.mark.stalls
def test_spans_and_layers_last_at_least_their_cost_and_slow_ranks_longer():
    expected = {
        "forward 0": 0.03, "forward 2": 0.02, "backward 2": 0.04, "backward 0": 0.05, "step": 0.14,
        "inner": 0.02, "outer": 0.02, "flops": 0.03, "wait": 0.0,
    }  # fmt: skip
    run = launch(layers, 2, pace=True, device=DEVICE, slow={1: 2.0})
    simulated = simulate(layers, 1, cluster=SLOW)
    assert {span.name for span in simulated.trace.spans} == set(expected)
    for rank, factor in ((0, 1), (1, 2)):
        spans = {span.name: span.seconds for span in run.trace.spans if span.rank == rank}
        assert spans.keys() == expected.keys()
        for name, seconds in expected.items():
            assert factor * seconds <= spans[name] + 1e-9 and spans[name] < factor * seconds + LATE, name
        assert spans["outer"] < 9


@pytest.mark.stalls
def test_without_costs_a_slow_rank_takes_as_many_times_as_long_as_it_did():
    def program(comm):
        begun = comm.now()
        with comm.span("outer"):
            with comm.span("inner", cost=30.0):  # costs count only with pace=True
                inside = comm.now()
                torch.linalg.svd(torch.ones(60, 60))
                worked = comm.now() - inside
            inner = comm.now() - begun
            comm.barrier()  # waiting for others is no work
        return worked, inner, comm.now() - begun

    run = launch(program, 2, slow={1: 4.0})
    assert run.trace.world == "paced"
    worked, inner, outer = run.values[1]
    assert 4 * worked <= inner < 4 * worked + LATE
    assert outer < inner + LATE


@pytest.mark.stalls
def test_communication_goes_on_beside_computation():
    def program(comm):
        x = torch.ones(100_000)
        handles = [comm.all_reduce(x, async_op=True), comm.all_reduce(torch.ones(1), async_op=True)]
        with comm.span("backward", cost=1.0):
            pass
        return [handle.wait()[0].item() for handle in handles]

    link = Link(1e-3, 1e6)  # the long one takes 0.402 s
    run = launch(program, 2, pace=True, link=link)
    assert run.values == [[2.0, 2.0]] * 2
    assert run.seconds >= 1.0
    assert overlap_share(run.trace) > 0.9  # one after the other would be 0
    beside = [span for span in run.trace.spans if span.rank == 0 and span.stream == 1]
    assert [span.kind for span in beside] == ["collective"] * 2
    assert beside[0].seconds >= 0.402 - 1e-9 and beside[1].start >= beside[0].end


def test_a_message_under_delay_is_no_deadlock_and_a_deadlock_is(monkeypatch):
    monkeypatch.setattr("lockstep.world.supervise.IDLE_FOR", 0.4)
    monkeypatch.setattr("lockstep.world.supervise.IDLE_EVERY", 0.1)

    def slowly(comm):
        x = torch.ones(1)
        return comm.all_reduce(x).item()

    assert launch(slowly, 2, pace=True, link=Link(0.6, 1e9)).values == [2.0, 2.0]  # 1.2 s in which nobody computes

    def both_receive(comm):
        comm.recv(torch.ones(1), 1 - comm.rank)

    with pytest.raises(DeadlockError, match="recv of float32"):
        launch(both_receive, 2, pace=True, link=SLOW)


def test_errors_and_time_limits_end_a_run_in_the_middle_of_a_delay():
    def program(comm, fails):
        if comm.rank == 2 and fails:
            raise ValueError("no")
        if comm.rank < 2:
            comm.exchange([(torch.ones(1), 1 - comm.rank)], [(torch.ones(1), 1 - comm.rank)])

    hour = Link(3600.0, 1e9)
    with pytest.raises(RankError, match="rank 2 raised ValueError: no"):
        launch(program, 3, True, pace=True, link=hour)
    with pytest.raises(RunTimeout):
        launch(program, 3, False, pace=True, link=hour, timeout=0.5)


def test_a_cost_without_a_device_is_a_sentence():
    def program(comm, cost):
        with comm.span("work", cost=cost):
            pass

    with pytest.raises(RankError, match=r'takes seconds on a device: launch\(..., pace=True, device="A100"\)'):
        launch(program, 1, Cost(1.0), pace=True)
    with pytest.raises(RankError, match="a number of seconds of at least 0, not -1"):
        launch(program, 1, -1, pace=True)
