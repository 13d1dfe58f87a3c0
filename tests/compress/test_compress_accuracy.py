"""What feedback is worth to a CNN on shapes32 at equal steps; over five starts in `bench/compress_accuracy.py`."""

import torch
from torch import nn
from torch.nn import functional as F

from lockstep.compress import ErrorFeedback, OneBit
from lockstep.data import Normalize, load, permutation

STEPS, BATCH, RANKS, LR = 300, 8, 2, 0.02


def right_after_training(x, y, x_held_out, y_held_out, make):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 8, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10)
    )
    for layer in net:
        if hasattr(layer, "weight"):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    optimizer = torch.optim.SGD(net.parameters(), lr=LR)
    compressors = [make() for _ in range(RANKS)]
    for batch in permutation(len(y), 0).split(BATCH)[:STEPS]:
        shares = [
            torch.autograd.grad(F.cross_entropy(net(x[own]), y[own]), list(net.parameters()))
            for own in batch.chunk(RANKS)
        ]
        for (name, parameter), *of_ranks in zip(net.named_parameters(), *shares, strict=True):
            sent = [each.decompress(each.compress(own, name)) for each, own in zip(compressors, of_ranks, strict=True)]
            parameter.grad = torch.stack(sent).mean(0)
        optimizer.step()
    with torch.no_grad():
        return (net(x_held_out).argmax(1) == y_held_out).double().mean().item()


def test_one_bit_learns_from_few_images_a_rank_with_feedback_and_not_without():
    # Of four images a rank, gradients are zero for every input that none of them turns on; without feedback each of
    # these zeros moves, step after step, by the mean of the values that are not below zero.
    training, held_out = load("shapes32", "train", verbose=False), load("shapes32", "test", verbose=False)
    normalize = Normalize.of(training.images)
    x, y = normalize(training.images[: STEPS * BATCH]), training.labels[: STEPS * BATCH]
    data = x, y, normalize(held_out.images), held_out.labels
    with_feedback, without = (right_after_training(*data, make) for make in (lambda: ErrorFeedback(OneBit()), OneBit))
    assert with_feedback > without + 0.05
