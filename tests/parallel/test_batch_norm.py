"""Batch norm over all ranks equals `nn.BatchNorm2d` on the whole batch."""

import pytest
import torch
from torch import nn

from lockstep.parallel import SyncBatchNorm2d
from lockstep.world import RankError, launch, simulate

SHARES = {1: [5], 2: [3, 4], 3: [2, 0, 3], 4: [1, 3, 0, 2]}
KINDS = [
    {},
    {"affine": False, "momentum": None},
    {"track_running_stats": False, "eps": 0.1},
]


def images(p, dtype=torch.float64):
    x = torch.randn(sum(SHARES[p]), 3, 2, 5, generator=torch.Generator().manual_seed(p), dtype=dtype)
    return x * torch.tensor([1.0, 3.0, 0.1], dtype=dtype).view(1, 3, 1, 1) + 5


def loss(y):
    """Not a plain sum, whose gradient batch norm would cancel."""
    return (
        (y * torch.arange(y.shape[1:].numel(), dtype=y.dtype).view(y.shape[1:]).sin()).sum()
        + y.square().sum() * 0.1
        + (y**3).sum()
    )


def use(layer, x):
    if layer.affine:
        layer.weight.data = torch.tensor([2.0, -1.0, 0.5], dtype=x.dtype)
        layer.bias.data = torch.tensor([0.0, 1.0, 3.0], dtype=x.dtype)
    outputs = []
    for _ in range(2):
        x = x.detach().requires_grad_()
        y = layer(x)
        loss(y).backward()
        outputs += [y.detach(), x.grad]
    outputs.append(layer.eval()(x).detach())
    return outputs, [p.grad for p in layer.parameters()], {k: v.clone() for k, v in layer.state_dict().items()}


def as_rank(comm, kinds):
    x = images(comm.size).split(SHARES[comm.size])[comm.rank]
    return [use(SyncBatchNorm2d(3, comm, **kind).double(), x) for kind in kinds]


def judge(run, p):
    for at, kind in enumerate(KINDS):
        outputs, gradients, state = use(nn.BatchNorm2d(3, **kind).double(), images(p))
        ranks = [value[at] for value in run.values]
        for number, whole in enumerate(outputs[:4] if "track_running_stats" in kind else outputs):
            assert torch.allclose(torch.cat([rank[0][number] for rank in ranks]), whole, atol=1e-11), (kind, number)
        for number, whole in enumerate(gradients):
            assert torch.allclose(sum(rank[1][number] for rank in ranks), whole, rtol=1e-11), (kind, number)
        for rank in ranks:
            assert rank[2].keys() == state.keys()
            assert all(torch.allclose(rank[2][key], state[key], rtol=1e-12) for key in state), kind
            assert all(torch.equal(rank[2][key], ranks[0][2][key]) for key in state)


@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_it_is_batch_norm_of_the_whole_batch(p):
    judge(simulate(as_rank, p, KINDS), p)


def test_it_is_in_processes_too():
    judge(launch(as_rank, 3, KINDS), 3)


def test_one_collective_forward_and_one_backward():
    def program(comm):
        layer = SyncBatchNorm2d(3, comm)
        y = layer(torch.randn(2, 3, 4, 4))
        comm.barrier()
        y.square().sum().backward()
        layer.eval()(torch.randn(2, 3, 4, 4))

    spans = simulate(program, 2).trace.spans
    assert [s.name for s in spans if s.rank == 0 and s.kind == "collective"] == ["all_gather", "barrier", "all_reduce"]


def test_a_large_mean_does_not_cancel_the_variance():
    # Sums of squares in float32 gave a variance of 0 here, or less than that: 1e4 squared leaves no digit for 1e-2.
    def program(comm):
        x = torch.randn(64, 1, 4, 4, generator=torch.Generator().manual_seed(comm.rank)) * 0.1 + 1e4
        layer = SyncBatchNorm2d(1, comm, momentum=1.0)
        return x, layer(x).detach(), layer.running_var.item()

    run = simulate(program, 2)
    x = torch.cat([value[0] for value in run.values]).double()
    for _, y, variance in run.values:
        assert variance == pytest.approx(x.var().item(), rel=1e-3)
        assert y.std().item() == pytest.approx(1, rel=0.1)


def test_half_precision_keeps_its_dtype():
    def program(comm):
        x = torch.randn(2, 3, 4, 4, dtype=torch.bfloat16, requires_grad=True)
        y = SyncBatchNorm2d(3, comm)(x)
        y.sum().backward()
        return y.dtype, x.grad.dtype

    assert simulate(program, 2).values == [(torch.bfloat16, torch.bfloat16)] * 2


def test_convert_keeps_parameters_statistics_and_names():
    def program(comm):
        model = nn.Sequential(
            nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Sequential(nn.BatchNorm2d(2, eps=0.5)), nn.BatchNorm1d(2)
        )
        model[1](torch.randn(3, 2, 4, 4))
        model[2].eval()
        before, parameters = {k: v.clone() for k, v in model.state_dict().items()}, list(model.parameters())
        converted = SyncBatchNorm2d.convert(model, comm)
        assert converted is model and all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
        assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
        inner = model[2][0]
        assert isinstance(SyncBatchNorm2d.convert(nn.BatchNorm2d(2), comm), SyncBatchNorm2d)
        return [type(layer).__name__ for layer in model], inner.eps, inner.training

    assert simulate(program, 1).values == [(["Conv2d", "SyncBatchNorm2d", "Sequential", "BatchNorm1d"], 0.5, False)]


def test_one_element_a_channel_is_refused():
    def program(comm):
        SyncBatchNorm2d(3, comm)(torch.ones(int(comm.rank == 0), 3, 1, 1))

    with pytest.raises(RankError, match="all ranks together have 1"):
        simulate(program, 2)
