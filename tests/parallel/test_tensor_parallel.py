"""Layers whose neurons, channels or rows are shared out: the oracle is the same layers in one process, float64."""

import pytest
import torch
from torch import nn

from lockstep.parallel import (
    ChannelParallelConv2d,
    ColumnParallelLinear,
    InputChannelParallelConv2d,
    RowParallel2d,
    RowParallelLinear,
    SyncBatchNorm2d,
    own_batch_norm,
)
from lockstep.world import RankError, launch, simulate

WORLDS = [(simulate, 1), (simulate, 2), (simulate, 3), (simulate, 4), (launch, 3)]
worlds = pytest.mark.parametrize(("world", "ranks"), WORLDS, ids=lambda value: getattr(value, "__name__", value))


def close(mine, whole):
    torch.testing.assert_close(mine, whole, rtol=1e-11, atol=1e-12)


def differ(model, comm):
    """On every rank but 0 other parameters: a layer must take over those of rank 0."""
    if comm.rank:
        with torch.no_grad():
            for tensor in model.state_dict().values():
                tensor.add_(1)
    return model


def run(model, x, weights):
    """(y, gradient of x, gradients of the parameters by name) of the loss sum(y * weights)."""
    x = x.clone().requires_grad_()
    y = model(x)
    (y * weights).sum().backward()
    return y.detach(), x.grad, {name: p.grad for name, p in model.named_parameters()}


def part_of(tensor, comm, dim):
    return tensor.tensor_split(comm.size, dim)[comm.rank]


def mlp():
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(6, 7), nn.GELU(), nn.Linear(7, 5)).double()


@worlds
def test_a_pair_of_linear_layers_equals_one_process_with_one_all_reduce_each_way(world, ranks):
    x, weights = torch.randn(2, 3, 6, dtype=torch.float64), torch.randn(2, 3, 5, dtype=torch.float64)

    def program(comm):
        model = differ(mlp(), comm)
        pair = nn.Sequential(ColumnParallelLinear(model[0], comm), model[1], RowParallelLinear(model[2], comm))
        found = run(pair, x, weights)
        return found, pair[0].whole().state_dict(), pair[2].whole().state_dict()

    done = world(program, ranks)
    whole = mlp()
    y, dx, gradients = run(whole, x, weights)
    for rank, ((own_y, own_dx, own), first, last) in enumerate(done.values):
        close(own_y, y)
        close(own_dx, dx)
        for name, dim in (("0.weight", 0), ("0.bias", 0), ("2.weight", 1)):
            close(own[name], gradients[name].tensor_split(ranks, dim)[rank])
        close(own["2.bias"], gradients["2.bias"])
        for state, layer in ((first, whole[0]), (last, whole[2])):
            assert all(torch.equal(state[name], tensor) for name, tensor in layer.state_dict().items())
    calls = [span.name for span in done.trace.spans if span.rank == 0 and span.kind == "collective"]
    assert calls.count("all_reduce") == 2, calls


@worlds
def test_a_linear_layer_alone_may_give_and_take_whole_tensors(world, ranks):
    x, weights = torch.randn(4, 6, dtype=torch.float64), torch.randn(4, 5, dtype=torch.float64)

    def program(comm):
        model = differ(mlp(), comm)
        first = ColumnParallelLinear(model[0], comm, gather=True)
        last = RowParallelLinear(model[2], comm, split=True)
        return run(nn.Sequential(first, model[1], last), x, weights)[:2]

    y, dx, _ = run(mlp(), x, weights)
    for own_y, own_dx in world(program, ranks).values:
        close(own_y, y)
        close(own_dx, dx)


def cnn():
    torch.manual_seed(3)
    layers = [nn.Conv2d(3, 8, 3, padding=1, dilation=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 5, 3, stride=2)]
    model = nn.Sequential(*layers).double()
    nn.init.normal_(model[1].weight)
    return model


@worlds
def test_channels_equal_one_process(world, ranks):
    x, weights = torch.randn(4, 3, 7, 6, dtype=torch.float64), torch.randn(4, 5, 3, 2, dtype=torch.float64)

    def program(comm):
        model = differ(cnn(), comm)
        first, norm = ChannelParallelConv2d(model[0], comm), own_batch_norm(model[1], comm)
        pair = nn.Sequential(first, norm, model[2], InputChannelParallelConv2d(model[3], comm))
        return run(pair, x, weights), norm.state_dict(), first.whole().state_dict(), pair[3].whole().state_dict()

    whole = cnn()
    y, dx, gradients = run(whole, x, weights)
    for rank, ((own_y, own_dx, own), norm, first, last) in enumerate(world(program, ranks).values):
        close(own_y, y)
        close(own_dx, dx)
        for name, dim in (("0.weight", 0), ("0.bias", 0), ("1.weight", 0), ("1.bias", 0), ("3.weight", 1)):
            close(own[name], gradients[name].tensor_split(ranks, dim)[rank])
        close(own["3.bias"], gradients["3.bias"])
        for name in ("running_mean", "running_var"):
            close(norm[name], getattr(whole[1], name).tensor_split(ranks)[rank])
        for state, layer in ((first, whole[0]), (last, whole[3])):
            assert all(torch.equal(state[name], tensor) for name, tensor in layer.state_dict().items())


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_groups_are_shared_out_whole(ranks):
    torch.manual_seed(5)
    conv = nn.Conv2d(8, 12, 3, groups=4).double()
    x, weights = torch.randn(2, 8, 5, 5, dtype=torch.float64), torch.randn(2, 12, 3, 3, dtype=torch.float64)

    def program(comm):
        layer = ChannelParallelConv2d(conv, comm, gather=True)
        return run(layer, x, weights)[:2], layer.whole().state_dict()

    y, dx, _ = run(conv, x, weights)
    for (own_y, own_dx), state in simulate(program, ranks).values:
        close(own_y, y)
        close(own_dx, dx)
        assert all(torch.equal(state[name], tensor) for name, tensor in conv.state_dict().items())


def by_rows():
    torch.manual_seed(9)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 5, padding=2), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(4, 4, 3, padding=3, dilation=2), nn.Conv2d(4, 3, 3, stride=2, padding=1, bias=False),
    ).double()  # fmt: skip
    nn.init.normal_(model[1].weight)
    return model


@worlds
def test_rows_equal_one_process_with_halos_wider_than_a_share(world, ranks):
    x = torch.randn(2, 2, 15, 9, dtype=torch.float64)
    whole = by_rows()
    weights = torch.randn_like(whole(x))

    def program(comm):
        model, height = differ(by_rows(), comm), x.shape[2]
        for at in (0, 3, 4, 5):
            model[at] = RowParallel2d(model[at], comm, height)
            height = model[at].out_height
        model[1] = SyncBatchNorm2d.convert(by_rows()[1], comm)
        return run(model, part_of(x, comm, 2), part_of(weights, comm, 2))

    whole = by_rows()
    y, dx, gradients = run(whole, x, weights)
    for rank, (own_y, own_dx, own) in enumerate(world(program, ranks).values):
        close(own_y, y.tensor_split(ranks, 2)[rank])
        close(own_dx, dx.tensor_split(ranks, 2)[rank])
        for name in ("0.weight", "0.bias", "4.weight", "4.bias", "5.weight"):
            number, _, kind = name.partition(".")
            close(own[f"{number}.layer.{kind}"], gradients[name])


@pytest.mark.parametrize("seed", range(12))
def test_rows_of_random_layers(seed):
    draw = torch.Generator().manual_seed(seed)

    def pick(low, high):
        return int(torch.randint(low, high + 1, (), generator=draw))

    kernel, stride, padding, dilation = pick(1, 4), pick(1, 3), pick(0, 4), pick(1, 2)
    conv = nn.Conv2d(1, 2, kernel, stride, padding, dilation).double()
    x = torch.randn(1, 1, pick(13, 17), 16, dtype=torch.float64, generator=draw)
    y = conv(x)
    ranks = min(3, y.shape[2])
    weights = torch.randn(y.shape, dtype=torch.float64, generator=draw)

    def program(comm):
        layer = RowParallel2d(conv, comm, x.shape[2])
        return run(layer, part_of(x, comm, 2), part_of(weights, comm, 2))[:2]

    y, dx, _ = run(conv, x, weights)
    parts = simulate(program, ranks).values
    close(torch.cat([own for own, _ in parts], 2), y)
    close(torch.cat([own for _, own in parts], 2), dx)


@pytest.mark.parametrize(
    ("build", "error", "says"),
    [
        (lambda comm: ColumnParallelLinear(nn.Linear(4, 1), comm), ValueError, "1 outputs cannot be shared out to 2"),
        (lambda comm: RowParallelLinear(nn.Linear(1, 4), comm), ValueError, "1 inputs cannot be shared out to 2"),
        (lambda comm: RowParallelLinear(nn.ReLU(), comm), TypeError, "takes the nn.Linear"),
        (lambda comm: ChannelParallelConv2d(nn.Linear(2, 2), comm), TypeError, "takes the nn.Conv2d"),
        (lambda comm: ChannelParallelConv2d(nn.Conv2d(3, 6, 1, groups=3), comm), ValueError, "3 groups cannot"),
        (lambda comm: InputChannelParallelConv2d(nn.Conv2d(4, 4, 1, groups=2), comm), ValueError, "of 2 groups"),
        (lambda comm: RowParallel2d(nn.AvgPool2d(2), comm, 8), TypeError, "nn.Conv2d or an nn.MaxPool2d"),
        (lambda comm: RowParallel2d(nn.Conv2d(1, 1, 3, padding="same"), comm, 8), ValueError, "padding is 'same'"),
        (lambda comm: RowParallel2d(nn.Conv2d(1, 1, 9), comm, 8), ValueError, "fewer than the window's 9"),
        (lambda comm: RowParallel2d(nn.Conv2d(1, 1, 8), comm, 8), ValueError, "1 output rows cannot be shared out"),
        (
            lambda comm: RowParallel2d(nn.Conv2d(1, 1, 3), comm, 8)(torch.ones(1, 1, 8, 8)),
            ValueError,
            r"rank \d has rows \d to \d of 8, so x must be \(N, C, 4, W\)",
        ),
    ],
)
def test_what_cannot_be_shared_out_is_a_sentence(build, error, says):
    with pytest.raises(RankError, match=says) as caught:
        simulate(lambda comm: build(comm) and None, 2)
    assert isinstance(caught.value.cause, error)
