"""A step of ZeRO beside torch's: stage 3 against FSDP2, stage 1 against ZeroRedundancyOptimizer; two ranks, one thread each.

    python bench/zero.py                 ResNet-18 at 32x32
    python bench/zero.py mlp --pairs 400

Each pair is one step of ours and one of torch's in random order, in the same two processes: forward, backward, Adam. The
ratio is ours by torch's, of the slower rank; printed is the median with its 95 % interval (bootstrap over pairs).
FSDP2 shards each block of the network, as its guide advises; ZeroRedundancyOptimizer steps behind torch's
DistributedDataParallel. Memory is what tensors hold at the most during a step beyond those held before the model was
made, from torch's allocation profiler: the least of three runs.
"""

from __future__ import annotations

import argparse
import copy
import os
import random
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch
from data_parallel import MODELS, RANKS, _peak, interval
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from lockstep.comm import Communicator
from lockstep.parallel import ZeRO
from lockstep.world import launch

LR = 1e-4
SIDES = {"stage 3 / FSDP2": ("zero3", "fsdp2"), "stage 1 / ZeroRedundancyOptimizer": ("zero1", "redundancy")}


def stepper(kind: str, bare: nn.Module, comm: Communicator, images: Tensor, labels: Tensor) -> Callable[[], None]:
    """A training step of one kind."""
    if kind in ("zero1", "zero3"):
        model = ZeRO(bare, lambda shards: torch.optim.Adam(shards, lr=LR), comm, stage=int(kind[-1]))
        step, zero_grad = model.step, model.zero_grad
    elif kind == "fsdp2":
        for child in bare.children():
            if any(True for _ in child.parameters()):
                fully_shard(child)
        model = fully_shard(bare)
        optimizer = torch.optim.Adam(model.parameters(), lr=LR)
        step, zero_grad = optimizer.step, optimizer.zero_grad
    else:
        model = nn.parallel.DistributedDataParallel(bare)
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=LR)
        step, zero_grad = optimizer.step, optimizer.zero_grad

    def run() -> None:
        zero_grad()
        F.cross_entropy(model(images), labels).backward()
        step()

    return run


def made(name: str, kind: str, comm: Communicator) -> Callable[[], None]:
    build, shape, batch = MODELS[name]
    torch.manual_seed(0)
    bare = build()
    return stepper(kind, copy.deepcopy(bare), comm, torch.randn(batch, *shape), torch.randint(10, (batch,)))


def steps_in_turn(comm: Communicator, name: str, kinds: tuple[str, ...], pairs: int) -> Tensor:
    """Seconds of this rank's steps, [pairs, kinds]."""
    warnings.simplefilter("ignore")  # torch's reduce-scatter warns of its own new name
    steps = [made(name, kind, comm) for kind in kinds]
    order = random.Random(0)
    taken = torch.zeros(pairs, len(kinds))
    for pair in range(-8, pairs):
        for which in order.sample(range(len(kinds)), len(kinds)):
            comm.barrier()
            begun = time.perf_counter()
            steps[which]()
            if pair >= 0:
                taken[pair, which] = time.perf_counter() - begun
    return taken


def peak_bytes(comm: Communicator, name: str, kind: str) -> int:
    """The most bytes that tensors hold at once in three steps, model included."""
    warnings.simplefilter("ignore")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the profiler greets
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step = made(name, kind, comm)
        for _ in range(3):
            step()
    return _peak(profiler)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", choices=list(MODELS), default="resnet18")
    parser.add_argument("--pairs", type=int, default=200)
    options = parser.parse_args()
    print(
        f"{options.model}, {RANKS} ranks, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, torch {torch.__version__}"
    )
    for title, (ours, theirs) in SIDES.items():
        run = launch(steps_in_turn, RANKS, options.model, (ours, theirs), options.pairs, timeout=3600)
        mine, torchs = torch.stack(run.values).amax(0).numpy().T
        ratio = "{:.3f} [{:.3f}, {:.3f}]".format(*interval(mine / torchs))
        peaks = [
            min(max(launch(peak_bytes, RANKS, options.model, kind, timeout=600).values) for _ in range(3)) / 1e6
            for kind in (ours, theirs)
        ]
        print(
            f"{title:<36} torch {np.median(torchs) * 1e3:8.2f} ms   ours / torch {ratio}   "
            f"peak MB {peaks[0]:.1f} / {peaks[1]:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
