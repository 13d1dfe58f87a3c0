"""ZeRO equals one process with the whole batch, holds what its formula says, and sends what its formula says."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn
from toy_models import TOYS, copied, shards, train_alone

from lockstep.parallel import SyncBatchNorm2d, ZeRO
from lockstep.world import RankError, launch, simulate


def plain_sgd(parameters):
    """No gradient and a gradient of zero are the same to it, as padding and unused parameters need."""
    return torch.optim.SGD(parameters, lr=0.1)


NAMES = (
    "one bucket", "a bucket each", "channels last", "tied", "frozen", "batch norm", "batch norm over all", "checkpoint",
    "outputs", "two dtypes",
)  # fmt: skip
CASES = {name: TOYS[name] for name in NAMES}
CASES["unused"] = replace(TOYS["unused"], optimizer=plain_sgd)
OF_SOME_RANKS = replace(TOYS["used by some ranks"], optimizer=plain_sgd)  # in stage 3 ranks must run the same modules


def train_sharded(comm, toy, stage):
    """(first state, last state) of this rank."""
    model = toy.build().double()
    if toy.sync_norm:
        SyncBatchNorm2d.convert(model, comm)
    unit_bytes = toy.settings.get("bucket_bytes", 25 * 2**20)
    zero = ZeRO(model, toy.optimizer, comm, stage, unit_bytes)
    start = zero.full_state_dict()
    mine = [shards(comm.size, step)[comm.rank] for step in range(3)]
    while mine and not len(mine[-1][1]):
        mine.pop()
    for images, labels in zero.batches(mine):
        toy.loss(zero(images, rank=comm.rank), labels).backward()
        zero.step()
    return start, zero.full_state_dict()


def train_all(comm):
    """By (stage, name)."""
    found = {(stage, name): train_sharded(comm, toy, stage) for name, toy in CASES.items() for stage in (1, 2, 3)}
    return found | {(stage, "some ranks"): train_sharded(comm, OF_SOME_RANKS, stage) for stage in (1, 2)}


@pytest.mark.parametrize(("world", "p"), [(simulate, 1), (simulate, 3), (simulate, 4), (launch, 2)])
def test_it_trains_as_one_process_does(world, p):
    values = world(train_all, p).values
    for key in values[0]:
        toy = CASES.get(key[1], OF_SOME_RANKS)
        starts, ends = zip(*(value[key] for value in values), strict=True)
        for mine in ends[1:]:
            assert all(torch.equal(mine[name], ends[0][name]) for name in mine), f"{key}: ranks have drifted"
        state, _ = train_alone(toy, p, starts[0])
        for name in state:
            close = torch.allclose(ends[0][name], state[name], rtol=toy.tolerance, atol=toy.tolerance)
            assert close, f"{key}: {name}"
        assert any(not torch.equal(starts[0][name], ends[0][name]) for name in state)


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(31, 31) for _ in range(6)))  # 992 parameters each, 31 x 32


def one_step(comm, stage, unit_bytes):
    zero = ZeRO(mlp(), partial(torch.optim.Adam, lr=0.1), comm, stage, unit_bytes)
    zero(torch.ones(2, 31)).square().sum().backward()
    zero.step()
    sent, messages = comm.traffic.bytes_sent, comm.traffic.messages_sent
    zero(torch.ones(2, 31)).square().sum().backward()
    held = zero.bytes()
    zero.step()
    return held, comm.traffic.bytes_sent - sent, comm.traffic.messages_sent - messages


@pytest.mark.parametrize("ranks", [2, 4, 5])
def test_bytes_held_and_sent_are_those_of_the_formula(ranks):
    unit = 4 * 992
    padded = 4 * ranks * -(-992 // ranks)
    for stage in (1, 2, 3):
        for held, sent, messages in simulate(one_step, ranks, stage, unit).values:
            whole, shard = 6 * padded, 6 * padded // ranks
            # Adam keeps two numbers for each parameter, and one count of steps for each unit.
            assert held["optimizer"] == 2 * shard + 6 * 4
            assert held["parameters"] == (shard if stage == 3 else whole)
            assert held["gradients"] == (shard if stage > 1 else whole)
            rounds = 3 if stage == 3 else 2
            assert sent == rounds * whole * (ranks - 1) // ranks and messages == rounds * 6 * (ranks - 1)


def peak_of_step(comm, stage, precision="fp32"):
    """The most bytes of parameters and gradients at once, counted as storages that live."""
    zero = ZeRO(mlp(), plain_sgd, comm, stage, 992 * (4 if precision == "fp32" else 2), precision)
    most = 0

    def look(*_):
        nonlocal most
        live = [t for unit in zero.units for t in (unit.flat, unit.gradient, unit.shard.data, unit.shard.grad)]
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in live if t is not None}
        most = max(most, sum(storages.values()))

    for layer in zero.module:
        layer.register_forward_hook(look)
        layer.register_full_backward_hook(look)
    for _ in range(2):
        zero(torch.ones(2, 31, requires_grad=True)).sum().backward()
        zero.step()
    return most


def test_stage_3_never_holds_more_than_a_few_units():
    unit = 4 * 992
    peaks = [simulate(peak_of_step, 4, stage).values[0] for stage in (1, 2, 3)]
    assert peaks[0] > peaks[1] > peaks[2]
    # Shards and their gradients, two whole units (one computes, one comes), and three units' gradients at the most.
    most = 2 * 6 * unit // 4 + 2 * unit + 3 * unit
    assert peaks[2] <= most
    assert simulate(peak_of_step, 4, 3, "bf16").values[0] <= most // 2


def test_the_norm_of_all_gradients_is_clipped_by_all_ranks_alike():
    def program(comm, stage):
        zero = ZeRO(mlp().double(), plain_sgd, comm, stage, 3000)
        zero(torch.ones(2, 31, dtype=torch.float64)).square().sum().backward()
        norm = zero.clip_grad_norm_(0.5)
        zero.step()
        return norm, zero.full_state_dict()

    model = mlp().double()
    model(torch.ones(2, 31, dtype=torch.float64)).square().sum().backward()
    expected = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    plain_sgd(model.parameters()).step()
    for stage in (1, 2, 3):
        for norm, state in simulate(program, 3, stage).values:
            torch.testing.assert_close(norm, expected)
            for name, tensor in copied(model.state_dict()).items():
                torch.testing.assert_close(state[name], tensor, rtol=1e-9, atol=1e-12)


def test_gradients_of_two_backward_passes_add_up():
    def program(comm, stage):
        zero = ZeRO(mlp().double(), plain_sgd, comm, stage, 3000)
        for x in (1.0, 2.0):
            zero(torch.full((1, 31), x, dtype=torch.float64)).square().sum().backward()
        zero.step()
        return zero.full_state_dict()["0.weight"]

    model = mlp().double()
    for x in (1.0, 2.0):
        model(torch.full((1, 31), x, dtype=torch.float64)).square().sum().backward()
    plain_sgd(model.parameters()).step()
    for stage in (1, 2, 3):
        torch.testing.assert_close(simulate(program, 2, stage).values[0], model[0].weight.detach())


def test_evaluation_and_a_backward_that_fails_leave_it_whole():
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise ArithmeticError("half-way")

    def program(comm, stage):
        model = mlp()
        zero = ZeRO(model, plain_sgd, comm, stage, 3000)
        with torch.no_grad():
            before = zero(torch.ones(1, 31))
        fails = zero(Fails.apply(torch.ones(1, 31, requires_grad=True)))
        try:
            fails.sum().backward()
        except ArithmeticError:
            pass
        with torch.no_grad():
            return torch.equal(before, zero(torch.ones(1, 31)))

    assert all(simulate(program, 2, stage).values == [True, True] for stage in (1, 2, 3))


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda comm: ZeRO(mlp(), plain_sgd, comm, 4), "stage is 4"),
        (lambda comm: ZeRO(mlp(), plain_sgd, comm, 3, 0), "unit_bytes is 0"),
        (lambda comm: ZeRO(mlp(), plain_sgd, comm, 1, 0), "bucket_bytes is 0"),
        (lambda comm: ZeRO(nn.ReLU(), plain_sgd, comm, 2), "no parameter to train"),
        (lambda comm: ZeRO(nn.Linear(2, 2 + comm.rank), plain_sgd, comm, 2), "The ranks' models differ"),
    ],
)
def test_what_cannot_be_shared_out_is_a_sentence(build, says):
    with pytest.raises(RankError, match=says):
        simulate(lambda comm: build(comm) and None, 2)
