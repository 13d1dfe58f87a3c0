"""Asynchronous collectives and costs in layers: communication beside computation, worked out by hand.

Latency 1 s, 4 bytes a second: one float32 takes 2 s, so an all-reduce of [2] over two ranks takes 4 s
(two exchanges of one element).
"""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

from lockstep.cost import Cost, LayerCost
from lockstep.hardware import Link, device
from lockstep.trace import overlap_share
from lockstep.world.run import RankError
from lockstep.world.simulate import simulate

SLOW = Link(latency=1.0, bandwidth=4.0)


def work(comm, seconds):
    with comm.span("work", cost=seconds):
        pass


def shown(run, rank):
    return [(s.stream, s.name, s.start, s.end) for s in run.trace.spans if s.rank == rank]


def test_an_asynchronous_all_reduce_runs_beside_the_ranks_work():
    def program(comm):
        x = torch.full((2,), comm.rank + 1.0)
        handle = comm.all_reduce(x, async_op=True)
        launched, before = comm.now(), x.tolist()
        work(comm, 3)
        after = handle.wait()
        return launched, before, after is x, x.tolist(), comm.now()

    run = simulate(program, 2, cluster=SLOW)
    # 4 s beside 3 s of work: the wait lasts 1 s.
    assert run.values == [(0.0, [1.0, 1.0], True, [3.0, 3.0], 4.0), (0.0, [2.0, 2.0], True, [3.0, 3.0], 4.0)]
    name = "wait for all_reduce(sum) of float32[2], its 1st collective"
    assert shown(run, 0) == [(0, "work", 0.0, 3.0), (1, "all_reduce", 0.0, 4.0), (0, name, 3.0, 4.0)]
    assert overlap_share(run.trace) == 0.75


def test_asynchronous_collectives_run_one_after_the_other_in_the_order_of_their_launch():
    def program(comm):
        handles = []
        for _ in range(2):
            work(comm, 1)
            handles.append(comm.all_reduce(torch.ones(2), async_op=True))
        handles[1].wait()  # the later one first
        done = comm.now()
        handles[0].wait()
        return done, comm.now()

    run = simulate(program, 2, cluster=SLOW)
    # Launched at 1 and 2; 1-5, then 5-9.
    assert run.values == [(9.0, 9.0)] * 2
    assert [(s.start, s.end) for s in run.trace.spans if s.rank == 0 and s.stream == 1] == [(1.0, 5.0), (5.0, 9.0)]


def test_a_collective_that_ended_long_ago_costs_nothing_to_wait_for():
    def program(comm):
        handle = comm.all_reduce(torch.ones(2), async_op=True)
        work(comm, 50)
        return handle.wait().tolist(), comm.now()

    assert simulate(program, 2, cluster=SLOW).values == [([2.0, 2.0], 50.0)] * 2


def test_both_streams_share_the_ports():
    def program(comm):
        handle = comm.all_reduce(torch.ones(2), async_op=True)
        comm.exchange([(torch.ones(1), 1 - comm.rank)], [(torch.ones(1), 1 - comm.rank)])
        own = comm.now()
        handle.wait()
        return own, comm.now()

    # The exchange is called at 0 as well, and the rank's own stream goes first: 0-2; the all-reduce 2-4 and 4-6.
    assert simulate(program, 2, cluster=SLOW).values == [(2.0, 6.0)] * 2


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_asynchronous_collective_gives_what_the_synchronous_one_does(ranks):
    def program(comm, later):
        def run(call, *args, **kwargs):
            return call(*args, async_op=True, **kwargs).wait() if later else call(*args, **kwargs)

        x = torch.arange(6.0) + comm.rank
        sizes = [2, 3, 1][: comm.size]
        return [
            part.tolist()
            for part in (
                run(comm.all_reduce, x.clone(), op="max"),
                run(comm.reduce_scatter, x.clone(), op="mean"),
                run(comm.all_gather, x[: sizes[comm.rank]], sizes=sizes),
                run(comm.all_to_all, torch.arange(12.0).view(6, 2) * comm.rank),
                run(comm.broadcast, x.clone(), src=comm.size - 1),
                run(comm.reduce, x.clone(), dst=0),
            )
        ]

    assert simulate(program, ranks, True).values == simulate(program, ranks, False).values


def test_what_nobody_waits_for_is_named_with_its_line():
    # It passed here, where it came to its end by itself; in processes torch dropped the message, and the others hung.
    def program(comm):
        comm.all_reduce(torch.ones(2), async_op=True)  # left behind
        return comm.now()

    with pytest.raises(RankError, match=r"without waiting for all_reduce\(sum\) of float32\[2\]") as caught:
        simulate(program, 2, cluster=SLOW)
    assert "# left behind" in str(caught.value)


def test_an_asynchronous_collective_that_fails_names_the_line_that_launched_it():
    def program(comm):
        comm.all_reduce(torch.full((2,), 2**31 - 1, dtype=torch.int32), async_op=True)  # launched here
        work(comm, 100)

    with pytest.raises(RankError, match="does not fit int32") as caught:
        simulate(program, 2, cluster=SLOW)
    assert "# launched here" in str(caught.value)


# ------------------------------------------------------------------------------------------------- charge


def layers():
    # y = b(a(x)), two numbers: each layer's gradient is one float32.
    return nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))


PROFILE = {"0": LayerCost(forward=1, backward=3), "1": LayerCost(forward=2, backward=5)}


def test_charge_spreads_cost_over_layers_forward_and_backward():
    def program(comm):
        model = layers()
        charge = comm.charge(model, PROFILE)
        loss = model(torch.ones(1, 1)).sum()
        forward = comm.now()
        loss.backward()
        backward = comm.now()
        charge.remove()
        model(torch.ones(1, 1)).sum().backward()
        return forward, backward, comm.now()

    run = simulate(program, 1)
    assert run.values == [(3.0, 11.0, 11.0)]
    assert shown(run, 0) == [
        (0, "forward 0", 0.0, 1.0), (0, "forward 1", 1.0, 3.0), (0, "backward 1", 3.0, 8.0), (0, "backward 0", 8.0, 11.0)
    ]  # fmt: skip


def test_communication_launched_inside_backward_overlaps_with_the_layers_before():
    def program(comm):
        model, handles, launched = layers(), [], []

        def reduce(parameter):
            launched.append(comm.now())
            handles.append(comm.all_reduce(parameter.grad, async_op=True))

        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(reduce)
        comm.charge(model, PROFILE)
        model(torch.full((1, 1), comm.rank + 1.0)).sum().backward()
        for handle in handles:
            handle.wait()
        return launched, comm.now(), [p.grad.item() for p in model.parameters()]

    run = simulate(program, 2, cluster=SLOW)
    # Forward 0-3. Layer 1: backward 3-8, all-reduce from 8. Layer 0: backward 8-11, all-reduce when the first is done.
    # Over two ranks [1] is two exchanges, each of one float32 one way: 4 s. So 8-12 and 12-16.
    assert [value[:2] for value in run.values] == [([8.0, 11.0], 16.0)] * 2
    assert run.values[0][2] == run.values[1][2]
    beside = [(s.start, s.end) for s in run.trace.spans if s.rank == 0 and s.stream == 1]
    assert beside == [(8.0, 12.0), (12.0, 16.0)]
    own = [(s.name, s.start, s.end) for s in run.trace.spans if s.rank == 0 and s.name.startswith("backward")]
    assert own == [("backward 1", 3.0, 8.0), ("backward 0", 8.0, 11.0)]
    assert overlap_share(run.trace) == pytest.approx(3 / 8)


def test_blocking_communication_inside_backward_works_and_adds_up():
    def program(comm):
        def reduce(parameter):
            comm.all_reduce(parameter.grad, op="mean")

        model = layers()
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(reduce)
        comm.charge(model, PROFILE)
        model(torch.full((1, 1), 1.0)).sum().backward()
        return comm.now()

    # 3 + (5 + 4) + (3 + 4)
    assert simulate(program, 2, cluster=SLOW).values == [19.0, 19.0]


def test_charge_counts_towards_an_outer_span_instead_of_its_own_cost():
    def program(comm):
        model = layers()
        comm.charge(model, PROFILE)
        with comm.span("forward", cost=1000):
            model(torch.ones(1, 1))
        return comm.now()

    assert simulate(program, 1).values == [3.0]


def test_charge_takes_roofline_costs_and_the_ranks_speed():
    def program(comm):
        model = layers()
        comm.charge(model, {"0": LayerCost(Cost(flops=1e12), Cost(flops=2e12))})
        model(torch.ones(1, 1)).sum().backward()
        return comm.now()

    full, half = simulate(program, 2, cluster="2xT4", speed={1: 0.5}).values
    assert full == pytest.approx(3e12 / device("T4").rate()) and half == pytest.approx(2 * full)


@dataclass
class Outputs:
    """As many libraries' models return; a layer with such an output was not charged for backward."""

    parts: dict


class Odd(nn.Module):
    """Outputs of every shape: a dataclass, a dictionary, a tuple, the input itself, an in-place change, several users."""

    def __init__(self):
        super().__init__()
        self.pair, self.same, self.inplace, self.frozen = Pair(), nn.Identity(), nn.ReLU(inplace=True), nn.Linear(1, 1)
        self.frozen.requires_grad_(False)

    def forward(self, x):
        still = self.frozen(x)
        parts = self.pair(x).parts
        y = self.same(parts["a"]) + parts["more"][0]
        return self.inplace(y * 2) + still


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return Outputs({"a": x * self.weight, "more": (x + self.weight, 3)})


def test_layers_of_any_output_are_charged_once_each_way_and_without_gradients_only_forward():
    def program(comm, model):
        cost = LayerCost(1, 10)
        comm.charge(model, dict.fromkeys(["pair", "same", "inplace", "frozen"], cost))
        model(torch.ones(1, 1)).sum().backward()
        trained = comm.now()
        with torch.no_grad():
            model(torch.ones(1, 1))
        return trained, comm.now()

    # Four forward, three backward (the frozen layer's input needs none); then four forward.
    assert simulate(program, 1, Odd()).values == [(4 + 30, 4 + 30 + 4)]


def test_a_profile_that_does_not_fit_the_model_is_refused():
    with pytest.raises(RankError, match="'conv9'.*modules are"):
        simulate(lambda comm: comm.charge(layers(), {"conv9": LayerCost(1, 2)}), 1)
    with pytest.raises(RankError, match="give LayerCost"):
        simulate(lambda comm: comm.charge(layers(), {"0": 3.0}), 1)
    with pytest.raises(RankError, match="number of seconds"):
        simulate(lambda comm: comm.charge(layers(), {"0": LayerCost("long")}) and None, 1)
