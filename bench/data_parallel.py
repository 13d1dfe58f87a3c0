"""A data-parallel step beside torch's DistributedDataParallel: seconds and memory, two ranks of one thread each.

    python bench/data_parallel.py                      all models
    python bench/data_parallel.py mlp lenet            some
    python bench/data_parallel.py --pairs 400          more pairs, narrower intervals

Both wrap the same model in the same two processes and take steps in turn: forward, backward, SGD, on one batch. A pair
is one step of ours and one of torch's, in random order; the ratio is ours by torch's, of the slower rank. Printed are
the median ratio with its 95 % interval (bootstrap over pairs), and the same of torch's against torch's in the same run,
which says what the machine alone does. "At most 1.00 x" holds when the upper end is below 1.03.

Memory is what tensors hold at the most during a step beyond the bare model's own step, from torch's allocation
profiler: the least of three runs, since what one thread frees while another allocates may be written down in either
order.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from lockstep.comm import Communicator
from lockstep.nn.models import LeNet
from lockstep.parallel import DistributedDataParallel
from lockstep.world import launch

RANKS = 2


def mlp() -> nn.Module:
    """0.1 M parameters in four tensors."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


def deep_mlp() -> nn.Module:
    """0.3 M parameters in 40 tensors: what a hook costs shows here."""
    layers = [nn.Flatten(), nn.Linear(784, 128), nn.ReLU()]
    for _ in range(18):
        layers += [nn.Linear(128, 80) if len(layers) == 3 else nn.Linear(80, 80), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(80, 10))


def wide_mlp() -> nn.Module:
    """4 M parameters and little arithmetic: communication shows here."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 1536), nn.ReLU(), nn.Linear(1536, 1792), nn.ReLU(), nn.Linear(1792, 10)
    )


def resnet18() -> nn.Module:
    """11 M parameters: torchvision's ResNet-18 with the first layers that 32x32 images need."""
    from torchvision.models import resnet18

    model = resnet18(num_classes=10)
    model.conv1, model.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
    return model


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {  # with image shape and batch of a rank
    "mlp": (mlp, (1, 28, 28), 32),
    "deep_mlp": (deep_mlp, (1, 28, 28), 32),
    "lenet": (LeNet, (1, 28, 28), 32),
    "wide_mlp": (wide_mlp, (1, 28, 28), 32),
    "resnet18": (resnet18, (3, 32, 32), 4),
}


def wrapped(kind: str, model: nn.Module, comm: Communicator) -> nn.Module:
    if kind == "ours":
        return DistributedDataParallel(model, comm)
    return nn.parallel.DistributedDataParallel(model)


class Trainer:
    """A model of one kind and a step of it."""

    def __init__(self, name: str, kind: str, comm: Communicator) -> None:
        build, shape, batch = MODELS[name]
        torch.manual_seed(0)
        bare = build()
        self.model = bare if kind == "bare" else wrapped(kind, bare, comm)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.images, self.labels = torch.randn(batch, *shape), torch.randint(10, (batch,))

    def step(self) -> None:
        self.optimizer.zero_grad()
        F.cross_entropy(self.model(self.images), self.labels).backward()
        self.optimizer.step()


def steps_in_turn(comm: Communicator, name: str, pairs: int) -> Tensor:
    """Seconds of this rank's steps, [pairs, 3]: ours, torch's, torch's again."""
    trainers = [Trainer(name, kind, comm) for kind in ("ours", "torch", "torch")]
    order = random.Random(0)
    taken = torch.zeros(pairs, len(trainers))
    for pair in range(-8, pairs):  # the first ones warm up: torch makes its buckets anew after one step
        for which in order.sample(range(len(trainers)), len(trainers)):
            comm.barrier()
            begun = time.perf_counter()
            trainers[which].step()
            if pair >= 0:
                taken[pair, which] = time.perf_counter() - begun
    return taken


def peak_bytes(comm: Communicator, name: str, kind: str) -> int:
    """The most bytes that tensors hold at once in the third step, beyond those held before the first."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the profiler greets
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        trainer = Trainer(name, kind, comm)
        for _ in range(3):
            trainer.step()
    return _peak(profiler)


def _peak(profiler: Any) -> int:
    """From the profiler's list of allocations; it has no public total."""
    held, most = 0, 0
    for event in sorted(profiler.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most


def interval(ratios: np.ndarray, draws: int = 4000) -> tuple[float, float, float]:
    """(median, lower, upper): 95 % by resampling pairs."""
    picked = np.random.default_rng(0).choice(ratios, (draws, len(ratios)))
    low, high = np.quantile(np.median(picked, axis=1), [0.025, 0.975])
    return float(np.median(ratios)), float(low), float(high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", choices=[[], *MODELS], default=[])
    parser.add_argument("--pairs", type=int, default=200)
    options = parser.parse_args()
    print(f"{RANKS} ranks, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, torch {torch.__version__}")
    print(
        f"{'model':<10}{'M params':>9}{'torch ms':>10}{'ours / torch':>23}{'torch / torch':>23}"
        f"{'MB bare':>9}{'+ ours':>8}{'+ torch':>8}"
    )
    for name in options.models or MODELS:
        parameters = sum(p.numel() for p in MODELS[name][0]().parameters()) / 1e6
        run = launch(steps_in_turn, RANKS, name, options.pairs, timeout=3600)
        ours, first, second = torch.stack(run.values).amax(0).numpy().T
        shown = ["{:.3f} [{:.3f}, {:.3f}]".format(*interval(ratio)) for ratio in (ours / first, second / first)]
        bare, ours_peak, torch_peak = (
            min(launch(peak_bytes, RANKS, name, kind, timeout=600).values[0] for _ in range(3)) / 1e6
            for kind in ("bare", "ours", "torch")
        )
        print(
            f"{name:<10}{parameters:>9.2f}{np.median(first) * 1e3:>10.2f}{shown[0]:>23}{shown[1]:>23}"
            f"{bare:>9.1f}{ours_peak - bare:>8.1f}{torch_peak - bare:>8.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
