"""What feedback is worth: to forty weights, and to a CNN that learns for a moment; for longer in `bench/compress_accuracy.py`."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lockstep.compress import ErrorFeedback, OneBit, TopK
from lockstep.data import Normalize
from lockstep.data.shapes import shapes32

STEPS, WEIGHTS = 200, 40


def moved_by(compressor):
    """How far each weight is sent in all, where only the first has a gradient, which is 1."""
    gradient, moved = torch.zeros(WEIGHTS), torch.zeros(WEIGHTS)
    gradient[0] = 1
    for _ in range(STEPS):
        moved += compressor.decompress(compressor.compress(gradient, "weights"))
    return moved.tolist()


def test_one_bit_moves_what_has_no_gradient_and_with_feedback_brings_it_back():
    # Of few images a rank, gradients are zero for every input that none of them turns on. Without feedback each of these
    # zeros moves, step after step, by the mean of the values that are not below zero, and a CNN learns less.
    assert moved_by(OneBit()) == pytest.approx([STEPS / WEIGHTS] * WEIGHTS, rel=1e-4)
    first, *others = moved_by(ErrorFeedback(OneBit()))
    assert first == pytest.approx(STEPS, abs=2) and max(map(abs, others)) < 1


def loss_after_training(images, labels, make):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 8, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(392, 10))
    parameters, compressors = list(net.parameters()), [make(), make()]
    for step in range(120):
        ranks = [
            torch.autograd.grad(F.cross_entropy(net(images[own]), labels[own]), parameters)
            for own in torch.arange(64 * step, 64 * (step + 1)).remainder(len(labels)).chunk(2)
        ]
        with torch.no_grad():
            for i, (parameter, *gradients) in enumerate(zip(parameters, *ranks, strict=True)):
                sent = [c.decompress(c.compress(g, str(i))) for c, g in zip(compressors, gradients, strict=True)]
                parameter -= 0.1 * (sent[0] + sent[1]) / 2
    with torch.no_grad():
        return F.cross_entropy(net(images), labels).item()


def test_at_equal_steps_a_cnn_learns_more_from_the_top_1_percent_with_feedback_than_without():
    images, labels = map(torch.from_numpy, shapes32(960, 0))
    data = Normalize.of(images.float())(images.float()), labels.long()
    losses = [loss_after_training(*data, make) for make in (lambda: TopK(0.01), lambda: ErrorFeedback(TopK(0.01)))]
    assert losses[1] < 0.9 * losses[0]
