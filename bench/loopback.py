"""Bytes that a training step sends, counted by our communicator and by the loopback interface of the kernel.

    python bench/loopback.py                 a network of 4 M parameters, 20 steps each, 2 and 3 ranks
    unshare --net sh -c 'ip link set lo up && python bench/loopback.py'      with an interface that nobody else uses

Between two barriers, rank 0 reads what /proc/net/dev says the interface `lo` has sent (Linux only). That holds TCP's
headers and acknowledgements too, and whatever else this machine sends to itself meanwhile, so a quiet machine or a
network namespace of its own is needed. `ours` is the sum over ranks of `comm.traffic`; `formula` is the ZeRO paper's
2 psi, 2 psi, 3 psi times (N-1)/N times N ranks, in bytes (Rajbhandari et al. 2020, section 7). gloo's own reduce-scatter
stands below: it sends as much as its all-reduce, which is why ours is a ring of our own.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn

from lockstep.comm import Communicator
from lockstep.parallel import DistributedDataParallel, ZeRO
from lockstep.world import launch

WIDTH = 1152
LAYERS = 3
PSI = LAYERS * WIDTH * WIDTH  # parameters; divisible by 2 and 3, so that no shard is padded
SHARE = {"data parallel": 2, "ZeRO stage 1": 2, "ZeRO stage 2": 2, "ZeRO stage 3": 3}


def sent_on_loopback() -> int:
    """Bytes that the interface `lo` has sent so far."""
    with open("/proc/net/dev") as table:
        fields = next(line for line in table if line.strip().startswith("lo:")).split(":")[1].split()
    return int(fields[8])


def stepper(comm: Communicator, kind: str) -> Callable[[], None]:
    """A step of training of that kind."""
    torch.manual_seed(0)
    bare = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
    x = torch.randn(4, WIDTH)
    if kind == "data parallel":
        model = DistributedDataParallel(bare, comm)
        optimizer = torch.optim.Adam(model.parameters())
    else:
        model = optimizer = ZeRO(bare, lambda shards: torch.optim.Adam(shards), comm, stage=int(kind[-1]))

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def reduce_scatter_of_gloo() -> Callable[[], None]:
    """torch's own reduce-scatter of as many numbers."""
    warnings.simplefilter("ignore")
    whole = torch.ones(PSI)
    mine = torch.empty(PSI // dist.get_world_size())
    return lambda: dist.reduce_scatter_tensor(mine, whole)


def counts(comm: Communicator) -> int:
    """Bytes that this rank's communicator has counted, those of the backend's collectives included."""
    return comm.traffic.bytes_sent + sum(comm.traffic.nominal.values())


def counted(comm: Communicator, kind: str, steps: int) -> tuple[float, float]:
    """(bytes on loopback, bytes that this rank's communicator counted) of one step, after two that warm up."""
    step = reduce_scatter_of_gloo() if kind == "gloo's reduce-scatter" else stepper(comm, kind)
    for _ in range(2):
        step()
    comm.barrier()
    before, counter = sent_on_loopback(), counts(comm)
    for _ in range(steps):
        step()
    comm.barrier()
    return (sent_on_loopback() - before) / steps, (counts(comm) - counter) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    for ranks in (2, 3):
        for kind in (*SHARE, "gloo's reduce-scatter"):
            values = launch(counted, ranks, kind, options.steps, timeout=600).values
            formula = SHARE.get(kind, 1) * (ranks - 1) * PSI * 4
            print(
                f"{ranks} ranks, {kind:<22} formula {formula / 1e6:8.3f} MB   ours {sum(v[1] for v in values) / 1e6:8.3f} MB"
                f"   loopback {values[0][0] / 1e6:8.3f} MB, {values[0][0] / formula:.4f} x the formula",
                flush=True,
            )


if __name__ == "__main__":
    main()
