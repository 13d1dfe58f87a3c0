"""Virtual time: every answer here is worked out by hand.

Most tests use a link of latency 1 s and 4 bytes a second: one float32 takes 2 s, an empty tensor 1 s.
"""

import os
import time

import pytest
import torch

from lockstep.comm.collectives import central_all_reduce
from lockstep.cost import Cost
from lockstep.hardware import Cluster, Link, cluster, device, link
from lockstep.trace import Message
from lockstep.world.simulate import simulate

SLOW = Link(latency=1.0, bandwidth=4.0)
FREE = Link(latency=0.0, bandwidth=float("inf"))


def one(value=0.0):
    return torch.tensor([float(value)])


def after(comm, seconds):
    with comm.span("work", cost=seconds):
        pass


def spans(run, rank, kind=None):
    return [(s.name, s.start, s.end) for s in run.trace.spans if s.rank == rank and kind in (None, s.kind)]


def test_three_messages_sent_at_10_0_and_5_arrive_in_time_order():
    def program(comm):
        if comm.rank == 0:
            got = []
            for _ in range(3):
                x = one()
                source = comm.recv(x, src=None)
                got.append((source, x.item(), comm.now()))
            return got
        after(comm, {1: 10, 2: 0, 3: 5}[comm.rank])
        comm.send(one(comm.rank), 0)
        return comm.now()

    run = simulate(program, 4, cluster=SLOW)
    # Each takes 2 s from the moment it is sent: 0-2, 5-7, 10-12.
    assert run.values[0] == [(2, 2.0, 2.0), (3, 3.0, 7.0), (1, 1.0, 12.0)]
    assert run.values[1:] == [12.0, 2.0, 7.0]
    assert run.trace.messages == (Message(2, 0, 4, 0, 2), Message(3, 0, 4, 5, 7), Message(1, 0, 4, 10, 12))
    assert run.seconds == 12.0


def test_of_several_messages_that_wait_the_one_sent_first_is_taken_and_ties_go_by_rank():
    def program(comm):
        if comm.rank == 0:
            after(comm, 100)
            return [comm.recv(one(), src=None) for _ in range(4)]
        after(comm, {1: 3, 2: 7, 3: 3, 4: 1}[comm.rank])
        comm.send(one(), 0)

    assert simulate(program, 5, cluster=SLOW).values[0] == [4, 1, 3, 2]


def test_a_send_is_a_rendezvous():
    def program(comm):
        if comm.rank == 0:
            comm.send(one(), 1)
        else:
            after(comm, 5)
            comm.recv(one(), 0)
        return comm.now()

    run = simulate(program, 2, cluster=SLOW)
    # Posted at 0 and at 5, 2 s long: both sides are at 7.
    assert run.values == [7.0, 7.0]
    assert spans(run, 0) == [("send", 0.0, 7.0)]
    assert run.trace.messages == (Message(0, 1, 4, 5, 7),)


def test_exchange_sends_and_receives_at_the_same_time():
    def program(comm):
        mine, theirs = one(comm.rank), one()
        comm.exchange([(mine, 1 - comm.rank)], [(theirs, 1 - comm.rank)])
        return theirs.item(), comm.now()

    # Two ports each: 2 s, not 4.
    assert simulate(program, 2, cluster=SLOW).values == [(1.0, 2.0), (0.0, 2.0)]


def test_two_messages_to_one_rank_share_its_receive_port():
    def program(comm):
        if comm.rank == 0:
            handles = [comm.irecv(one(), src) for src in (1, 2)]
            for handle in handles:
                handle.wait()
        else:
            comm.send(one(), 0)
        return comm.now()

    # Rank 1's at 0-2, rank 2's at 2-4.
    assert simulate(program, 3, cluster=SLOW).values == [4.0, 2.0, 4.0]


def test_two_messages_from_one_rank_share_its_send_port():
    def program(comm):
        if comm.rank == 0:
            handles = [comm.isend(one(), dst) for dst in (1, 2)]
            posted = comm.now()
            for handle in handles:
                handle.wait()
            return posted, comm.now()
        comm.recv(one(), 0)
        return comm.now()

    assert simulate(program, 3, cluster=SLOW).values == [(0.0, 4.0), 2.0, 4.0]


def test_a_port_that_is_free_is_not_kept_for_a_message_that_cannot_start_yet():
    """A first version reserved both ports when two posts met: rank 0's port then stood idle until 4.

    Rank 2's receive port is taken by rank 3 over 0-4 (12 bytes). Rank 0 sends to it, and at 1 to rank 1,
    whose port is free: that one goes at once, 1-3, and the first at 4-6.
    """

    def program(comm):
        if comm.rank == 0:
            after(comm, 0.5)
            first = comm.isend(one(), 2)
            after(comm, 0.5)
            second = comm.isend(one(), 1)
            second.wait()
            first.wait()
        elif comm.rank == 1:
            comm.recv(one(), 0)
        elif comm.rank == 2:
            handles = comm.irecv(torch.zeros(3), 3), comm.irecv(one(), 0)
            for handle in handles:
                handle.wait()
        else:
            comm.send(torch.zeros(3), 2)
        return comm.now()

    run = simulate(program, 4, cluster=SLOW)
    assert run.trace.messages == (Message(3, 2, 12, 0, 4), Message(0, 1, 4, 1, 3), Message(0, 2, 4, 4, 6))


def test_a_message_that_waited_for_two_ports_in_turn_keeps_its_place():
    """A message that found its second port taken was put behind those that had come later.

    A byte takes 1 s. Rank 0 sends 5 bytes to rank 3 (1-6), while rank 1's receive port is taken by rank 4 (0-10).
    Its message to rank 1 waits for both ports; at 6 the 15 bytes to rank 2 go first, since that port is free.
    Another for rank 3 is asked for at 7. At 21 rank 0's port is free again: rank 1's turn, then rank 3's.
    """

    def program(comm):
        def some(n):
            return torch.zeros(n, dtype=torch.uint8)

        handles = []
        if comm.rank == 0:
            after(comm, 1)
            handles = [comm.isend(some(n), dst) for n, dst in ((5, 3), (1, 1), (15, 2), (1, 3))]
        elif comm.rank == 1:
            handles = [comm.irecv(some(10), 4), comm.irecv(some(1), 0)]
        elif comm.rank == 2:
            comm.recv(some(15), 0)
        elif comm.rank == 3:
            first = comm.irecv(some(5), 0)
            after(comm, 7)
            handles = [first, comm.irecv(some(1), 0)]
        else:
            comm.send(some(10), 1)
        for handle in handles:
            handle.wait()

    messages = simulate(program, 5, cluster=Link(latency=0.0, bandwidth=1.0)).trace.messages
    assert messages == (
        Message(4, 1, 10, 0, 10),
        Message(0, 3, 5, 1, 6),
        Message(0, 2, 15, 6, 21),
        Message(0, 1, 1, 21, 22),
        Message(0, 3, 1, 22, 23),
    )


def test_isend_and_irecv_cost_nothing_and_wait_goes_to_the_end():
    def program(comm):
        other = 1 - comm.rank
        x = one()
        handles = [comm.isend(one(comm.rank), other), comm.irecv(x, other)]
        posted = comm.now()
        after(comm, 1.5)
        handles[0].wait()
        handles[1].wait()
        return posted, comm.now(), x.item()

    run = simulate(program, 2, cluster=SLOW)
    # 2 s of message behind 1.5 s of work.
    assert run.values == [(0.0, 2.0, 1.0), (0.0, 2.0, 0.0)]
    assert spans(run, 0) == [("work", 0.0, 1.5), ("wait for isend of float32[1] to rank 1", 1.5, 2.0)]


def test_what_arrived_is_in_the_buffer_at_wait_and_not_before():
    def program(comm):
        if comm.rank == 0:
            comm.send(one(7), 1)
            return None
        x = one(3)
        handle = comm.irecv(x, 0)
        after(comm, 10)
        before = x.item()
        return before, handle.wait().item(), x.item(), handle.wait().item()

    assert simulate(program, 2, cluster=SLOW).values[1] == (3.0, 7.0, 7.0, 7.0)


def test_a_central_all_reduce_shows_its_hot_spot():
    def program(comm):
        x = one(comm.rank)
        central_all_reduce(comm, x)
        return x.item(), comm.now()

    run = simulate(program, 4, cluster=SLOW)
    # Rank 0 receives three messages one after the other, 0-2, 2-4, 4-6, and sends three, 6-8, 8-10, 10-12.
    assert [value for value, _ in run.values] == [6.0] * 4
    assert [(m.src, m.dst, m.sent, m.received) for m in run.trace.messages] == [
        (1, 0, 0, 2), (2, 0, 2, 4), (3, 0, 4, 6), (0, 1, 6, 8), (0, 2, 8, 10), (0, 3, 10, 12)
    ]  # fmt: skip
    assert run.traffic[0].bytes_received == run.traffic[0].bytes_sent == 12
    assert run.traffic[1].bytes_sent == 4
    assert run.seconds == 12.0


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_a_ring_all_reduce_takes_what_alpha_and_beta_say(ranks):
    alpha, bandwidth, n = 5e-6, 1e9, 840_000  # bytes; p divides the length

    def program(comm):
        comm.all_reduce(torch.ones(n // 4))

    run = simulate(program, ranks, cluster=Link(alpha, bandwidth))
    # 2(p-1) alpha + 2(p-1)/p n beta (Patarasu and Yuan 2009; reducing itself is free here).
    assert run.seconds == pytest.approx(2 * (ranks - 1) * (alpha + n / ranks / bandwidth), rel=1e-9)
    assert all(t.messages_sent == 2 * (ranks - 1) for t in run.traffic)


def test_collectives_of_ranks_that_come_late_start_when_the_last_has_come():
    def program(comm):
        after(comm, comm.rank)
        comm.barrier()
        return comm.now()

    run = simulate(program, 2, cluster=SLOW)
    assert run.values == [2.0, 2.0]
    assert spans(run, 0, "collective") == [("barrier", 0.0, 2.0)]


def test_links_within_a_node_and_between_nodes_differ():
    nbytes = 4_000_000

    def program(comm, src, dst):
        if comm.rank == src:
            comm.send(torch.ones(nbytes // 4), dst)
        elif comm.rank == dst:
            comm.recv(torch.ones(nbytes // 4), src)

    assert simulate(program, 16, 0, 7, cluster="8xA100 x 2").seconds == link("NVLink3").seconds(nbytes)
    assert simulate(program, 16, 7, 8, cluster="8xA100 x 2").seconds == link("HDR").seconds(nbytes)
    assert simulate(program, 16, 7, 8).seconds == link("HDR").seconds(nbytes)  # the default, "8xA100"


# ---------------------------------------------------------------------------------------------- costs


def test_a_span_lasts_its_cost_and_messages_inside_count_towards_it():
    def program(comm):
        with comm.span("long", cost=5, micro_batch=3):
            comm.exchange([(one(), 1 - comm.rank)], [(one(), 1 - comm.rank)])
        with comm.span("short", cost=1):
            comm.exchange([(one(), 1 - comm.rank)], [(one(), 1 - comm.rank)])
        return comm.now()

    run = simulate(program, 2, cluster=SLOW)
    assert run.values == [7.0, 7.0]  # 5, then the exchange's 2
    long = next(s for s in run.trace.spans if s.name == "long")
    assert (long.start, long.end, long.micro_batch, long.kind) == (0.0, 5.0, 3, "compute")


def test_a_span_with_inner_costs_adds_none_of_its_own():
    def program(comm):
        with comm.span("step", cost=100):
            after(comm, 1)
            with comm.span("no cost"):
                after(comm, 2)
        with comm.span("outer", cost=10):
            with comm.span("free"):
                pass
        return comm.now()

    run = simulate(program, 1, cluster=SLOW)
    assert run.values == [13.0]
    assert spans(run, 0) == [
        ("work", 0.0, 1.0), ("step", 0.0, 3.0), ("no cost", 1.0, 3.0), ("work", 1.0, 3.0), ("free", 3.0, 3.0),
        ("outer", 3.0, 13.0),
    ]  # fmt: skip


def test_a_cost_is_the_roofline_of_the_ranks_device():
    def program(comm, cost):
        with comm.span("forward", cost=cost):
            pass
        return comm.now()

    a100, v100 = device("A100"), device("V100")
    work = Cost(flops=1e12, bytes=1e9)  # by arithmetic on both
    assert simulate(program, 1, work, cluster="1xA100").values == [1e12 / a100.rate()]
    assert simulate(program, 1, work, cluster="1xV100").values == [1e12 / v100.rate()]
    assert simulate(program, 1, Cost(bytes=1e9)).values == [1e9 / a100.memory_bandwidth]
    assert simulate(program, 1, work, cluster=Cluster.uniform(SLOW, "V100")).values == [1e12 / v100.rate()]


def test_half_the_speed_takes_twice_as_long_for_costs_and_no_longer_for_messages():
    def program(comm):
        after(comm, 3)
        done = comm.now()
        comm.exchange([(one(), 1 - comm.rank)], [(one(), 1 - comm.rank)])
        return done, comm.now()

    assert simulate(program, 2, cluster=SLOW, speed={1: 0.5}).values == [(3.0, 8.0), (6.0, 8.0)]


@pytest.mark.parametrize("bad", [-1, float("nan"), float("inf"), True, "1 s"])
def test_a_cost_that_is_none_is_refused(bad):
    def program(comm, cost):
        try:
            with comm.span("forward", cost=cost):
                pass
        except ValueError as error:
            return str(error)

    assert "number of seconds of at least 0" in simulate(program, 1, bad).values[0]


def test_a_kind_of_span_that_does_not_exist_is_refused():
    def program(comm):
        with pytest.raises(ValueError, match="compute, collective, send, recv, wait, other.*'forward'"):
            comm.span("x", kind="forward")

    simulate(program, 1)


# ------------------------------------------------------------------------------------------ the whole


def traffic_jam(comm):
    """Everything at once: any-source, ties, collectives beside messages, unequal work, random numbers."""
    generator_of_work = torch.rand(5).tolist()
    handles = [comm.all_reduce(torch.rand(33), async_op=True) for _ in range(2)]
    for cost in generator_of_work:
        with comm.span("work", cost=cost * 1e-5):
            pass
        comm.exchange([(torch.rand(7), (comm.rank + 1) % comm.size)], [(torch.rand(7), (comm.rank - 1) % comm.size)])
    if comm.rank == 0:
        order = [comm.recv(torch.zeros(3), None) for _ in range(comm.size - 1)]
    else:
        comm.send(torch.rand(3), 0)
        order = None
    half = comm.split(comm.rank % 2, -comm.rank)
    total = half.all_reduce(torch.rand(4))
    return [handle.wait().tolist() for handle in handles], order, total.tolist(), comm.now()


def test_the_same_inputs_give_the_same_trace_bit_for_bit():
    first = simulate(traffic_jam, 6, seed=3)
    with torch.no_grad():
        for _ in range(3):
            again = simulate(traffic_jam, 6, seed=3)
            assert again.trace == first.trace
            assert again.values == first.values
            assert [t.sent_to for t in again.traffic] == [t.sent_to for t in first.traffic]
    assert simulate(traffic_jam, 6, seed=4).values != first.values


def test_the_order_does_not_depend_on_how_fast_threads_really_are():
    def program(comm, lazy):
        for _ in range(3):
            if comm.rank == lazy:
                time.sleep(0.02)
            after(comm, 1 + comm.rank * 0.25)
            comm.all_reduce(one())
            comm.barrier()
        return comm.recv(one(), None) if comm.rank == 0 else comm.send(one(), 0) if comm.rank == 2 else None

    traces = [simulate(program, 4, lazy, cluster=SLOW).trace for lazy in (None, 0, 3)]
    assert traces[0] == traces[1] == traces[2]


@pytest.mark.stalls
def test_a_ring_all_reduce_over_64_ranks_is_8064_messages():
    def program(comm):
        return comm.all_reduce(torch.full((64,), float(comm.rank)))[0].item()

    begun = time.perf_counter()
    run = simulate(program, 64, cluster="8xA100 x 8")
    seconds = time.perf_counter() - begun
    assert len(run.trace.messages) == 64 * 2 * 63 == 8064
    assert run.values == [sum(range(64))] * 64
    assert seconds < 10, "bench/simulate.py measures it; this bound only catches another order"


def test_one_rank_needs_nobody():
    def program(comm):
        x = one(4)
        comm.all_reduce(x)
        comm.barrier()
        return x.item(), comm.broadcast(x).item(), comm.now()

    assert simulate(program, 1, cluster=SLOW).values == [(4.0, 4.0, 0.0)]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"ranks": 0}, "ranks must be an integer of at least 1, not 0"),
        ({"ranks": 2.0}, "ranks must be an integer"),
        ({"ranks": 2, "timeout": 0}, "timeout must be a number of seconds above 0"),
        ({"ranks": 2, "speed": {2: 1.0}}, "speed is given for rank 2, but the ranks are 0 to 1"),
        ({"ranks": 2, "speed": {1: 0}}, "speed of rank 1 must be a number above 0"),
        ({"ranks": 9, "cluster": "4xV100 x 2"}, "9 ranks need 9 devices.*at least 3 nodes"),
        ({"ranks": 2, "cluster": "fast"}, "8xA100 x 4"),
        ({"ranks": 2, "seed": -1}, "seed must be an integer of at least 0"),
    ],
)
def test_arguments_that_make_no_sense_get_a_sentence(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        simulate(lambda comm: None, **arguments)


def test_a_cluster_made_by_hand():
    made = Cluster(device("T4"), per_node=2, within=FREE, between=SLOW)
    assert cluster(made) is made

    def program(comm):
        if comm.rank == 1:
            comm.send(one(), 0)
            comm.send(one(), 2)
        elif comm.rank in (0, 2):
            comm.recv(one(), 1)
        return comm.now()

    assert simulate(program, 3, cluster=made).values == [0.0, 2.0, 2.0]


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="threads cannot be kept on a core here")
def test_ranks_share_a_core_and_the_caller_keeps_all_of_its_own():
    before = os.sched_getaffinity(0)
    cores = simulate(lambda comm: os.sched_getaffinity(0), 3).values
    assert len(cores[0]) == 1 and cores[0] <= before and cores == [cores[0]] * 3
    assert os.sched_getaffinity(0) == before
