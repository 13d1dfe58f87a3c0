"""Compressors: PowerSGD beside torch's hook, and the throughput of each beside a memory copy.

    python bench/compress.py                   PowerSGD at ranks 1, 2, 4, then throughput
    python bench/compress.py --pairs 400       narrower intervals
    python bench/compress.py --only step       a whole step of data parallel training; or exchange, or throughput

PowerSGD, on ResNet-18 (11 M parameters, for 32x32 images), two ranks of one thread each, with error feedback and warm
start on both sides. Steps of ours and of torch's come in pairs in random order. The ratio is ours by torch's, of the
slower rank. Printed are the median with its 95 % interval (bootstrap over pairs) and the same of torch's against
torch's, which says what the machine alone does. "At most 1.00 x" holds when the upper end is below 1.03.

Torch's hook starts its second and third all-reduce where the one before ends, so with several buckets on gloo ranks may
start them in different orders (torch 2.14: "Received data size doesn't match expected size"); ours cannot.

- The exchange alone: buckets of 25 MiB of equal gradients are compressed, exchanged and decompressed. One bucket is
  finished before the next starts, for both, so that torch's orders agree; a lead from overlap is left out. So is
  backward: it is the same for both, and would only dilute the difference.
- The whole step: forward, backward, SGD on 4 images a rank, by our `DistributedDataParallel(exchange=...)` with its
  own buckets, and by torch's with the hook and one bucket for all gradients, the one size that works for it.

Throughput: gigabytes of float32 gradient a second through `compress` and `decompress`, one thread, the best of several
runs, beside a copy of the same tensor.
"""

from __future__ import annotations

import argparse
import os
import random
import time

import torch
from data_parallel import RANKS, interval, resnet18
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn import functional as F

from lockstep.comm import Bucket, Communicator
from lockstep.compress import (
    DGC,
    QSGD,
    CompressedSensing,
    Compressor,
    ErrorFeedback,
    Int8,
    OneBit,
    PowerSGD,
    RandomK,
    SignVote,
    TernGrad,
    Threshold,
    TopK,
)
from lockstep.parallel import DistributedDataParallel, make_buckets
from lockstep.world import launch

BUCKET_BYTES = 25 * 2**20
ALL_MB = 1024  # a bucket for everything


class Given:
    """A bucket as torch gives it to a hook, and as exchanges take it; refilled before each step."""

    def __init__(self, index: int, parameters: list[Tensor], last: bool) -> None:
        self.gradients_ = torch.cat([torch.randn(p.numel()) for p in parameters])
        flat = torch.empty_like(self.gradients_)
        chunks = flat.split([p.numel() for p in parameters])
        parts = tuple(chunk.view(p.shape) for chunk, p in zip(chunks, parameters, strict=True))
        self.bucket = Bucket(index, flat, parts, tuple(f"{index}.{at}" for at in range(len(parts))))
        self._last = last

    def refill(self) -> None:
        self.bucket.flat.copy_(self.gradients_)

    def index(self) -> int:
        return self.bucket.index

    def is_last(self) -> bool:
        return self._last

    def buffer(self) -> Tensor:
        return self.bucket.flat

    def gradients(self) -> list[Tensor]:
        return list(self.bucket.parts)


class Ours:
    def __init__(self, comm: Communicator, rank: int) -> None:
        self.comm, self.exchange = comm, ErrorFeedback(PowerSGD(rank))

    def step(self, buckets: list[Given]) -> None:
        for given in buckets:
            self.exchange.start(self.comm, given.bucket).wait()


class Torchs:
    def __init__(self, comm: Communicator, rank: int) -> None:
        self.state = powerSGD_hook.PowerSGDState(None, rank, start_powerSGD_iter=2)
        self.state.iter = 2

    def step(self, buckets: list[Given]) -> None:
        for given in buckets:
            powerSGD_hook.powerSGD_hook(self.state, given).wait()


class Training:
    """ResNet-18 in a wrapper that exchanges by PowerSGD, and a step of it on one batch."""

    def __init__(self, comm: Communicator, rank: int) -> None:
        torch.manual_seed(0)
        self.model = self.wrapped(resnet18(), comm, rank)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.images, self.labels = torch.randn(4, 3, 32, 32), torch.randint(10, (4,))

    def step(self, _: list[Given]) -> None:
        self.optimizer.zero_grad()
        F.cross_entropy(self.model(self.images), self.labels).backward()
        self.optimizer.step()


class OurTraining(Training):
    def wrapped(self, model: nn.Module, comm: Communicator, rank: int) -> nn.Module:
        return DistributedDataParallel(model, comm, exchange=ErrorFeedback(PowerSGD(rank)))


class TorchsTraining(Training):
    def wrapped(self, model: nn.Module, comm: Communicator, rank: int) -> nn.Module:
        model = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=ALL_MB)
        state = powerSGD_hook.PowerSGDState(None, rank, start_powerSGD_iter=2)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        return model


def resnet_buckets() -> list[Given]:
    parameters = list(resnet18().parameters())
    groups = make_buckets(parameters, BUCKET_BYTES, 2**20)
    return [
        Given(index, [parameters[i] for i in group], index == len(groups) - 1) for index, group in enumerate(groups)
    ]


def steps_in_turn(comm: Communicator, rank: int, pairs: int, whole: bool) -> Tensor:
    """Seconds of this rank's steps, [pairs, 3]: ours, torch's, torch's again."""
    kinds = [OurTraining, TorchsTraining, TorchsTraining] if whole else [Ours, Torchs, Torchs]
    methods = [kind(comm, rank) for kind in kinds]
    buckets = [] if whole else resnet_buckets()
    order = random.Random(0)
    taken = torch.zeros(pairs, len(methods))
    for pair in range(-4, pairs):  # the first ones warm up: torch makes its buckets anew, and does not compress yet
        for which in order.sample(range(len(methods)), len(methods)):
            for given in buckets:
                given.refill()
            comm.barrier()
            begun = time.perf_counter()
            methods[which].step(buckets)
            if pair >= 0:
                taken[pair, which] = time.perf_counter() - begun
    return taken


def compare(pairs: int, whole: bool) -> None:
    what = "a step of training ResNet-18" if whole else "the exchange of ResNet-18's gradients"
    print(f"\nPowerSGD, {what}, {RANKS} ranks, {pairs} pairs")
    print(f"{'rank':<6}{'ours ms':>9}{'torch ms':>10}{'ours / torch':>23}{'torch / torch':>23}")
    for rank in (1, 2, 4):
        run = launch(steps_in_turn, RANKS, rank, pairs, whole, timeout=3600)
        ours, first, second = torch.stack(run.values).amax(0).numpy().T
        shown = ["{:.3f} [{:.3f}, {:.3f}]".format(*interval(ratio)) for ratio in (ours / first, second / first)]
        medians = [sorted(seconds)[pairs // 2] * 1e3 for seconds in (ours, first)]
        print(f"{rank:<6}{medians[0]:>9.1f}{medians[1]:>10.1f}{shown[0]:>23}{shown[1]:>23}", flush=True)


def throughput(elements: int, runs: int) -> None:
    torch.set_num_threads(1)
    gradient = torch.randn(elements // 1024, 1024)
    copy = _best(lambda: gradient.clone(), runs)
    print(f"\nGB/s of float32, {elements / 1e6:.0f} M values, one thread; a copy: {gradient.nbytes / copy / 1e9:.2f}")
    print(f"{'compressor':<28}{'compress':>10}{'decompress':>12}{'bytes / 4n':>12}")
    compressors: list[Compressor] = [
        Int8(),
        QSGD(),
        TernGrad(),
        OneBit(),
        SignVote(),
        TopK(0.01),
        RandomK(0.01),
        Threshold(2.5758),  # a hundredth of normal values
        DGC(0.01),
        PowerSGD(1),
        PowerSGD(4),
        CompressedSensing(0.1),
    ]
    for compressor in compressors:
        if isinstance(compressor, CompressedSensing):
            gradient = gradient[: len(gradient) // 64]  # its recovery takes seconds of more
        payload = compressor.compress(gradient)
        there = _best(lambda: compressor.compress(gradient), runs)  # noqa: B023
        back = _best(lambda: compressor.decompress(payload), runs)  # noqa: B023
        rates = [gradient.nbytes / seconds / 1e9 for seconds in (there, back)]
        share = payload.nbytes / gradient.nbytes
        print(f"{compressor!r:<28}{rates[0]:>10.2f}{rates[1]:>12.2f}{share:>12.4f}", flush=True)


def _best(work, runs: int) -> float:
    """The least seconds of some runs."""
    least = float("inf")
    for _ in range(runs):
        begun = time.perf_counter()
        work()
        least = min(least, time.perf_counter() - begun)
    return least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--only", choices=["exchange", "step", "throughput"])
    parser.add_argument("--elements", type=int, default=2**22)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, torch {torch.__version__}")
    for whole, name in enumerate(("exchange", "step")):
        if options.only in (None, name):
            compare(options.pairs, bool(whole))
    if options.only in (None, "throughput"):
        throughput(options.elements, options.runs)


if __name__ == "__main__":
    main()
