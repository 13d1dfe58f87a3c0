"""The parameter server: what it computes against one process, what it counts, and that it lets everyone go."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lockstep.comm import CommunicationError
from lockstep.hardware import Link
from lockstep.parallel import ParameterServer
from lockstep.parallel.packet import PacketLayout
from lockstep.world import DeadlockError, RankError, launch
from lockstep.world import simulate as simulate_quickly

simulate = partial(simulate_quickly, timeout=60)  # the first optimizer imports for seconds
QUICK = Link(1e-6, 1e12)  # messages take no time beside steps of 10 ms


class Toy(nn.Module):
    """Tied, frozen, unused and rarely used parameters, of two dtypes, and a buffer."""

    def __init__(self):
        super().__init__()
        self.mix, self.again = nn.Linear(6, 6).double(), nn.Linear(6, 6, bias=False).double()
        self.again.weight = self.mix.weight
        self.frozen = nn.Linear(6, 6).double().requires_grad_(False)
        self.unused = nn.Linear(3, 3)
        self.rare = nn.Linear(6, 3)
        self.out = nn.Linear(6, 3).double()
        self.register_buffer("scale", torch.rand(6, dtype=torch.float64))

    def forward(self, x):
        h = torch.tanh(self.again(torch.tanh(self.mix(x)))) + self.frozen(x) * self.scale
        logits = self.out(h)
        rarely = x[:, 0] > 1
        return (
            logits.index_add(0, rarely.nonzero()[:, 0], self.rare(h[rarely].float()).double())
            if rarely.any()
            else logits
        )


def shard_of(rank, step):
    """This rank's images: two to four, and none at all for rank 2's third step."""
    generator = torch.Generator().manual_seed(100 * rank + step)
    count = 0 if (rank, step) == (2, 2) else 2 + (rank + step) % 3
    return torch.randn(count, 6, generator=generator, dtype=torch.float64), torch.randint(
        3, (count,), generator=generator
    )


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)


def run_toy(comm, staleness, steps=5, cost=0.01):
    """Train the toy; its state before and after, and the server."""
    toy = Toy()  # another one on every rank
    before = {name: value.clone() for name, value in toy.state_dict().items()}
    server = ParameterServer(toy, sgd, comm, staleness)
    with server:
        for step in range(steps):
            x, y = shard_of(comm.rank, step)
            with comm.span("step", cost=cost):
                if len(x):
                    F.cross_entropy(toy(x), y).backward()
            server.step(len(x))
    return before, toy.state_dict(), server


def toy_program(comm, staleness, steps=5):
    before, after, server = run_toy(comm, staleness, steps)
    return before, after, server.staleness, server.leads


def gradients_of(toy, rank, step):
    toy.zero_grad(set_to_none=True)
    x, y = shard_of(rank, step)
    if len(x):
        F.cross_entropy(toy(x), y).backward()
    return [parameter.grad for parameter in toy.parameters()], len(x)


def plain_synchronous_loop(state, world, steps=5):
    """The same in one process, without our code: gradients of the shards one after the other, added up in rank order."""
    toy = Toy()
    toy.load_state_dict(state)
    optimizer = sgd(toy.parameters())
    for step in range(steps):
        parts = [gradients_of(toy, rank, step) for rank in range(world)]
        for i, parameter in enumerate(toy.parameters()):
            terms = [gradients[i] * count for gradients, count in parts if gradients[i] is not None]
            parameter.grad = None
            for term in terms:
                parameter.grad = term if parameter.grad is None else parameter.grad + term
            if terms:
                parameter.grad = parameter.grad / sum(count for _, count in parts)
        optimizer.step()
    return toy.state_dict()


def delayed_loop(state, world, steps=5):
    """Workers in turn, each with a gradient from the weights it was given after its last update."""
    toy = Toy()
    toy.load_state_dict(state)
    optimizer = sgd(toy.parameters())
    given = [{name: value.clone() for name, value in state.items()} for _ in range(world)]
    for step in range(steps):
        for rank in range(world):
            worker = Toy()
            worker.load_state_dict(given[rank])
            gradients, count = gradients_of(worker, rank, step)
            for parameter, gradient in zip(toy.parameters(), gradients, strict=True):
                parameter.grad = gradient
            if count:
                optimizer.step()
            given[rank] = {name: value.clone() for name, value in toy.state_dict().items()}
    return toy.state_dict()


def equal(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_synchronous_is_the_plain_loop_bit_for_bit_whatever_the_speeds(world):
    run = simulate(toy_program, world, 0, speed={world - 1: 0.3})
    expected = plain_synchronous_loop(run.values[0][0], world)
    for before, after, staleness, leads in run.values:
        assert before is run.values[0][0] or not torch.equal(before["out.weight"], run.values[0][0]["out.weight"])
        assert equal(after, expected)
        assert staleness == leads == [0] * 5


@pytest.mark.parametrize("staleness", [1, None])
def test_equal_workers_are_the_delayed_loop_bit_for_bit(staleness):
    """In both they take turns, so that every gradient after the first is world - 1 updates late."""
    run = simulate(toy_program, 3, staleness, cluster=QUICK)
    expected = delayed_loop(run.values[0][0], 3)
    assert all(equal(after, expected) for _, after, _, _ in run.values)


def linear_program(comm, staleness, steps):
    """Steps of 10 ms; when this rank took its last one, and what was counted."""
    model = nn.Linear(2, 2)
    server = ParameterServer(model, lambda p: torch.optim.SGD(p, lr=0.01), comm, staleness)
    begun = comm.now()
    with server:
        for _ in range(steps):
            with comm.span("step", cost=0.01):
                model(torch.ones(1, 2)).sum().backward()
            server.step()
        seconds = comm.now() - begun
    return seconds, server.staleness, server.leads, server.optimizer is not None


@pytest.mark.parametrize("world", [2, 3, 8])
def test_asynchronous_equal_workers_are_stale_by_one_less_than_the_world(world):
    """Rank r's first gradient is r updates late, all others world - 1: the mean comes out of that."""
    values = simulate(linear_program, world, None, 10, cluster=QUICK).values
    assert [staleness for _, staleness, _, _ in values] == [[rank] + [world - 1] * 9 for rank in range(world)]
    assert [has_optimizer for *_, has_optimizer in values] == [True] + [False] * (world - 1)


def test_the_bound_holds_and_buys_time_with_staleness():
    """Rank 1 takes twice as long. The others wait for it in each round, at most 3 steps ahead, or never."""
    seconds, leads, worst = {}, {}, {}
    for staleness in (0, 3, None):
        values = simulate(linear_program, 3, staleness, 20, cluster=QUICK, speed={1: 0.5}).values
        seconds[staleness] = values[2][0]
        leads[staleness] = max(max(lead) for _, _, lead, _ in values)
        worst[staleness] = max(max(stale) for _, stale, _, _ in values)
    assert leads[0] == 0 and leads[3] == 3 and leads[None] >= 10
    assert seconds[0] == pytest.approx(0.4, rel=1e-3) and seconds[None] == pytest.approx(0.2, rel=1e-3)
    assert seconds[None] < seconds[3] < seconds[0]
    assert worst[0] == 0 < worst[None]


def test_a_slow_rank_0_serves_the_others_while_it_computes():
    """Were they served between its own steps only, they would take as long as it does."""
    values = simulate(linear_program, 3, None, 10, cluster=QUICK, speed={0: 0.1}).values
    assert values[0][0] == pytest.approx(1, rel=1e-3) and values[1][0] == pytest.approx(0.1, rel=1e-3)


def test_traffic_is_one_request_and_one_reply_a_step():
    run = simulate(linear_program, 3, None, 10)
    moved = [message.bytes for message in run.trace.messages if 1 in (message.src, message.dst)]
    request, reply = 48 + 6 * 4, 32 + 6 * 4  # three numbers, and for requests one more a parameter, to 16 bytes
    assert moved.count(request) == moved.count(reply) == 11  # ten steps, and one to leave together


def leaving_program(comm, staleness):
    """Rank r has 2 r + 1 steps, four times; rank 1 breaks off the second time, rank 0 the third; how far all came."""
    model = nn.Linear(2, 2)
    server = ParameterServer(model, lambda p: torch.optim.SGD(p, lr=0.01), comm, staleness)
    broke, ends = [], []
    for turn in range(4):
        try:
            with server:
                for step in range(2 * comm.rank + 1):
                    if (turn, step, comm.rank) in ((1, 1, 1), (2, 0, 0)):
                        raise KeyError("broken data")
                    model(torch.ones(1, 2)).sum().backward()
                    server.step()
        except KeyError:
            broke.append(turn)
        ends.append(model.weight.detach().clone())
    return broke, ends, len(server.staleness)


def check_leaving(values):
    assert [broke for broke, _, _ in values] == [[2], [1], []]
    assert [steps for _, _, steps in values] == [3, 10, 20]
    for turn, together in enumerate(([0, 1, 2], [0, 2], [1, 2], [0, 1, 2])):
        assert all(torch.equal(values[rank][1][turn], values[2][1][turn]) for rank in together)


@pytest.mark.parametrize("staleness", [0, 1, None])
def test_whoever_finishes_early_or_breaks_off_holds_up_nobody(staleness):
    check_leaving(simulate(leaving_program, 3, staleness).values)


def test_the_others_train_on_when_rank_0s_own_work_breaks():
    def program(comm):
        model = nn.Linear(2, 2)
        server = ParameterServer(model, lambda p: torch.optim.SGD(p, lr=0.01), comm, 0)
        try:
            with server:
                for step in range(5):
                    if (comm.rank, step) == (0, 2):
                        raise KeyError("broken data")
                    model(torch.ones(1, 2)).sum().backward()
                    server.step()
        except KeyError:
            pass
        return len(server.staleness)

    assert simulate(program, 3).values == [2, 5, 5]


def in_processes(comm):
    return toy_program(comm, 0), toy_program(comm, None), toy_program(comm, 1), leaving_program(comm, 1)


@pytest.mark.timeout(60)
def test_in_real_processes():
    values = launch(in_processes, 3).values
    synchronous, asynchronous, bounded, leaving = zip(*values, strict=True)
    assert all(equal(after, plain_synchronous_loop(synchronous[0][0], 3)) for _, after, _, _ in synchronous)
    for results in (asynchronous, bounded):
        assert all(equal(after, results[0][1]) and len(staleness) == 5 for _, after, staleness, _ in results)
        assert not torch.equal(results[0][1]["out.weight"], results[0][0]["out.weight"])
    assert max(max(leads) for _, _, _, leads in bounded) <= 1
    check_leaving(leaving)


def test_a_request_is_one_buffer_of_any_dtypes():
    tensors = [torch.zeros(3, dtype=torch.bfloat16), torch.zeros(2, 2, dtype=torch.complex128), torch.zeros(())]
    layout = PacketLayout(3, [*tensors, torch.zeros(0), torch.zeros(1, dtype=torch.float64)])
    packet = layout.packet()
    assert packet.header.tolist() == [0, 0, 0] and len(packet.buffer) == layout.bytes == 32 + 6 + 64 + 4 + 8
    for number, part in enumerate(packet.parts):
        part.fill_(number + 1)
    assert [part.flatten()[:1].tolist() for part in packet.parts] == [[1], [2], [3], [], [5]]
    assert packet.header.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"staleness": -1}, ValueError, "staleness is -1; it is 0"),
        ({"staleness": True}, ValueError, "staleness is True"),
        ({"staleness": 1.5}, ValueError, "staleness is 1.5"),
        ({"model": nn.Linear(1, 1).requires_grad_(False)}, ValueError, "nothing to train"),
        ({"step": True}, CommunicationError, "outside the server's block"),
        ({"samples": -2}, ValueError, "samples is -2"),
    ],
)
def test_what_cannot_be_is_answered_with_a_sentence(arguments, error, says):
    def program(comm, model=None, staleness=0, step=False, samples=1):
        server = ParameterServer(model or nn.Linear(1, 1), sgd, comm, staleness)
        if step:
            server.step()
        with server:
            server.step(samples)

    with pytest.raises(RankError, match=says) as raised:
        simulate(program, 2, **arguments)
    assert isinstance(raised.value.__cause__, error)


def test_models_that_differ_and_a_rank_that_stays_away():
    def differ(comm):
        ParameterServer(nn.Linear(2, 2 + comm.rank), sgd, comm)

    with pytest.raises(RankError, match="models differ"):
        simulate(differ, 2)

    def program(comm, enters):
        server = ParameterServer(nn.Linear(2, 2), sgd, comm)
        if comm.rank != 1 or enters:
            with server:
                if comm.rank == 1:
                    comm.recv(torch.zeros(1), 2)
                server.step()

    with pytest.raises(DeadlockError, match=r"barrier.*which rank 1 finished without calling"):
        simulate(program, 3, enters=False)
    with pytest.raises(DeadlockError, match=r"what runs beside it; and beside it in recv of uint8\[.*\] from any rank"):
        simulate(program, 3, enters=True)
