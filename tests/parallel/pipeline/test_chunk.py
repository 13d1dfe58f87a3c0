"""One chunk at work: backward in halves, forward run twice, batch norm over a whole step."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from lockstep.parallel.pipeline import DeferredBatchNorm2d, Pipeline, gpipe, zero_bubble
from lockstep.parallel.pipeline.chunk import Chunk
from lockstep.world import simulate


class Mixed(nn.Module):
    """Every kind of layer that may or may not wait: tied, frozen, computed weights, padding in words, three dimensions."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, stride=2, padding=1, dilation=1, bias=False)
        self.grouped = nn.Conv2d(4, 4, 3, padding=(1, 0), groups=2)
        self.same = nn.Conv2d(4, 4, 3, padding="same")
        self.norm = nn.BatchNorm2d(4)
        self.tied = nn.Linear(4, 4)
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.mixed = nn.Linear(4, 4)
        self.mixed.bias.requires_grad_(False)
        self.scaled = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))

    def forward(self, x):
        x = self.same(self.norm(self.grouped(self.conv(x))).relu())
        x = self.tied(x.flatten(2).transpose(1, 2))  # (N, pixels, channels)
        x = checkpoint(lambda y: self.tied(y).tanh(), x, use_reentrant=False)
        return self.scaled(F.linear(input=self.mixed(self.frozen(x)), weight=self.tied.weight, bias=self.tied.bias))


def test_two_halves_are_one_backward():
    torch.manual_seed(0)
    model = Mixed().double()
    twin = copy.deepcopy(model)
    x, dy = torch.randn(3, 2, 9, 7, dtype=torch.float64), torch.randn(3, 10, 3, dtype=torch.float64)

    chunk = Chunk(model, split=frozenset({0}))
    y = chunk.forward(0, x)
    (dx,) = chunk.backward(0, [dy])
    assert model.conv.weight.grad is None and model.grouped.bias.grad is None  # these wait
    assert model.norm.weight.grad is not None and model.frozen.weight.grad is None
    chunk.weight_gradient(0)

    mine = x.clone().requires_grad_()
    wanted = twin(mine)
    (wanted * dy).sum().backward()
    assert torch.allclose(y, wanted, rtol=1e-12) and torch.allclose(dx, mine.grad, rtol=1e-9, atol=1e-12)
    for (name, one), other in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None), name
        assert one.grad is None or torch.allclose(one.grad, other.grad, rtol=1e-9, atol=1e-12), name


def test_several_micro_batches_may_wait_at_once():
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2)).double()
    twin = copy.deepcopy(model)
    chunk = Chunk(model, split=frozenset({0, 2}), first=True)
    inputs = [torch.randn(4, 3, dtype=torch.float64) for _ in range(3)]
    outputs = [chunk.forward(i, x) for i, x in enumerate(inputs)]
    assert [chunk.backward(i, [torch.ones_like(outputs[i])]) for i in (1, 2, 0)] == [[], [], []]
    for i in (0, 2):
        chunk.weight_gradient(i)
    twin(torch.cat(inputs)).sum().backward()
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.allclose(one.grad, other.grad, rtol=1e-12)


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Dropout(0.5), nn.Flatten(), nn.Linear(12, 2))

    def forward(self, x):
        return self.net(x)


@pytest.mark.parametrize("split", [frozenset(), frozenset({0, 1})])
def test_forward_run_again_draws_the_same_numbers_and_counts_once(split):
    twins = [Noisy().double() for _ in range(2)]
    twins[1].load_state_dict(twins[0].state_dict())
    inputs = [torch.randn(5, 2, 4, 4, dtype=torch.float64) for _ in range(2)]
    found = []
    for again, model in zip((False, True), twins, strict=True):
        torch.manual_seed(7)
        chunk = Chunk(model, split, checkpoint=again)
        outputs = [chunk.forward(i, x) for i, x in enumerate(inputs)]
        before = torch.get_rng_state()
        gradients = [chunk.backward(i, [torch.ones_like(outputs[i])])[0] for i in (1, 0)]
        assert torch.equal(before, torch.get_rng_state())
        for i in split:
            chunk.weight_gradient(i)
        found.append([*outputs, *gradients, *(p.grad for p in model.parameters()), *model.buffers()])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_deferred_batch_norm_counts_a_step_as_one_batch():
    torch.manual_seed(0)
    for momentum in (0.1, None):
        plain = nn.BatchNorm2d(3, momentum=momentum).double()
        deferred = DeferredBatchNorm2d.convert(copy.deepcopy(plain))
        for _ in range(3):
            x = 5 + torch.randn(10, 3, 4, 4, dtype=torch.float64)
            plain(x)
            for part in torch.tensor_split(x, 4):  # of unequal sizes
                own = nn.BatchNorm2d(3).double()(part)
                assert torch.allclose(deferred(part), own, rtol=1e-12)
            deferred.commit()
        for name, wanted in plain.state_dict().items():
            assert torch.allclose(deferred.state_dict()[name], wanted, rtol=1e-12), name
        assert deferred.state_dict().keys() == plain.state_dict().keys()
        assert torch.allclose(deferred.eval()(x), plain.eval()(x), rtol=1e-12)
        before = deferred.running_mean.clone()
        deferred.train().commit()  # of nothing
        assert torch.equal(deferred.running_mean, before)


def statistics(comm, schedule, checkpointed):
    torch.manual_seed(0)
    stages = [nn.Sequential(nn.BatchNorm2d(2), nn.Conv2d(2, 2, 1)), nn.Sequential(nn.Flatten(), nn.Linear(18, 2))]
    stages = [DeferredBatchNorm2d.convert(stage.double()) for stage in stages]
    pipeline = Pipeline(stages, comm, schedule, F.cross_entropy, checkpoint=checkpointed)
    for _ in range(2):
        pipeline.step(torch.arange(126, dtype=torch.float64).view(7, 2, 3, 3), torch.arange(7) % 2)
    return stages[0][0].state_dict()


def test_a_pipeline_commits_once_a_step():
    plain = nn.BatchNorm2d(2).double()
    for _ in range(2):
        plain(torch.arange(126, dtype=torch.float64).view(7, 2, 3, 3))
    for schedule, checkpointed in ((gpipe(2, 3), False), (zero_bubble(2, 3), True)):
        state = simulate(statistics, 2, schedule, checkpointed).values[0]
        assert all(torch.allclose(state[name], wanted, rtol=1e-12) for name, wanted in plain.state_dict().items())
