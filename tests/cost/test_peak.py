"""The peak of a step, replayed without numbers, against the same step with them."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential

from lockstep.cost import measure_step, peak_memory, replay_step
from lockstep.cost.live import LiveMemory
from lockstep.nn.models import LeNet, alexnet, resnet18, vgg11

# The steps of each; `bench/cost.py` has every network at two batch sizes with every optimizer.
MODELS = {
    "lenet": (LeNet, (1, 28, 28), ((2, "sgd"), (7, "momentum"), (2, "adam"))),
    "alexnet-small": (lambda: alexnet(10, 32), (3, 32, 32), ((7, "momentum"),)),
    "vgg11-small": (lambda: vgg11(10, 32), (3, 32, 32), ((2, "sgd"),)),
    "resnet18": (lambda: resnet18(10, 32), (3, 32, 32), ((2, "adam"),)),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_peak_is_that_of_a_real_second_step(name):
    make, size, steps = MODELS[name]
    model = make()
    for batch, optimizer in steps:
        predicted = replay_step(model, size, batch, optimizer)
        measured = measure_step(model, torch.rand(batch, *size), torch.arange(batch) % 10, optimizer)
        assert predicted.peak == pytest.approx(measured.peak, rel=0.02), (batch, optimizer)
        assert predicted.curve == measured.curve  # and in fact every operation on the way agrees
        for part in ("parameters", "gradients", "optimizer_state", "inputs"):
            assert getattr(predicted, part) == getattr(measured, part)


def test_the_sum_of_the_parts_is_not_the_peak():
    # With small batches the peak lies in the update, where no activation is left; with large ones in backward.
    model = alexnet(10, 32)
    few, many = replay_step(model, (3, 32, 32), 2, "adam"), replay_step(model, (3, 32, 32), 4096, "adam")
    assert [part for part, _ in few.marks] == ["forward", "backward", "update"]
    assert few.curve.index(few.peak) > few.marks[2][1] > few.marks[1][1]
    assert many.curve.index(many.peak) < many.marks[2][1]
    assert few.peak > few.parameters + few.gradients + few.optimizer_state


def test_frozen_and_tied_parameters_are_replayed_as_they_are():
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 16), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 10))
    model[2].weight = model[1].weight
    model[4].weight.requires_grad_(False)
    predicted = replay_step(model, (1, 4, 4), 3, "adam")
    measured = measure_step(model, torch.rand(3, 1, 4, 4), torch.arange(3), "adam")
    assert predicted == measured
    assert predicted.gradients == 4 * (256 + 16 + 16 + 10)


class Checkpointed(nn.Module):
    def __init__(self, stages, segments):
        super().__init__()
        self.stages, self.segments = stages, segments

    def forward(self, x):
        return checkpoint_sequential(self.stages, self.segments, x, use_reentrant=False)


def test_a_checkpointed_model_is_replayed_too():
    stages = nn.Sequential(*[nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU()) for _ in range(9)])
    head = nn.Sequential(nn.Flatten(), nn.Linear(4 * 256, 10))
    whole, parts = nn.Sequential(stages, head), nn.Sequential(Checkpointed(stages, 3), head)
    assert peak_memory(parts, (4, 16, 16), 8) < 0.8 * peak_memory(whole, (4, 16, 16), 8)
    measured = measure_step(parts, torch.rand(8, 4, 16, 16), torch.arange(8))
    assert replay_step(parts, (4, 16, 16), 8) == measured


def test_memory_is_counted_once_and_until_nobody_holds_it():
    with LiveMemory() as memory:
        a = torch.zeros(1000)
        b = a.view(10, 100)
        assert memory.live == 4000
        b.add_(1)
        c = b + 1
        assert memory.live == memory.peak == 8000
        del a, c
        assert (memory.live, memory.peak) == (4000, 8000)
        memory.restart()
        del b
        assert (memory.live, memory.peak) == (0, 4000)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_cuda_the_allocator_agrees_within_its_workspace():
    model = resnet18(10, 32).cuda()
    images, labels = torch.rand(256, 3, 32, 32, device="cuda"), torch.arange(256, device="cuda") % 10
    predicted = peak_memory(model, (3, 32, 32), 256, "adam")
    assert predicted == pytest.approx(measure_step(model, images, labels, "adam").peak, rel=0.15)


def test_bad_input_is_a_sentence():
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    with pytest.raises(ValueError, match="optimizer is 'lion'; known are sgd"):
        peak_memory(model, (1, 2, 2), optimizer="lion")
    with pytest.raises(ValueError, match="Sequential cannot take a training step on inputs of shape"):
        peak_memory(model, (1, 3, 3))
    with pytest.raises(TypeError, match="logits of shape"):
        peak_memory(nn.Conv2d(1, 1, 1), (1, 3, 3))
    with pytest.raises(ValueError, match="2 images need as many labels"):
        measure_step(model, torch.rand(2, 1, 2, 2), torch.zeros(3, dtype=torch.long))
