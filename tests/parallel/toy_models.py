"""Small models that hurt, and how a rank and one process train each: what the tests of data parallelism share.

A batch is (images, labels); `SHARES[p][step][rank]` samples go to each rank. The oracle knows no ranks: it takes the
samples of a step together, or, where a layer looks at its own shard alone, shard after shard.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from lockstep.comm import Central, RingAllReduce
from lockstep.parallel import DistributedDataParallel, SyncBatchNorm2d

# Unequal, shrinking to nothing; every rank has something first.
SHARES = {
    1: [[4], [3], [5]],
    2: [[4, 2], [1, 3], [2, 0]],
    3: [[2, 3, 1], [3, 1, 2], [1, 0, 0]],
    4: [[1, 2, 3, 2], [2, 2, 2, 2], [1, 0, 1, 0]],
}


class Conv(nn.Module):
    """Convolution, then a linear layer; bias-free, odd sizes."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3)
        self.fc = nn.Linear(12, 5)

    def forward(self, x, rank=0):
        return self.fc(F.max_pool2d(self.conv(x).relu(), 2)[:, :, :2, :2].flatten(1))


class ChannelsLast(Conv):
    """Weights whose memory order is not that of their shape."""

    def __init__(self):
        super().__init__()
        self.conv.to(memory_format=torch.channels_last)


class Tied(Conv):
    """Two layers with one weight, and one layer used twice."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(5, 5), nn.Linear(5, 5)
        self.down.weight = self.up.weight

    def forward(self, x, rank=0):
        return self.down(self.up(self.up(super().forward(x).tanh())).tanh())


class Frozen(Conv):
    """The first layer does not learn."""

    def __init__(self):
        super().__init__()
        self.conv.requires_grad_(False)


class Unused(Conv):
    """Layers that nobody uses, first and last, one of them empty."""

    def __init__(self):
        super().__init__()
        self.first_conv = nn.Conv2d(2, 3, 3)
        self.extra = nn.Linear(12, 5)
        self.nothing = nn.Parameter(torch.empty(0))

    def forward(self, x, rank=0):
        return super().forward(x) + self.nothing.sum()


class SomeRanks(Conv):
    """A head that even ranks use and odd ones do not, and the other way round; one of them is last in memory."""

    def __init__(self):
        super().__init__()
        self.even, self.odd = nn.Linear(5, 5), nn.Linear(5, 5)

    def forward(self, x, rank=0):
        y = super().forward(x)
        return self.odd(y) if rank % 2 else self.even(y)


class Norm(nn.Module):
    """Batch norm between two layers."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Linear(3 * 36, 5)

    def forward(self, x, rank=0):
        return self.fc(self.norm(self.conv(x)).relu().flatten(1))


class Checkpointed(Norm):
    """The first half is computed again in backward."""

    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(1, 3)

    def forward(self, x, rank=0):
        y = checkpoint(lambda z: self.norm(self.conv(z)).relu(), x, use_reentrant=False)
        return self.fc(y.flatten(1))


class Reentrant(Conv):
    """A backward inside the backward; its layer comes first and last, outside."""

    def __init__(self):
        super().__init__()
        self.mid = nn.Linear(5, 5)

    def forward(self, x, rank=0):
        return self.mid(checkpoint(self.mid, super().forward(x), use_reentrant=True))


class Outputs(Conv):
    """Gives a dictionary with tuples, of which the loss takes two."""

    def forward(self, x, rank=0):
        y = super().forward(x)
        return {"logits": y, "more": (y.square().mean(1), [None, y.detach()])}


class TwoDtypes(Conv):
    """Layers of float32 and float64 in turn."""

    def __init__(self):
        super().__init__()
        self.low = nn.Linear(5, 5)

    def double(self):
        super().double()
        self.low.float()
        return self

    def forward(self, x, rank=0):
        return self.low(super().forward(x).float()).double()


def cross_entropy(outputs, labels):
    """The mean over samples."""
    return F.cross_entropy(outputs, labels)


def of_two_outputs(outputs, labels):
    """Gradients come in through two tensors."""
    regular = outputs["more"][0]
    return F.cross_entropy(outputs["logits"], labels) + 0.1 * regular.sum() / max(len(labels), 1)


def sgd(parameters):
    """Momentum and weight decay, for which no gradient and a gradient of zero differ."""
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.1)


def adam(parameters):
    return torch.optim.AdamW(parameters, lr=0.01)


@dataclass(frozen=True)
class Toy:
    """A model and how it is trained; `whole` lets the oracle see a step's samples as one batch."""

    build: Callable[[], nn.Module]
    loss: Callable = cross_entropy
    optimizer: Callable = sgd
    settings: dict = field(default_factory=lambda: {"bucket_bytes": 400})
    whole: bool = True
    sync_norm: bool = False
    accumulate: int = 1
    to_none: bool = True
    freeze_after: int | None = None
    tolerance: float = 1e-12


def student_all_reduce(comm, tensor):
    """As a student may write it: everything to everyone, with handles."""
    others = [rank for rank in range(comm.size) if rank != comm.rank]
    parts = [torch.empty_like(tensor) for _ in others]
    handles = [comm.isend(tensor.clone(), rank) for rank in others]
    handles += [comm.irecv(part, rank) for part, rank in zip(parts, others, strict=True)]
    for handle in handles:
        handle.wait()
    ranked = sorted([*zip(others, parts, strict=True), (comm.rank, tensor.clone())], key=lambda pair: pair[0])
    tensor.copy_(torch.stack([part for _, part in ranked]).sum(0))


TOYS = {
    "one bucket": Toy(Conv, settings={}),
    "a bucket each": Toy(Conv, optimizer=adam, settings={"bucket_bytes": 1}),
    "channels last": Toy(ChannelsLast),
    "tied": Toy(Tied),
    "frozen": Toy(Frozen),
    "unused": Toy(Unused),
    "used by some ranks": Toy(SomeRanks, whole=False),
    "used by some ranks, at the end": Toy(SomeRanks, whole=False, settings={"overlap": False, "bucket_bytes": 300}),
    "batch norm": Toy(Norm, whole=False),
    "batch norm over all": Toy(Norm, sync_norm=True),
    "checkpoint": Toy(Checkpointed),
    "reentrant": Toy(Reentrant, settings={"overlap": False}),
    "outputs": Toy(Outputs, loss=of_two_outputs),
    "two dtypes": Toy(TwoDtypes, tolerance=1e-5),
    "at the end": Toy(Conv, settings={"overlap": False, "bucket_bytes": 400}),
    "accumulate": Toy(Conv, accumulate=3),
    "zeros": Toy(SomeRanks, whole=False, to_none=False),
    "frozen later": Toy(Conv, freeze_after=1),
    "ring": Toy(Norm, whole=False, settings={"exchange": RingAllReduce(), "bucket_bytes": 400}),
    "student": Toy(Conv, settings={"exchange": RingAllReduce(student_all_reduce), "bucket_bytes": 400}),
    "central": Toy(SomeRanks, whole=False, settings={"exchange": Central(), "bucket_bytes": 400}),
}


def samples(step, count):
    """The samples of a step, the same whoever asks."""
    generator = torch.Generator().manual_seed(step)
    images = torch.randn(count, 2, 8, 8, dtype=torch.float64, generator=generator)
    return images, torch.randint(5, (count,), generator=generator)


def shards(p, step):
    """(images, labels) of each rank in a step."""
    sizes = SHARES[p][step]
    images, labels = samples(step, sum(sizes))
    return list(zip(images.split(sizes), labels.split(sizes), strict=True))


def train_as_rank(comm, toy):
    """(first state, last state, gradients of the last step) of this rank."""
    model = toy.build().double()
    if toy.sync_norm:
        SyncBatchNorm2d.convert(model, comm)
    model = DistributedDataParallel(model, comm, **toy.settings)
    start = copied(model.state_dict())
    optimizer = toy.optimizer(model.parameters())
    mine = [shards(comm.size, step)[comm.rank] for step in range(3)]
    while mine and not len(mine[-1][1]):  # no more batches, where others have some
        mine.pop()
    for step, (images, labels) in enumerate(model.batches(mine)):
        if step == toy.freeze_after:
            model.module.conv.requires_grad_(False)
        optimizer.zero_grad(set_to_none=toy.to_none)
        for _ in range(toy.accumulate - 1):
            with model.no_sync():
                (toy.loss(model(images, rank=comm.rank), labels) / toy.accumulate).backward()
        (toy.loss(model(images, rank=comm.rank), labels) / toy.accumulate).backward()
        optimizer.step()
    return start, copied(model.state_dict()), gradients(model)


def train_alone(toy, p, start):
    """The oracle: (last state, gradients of the last step) of one process without ranks."""
    model = toy.build().double()
    model.load_state_dict(start)
    optimizer = toy.optimizer(model.parameters())
    for step, sizes in enumerate(SHARES[p]):
        if step == toy.freeze_after:
            model.conv.requires_grad_(False)
        optimizer.zero_grad(set_to_none=toy.to_none)
        total = sum(sizes)
        if toy.whole:
            images, labels = samples(step, total)
            toy.loss(model(images), labels).backward()
        else:
            _shard_after_shard(toy, model, shards(p, step), total)
        optimizer.step()
    return copied(model.state_dict()), gradients(model)


def _shard_after_shard(toy, model, parts, total):
    """Gradients add up; each shard's running statistics start from the same ones and are averaged by samples."""
    before = {name: value.clone() for name, value in model.named_buffers()}
    mean = {name: torch.zeros_like(value) for name, value in before.items()}
    for rank, (images, labels) in enumerate(parts):
        for name, value in model.named_buffers():
            value.copy_(before[name])
        (toy.loss(model(images, rank=rank), labels) * (len(labels) / total)).backward()
        for name, value in model.named_buffers():
            mean[name] += value * (len(labels) / total) if value.is_floating_point() else 0
    for name, value in model.named_buffers():
        value.copy_(mean[name] if value.is_floating_point() else before[name] + 1)


def copied(state):
    return {name: value.clone() for name, value in state.items()}


def gradients(model):
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]
