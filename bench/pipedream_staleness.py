"""What stale weights cost, over several starts: the claim of lab 07, section 6.

    python bench/pipedream_staleness.py      five starts, about a minute

The net of the lab on `digits`, SGD, one update for each micro-batch of 32 images, 120 updates. Printed: the mean loss
of the last 40 updates on one rank, where gradients are fresh, and by PipeDream on four, at two learning rates.
"""

from __future__ import annotations

import statistics

import torch
import typer
from torch import nn
from torch.nn import functional as F

from lockstep.comm import Communicator
from lockstep.data import load
from lockstep.parallel.pipeline import Pipeline, Schedule, pipedream
from lockstep.world import simulate

UPDATES, EPOCHS, SIZE, RATES = 40, 3, 32, (0.3, 0.1)


def stages(seed: int) -> list[nn.Module]:
    """As in the lab: four linear layers, one on each rank."""
    torch.manual_seed(seed)
    middle = [nn.Sequential(nn.Linear(48, 48), nn.Tanh()) for _ in range(2)]
    return [nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.Tanh()), *middle, nn.Linear(48, 10)]


def losses(comm: Communicator, schedule: Schedule, rate: float, seed: int) -> list[float]:
    """The loss of every micro-batch; empty but on the last rank."""
    model = stages(seed) if schedule.chunks == 4 else [nn.Sequential(*stages(seed))]
    pipe = Pipeline(model, comm, schedule, F.cross_entropy, optimizer=lambda p: torch.optim.SGD(p, rate))
    digits = load("digits", verbose=False)
    generator, found = torch.Generator().manual_seed(seed), []
    for _ in range(EPOCHS):
        order = torch.randperm(UPDATES * SIZE, generator=generator)
        if pipe.step(digits.images[order], digits.labels[order]) is not None:
            found += [loss.item() for loss in pipe.losses]
    return found


def main(starts: int = 5) -> None:
    """Print one line for each start, then in how many the stale run was behind."""
    torch.set_num_threads(1)
    print("start   " + "   ".join(f"rate {rate}: fresh  stale" for rate in RATES))
    behind = []
    for seed in range(starts):
        ends = []
        for rate in RATES:
            runs = [simulate(losses, p, pipedream(p, UPDATES), rate, seed, timeout=120) for p in (1, 4)]
            ends.append([statistics.mean(run.values[-1][-UPDATES:]) for run in runs])
        behind.append(ends[0][1] - ends[0][0] > ends[1][1] - ends[1][0] > 0)
        print(f"{seed:5}   " + "   ".join(f"{fresh:15.2f} {stale:6.2f}" for fresh, stale in ends), flush=True)
    print(f"stale is behind, and more so at the higher rate, in {sum(behind)} of {starts}")


if __name__ == "__main__":
    typer.run(main)
