"""Small models in stages, corrupted schedules, and the oracle: one process with the same micro-batches in order."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from lockstep.nn.models.resnet import BasicBlock
from lockstep.parallel.pipeline import Schedule


class Tail(nn.Module):
    def __init__(self, channels, classes):
        super().__init__()
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        return self.fc(x.mean((2, 3)))


def resnet(chunks):
    """A ResNet with batch norm: a head, blocks, a tail, as `chunks` stages."""
    torch.manual_seed(3)
    head = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
    blocks = [BasicBlock(4, 6, 2), BasicBlock(6, 6)]
    layers = [head, *blocks, nn.Conv2d(6, 6, 1, groups=2), nn.BatchNorm2d(6), nn.Tanh(), nn.Identity(), Tail(6, 5)]
    return cut(layers, chunks)


class Down(nn.Module):
    """Keeps what a later stage needs, under a name; a table of integers comes along."""

    def __init__(self, name, channels):
        super().__init__()
        self.name, self.conv = name, nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, inputs):
        x, kept, table = inputs if isinstance(inputs, tuple) else (inputs, {}, torch.arange(3))
        return self.conv(x).relu(), {**kept, self.name: x}, table + 1


class Up(nn.Module):
    """Takes what an earlier stage kept."""

    def __init__(self, name, channels):
        super().__init__()
        self.name, self.conv = name, nn.Conv2d(channels, channels, 3, padding=1, bias=False)

    def forward(self, inputs):
        x, kept, table = inputs
        return self.conv(x) * kept[self.name] + table.sum(), {k: v for k, v in kept.items() if k != self.name}, table


class Out(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.fc = nn.Linear(channels, 5)
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, inputs):
        x, kept, table = inputs
        assert not kept
        return self.fc(x.mean((2, 3)) / table.sum())


def skips(chunks):
    """A net whose late stages need what early ones had; its first layer is frozen."""
    torch.manual_seed(4)
    layers = [Down("a", 2), Down("b", 2), Down("c", 2), Up("c", 2), Up("a", 2), Up("b", 2), nn.Identity(), Out(2)]
    layers[0].requires_grad_(False)
    return cut(layers, chunks)


def cut(layers, chunks):
    """As equal as may be; each stage one module, in float64."""
    ends = [len(layers) * c // chunks for c in range(chunks + 1)]
    return [nn.Sequential(*layers[a:b]).double() for a, b in zip(ends, ends[1:], strict=False)]


def batch(samples, seed=0):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(samples, 2, 6, 6, dtype=torch.float64, generator=generator)
    return images, torch.randint(5, (samples,), generator=generator)


def alone(stages, images, labels, micro_batches, steps=1):
    """(loss of the last step, gradients, buffers) of one process: each micro-batch by itself, in order."""
    model = nn.Sequential(*copy.deepcopy(stages))
    for _ in range(steps):
        total = 0.0
        pairs = zip(torch.tensor_split(images, micro_batches), torch.tensor_split(labels, micro_batches), strict=True)
        for x, y in pairs:
            loss = F.cross_entropy(model(x), y) * (len(y) / len(labels))
            loss.backward()
            total += loss.item()
    return total, gradients(model), [buffer.clone() for buffer in model.buffers()]


def gradients(module):
    return [None if p.grad is None else p.grad.clone() for p in module.parameters()]


def corrupted(schedule, draw):
    """One action swapped with another of its rank, dropped, doubled, or put on another rank."""
    rows = [list(row) for row in schedule.actions]
    row = draw.choice([row for row in rows if row])
    at, to = draw.randrange(len(row)), draw.randrange(len(row))
    how = draw.choice(["swap", "swap", "neighbours", "neighbours", "drop", "double", "move"])
    if how == "swap":
        row[at], row[to] = row[to], row[at]
    elif how == "neighbours":
        at = max(1, at)
        row[at - 1 : at + 1] = row[at - 1 : at + 1][::-1]
    elif how == "drop":
        del row[at]
    elif how == "double":
        row.insert(to, row[at])
    else:
        draw.choice(rows).append(row.pop(at))
    return Schedule(f"{schedule.name}, {how}", schedule.chunks, schedule.micro_batches, tuple(map(tuple, rows)))
