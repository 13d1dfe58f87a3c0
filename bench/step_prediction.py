"""Seconds of a data-parallel step, predicted before it runs and then measured: two ranks of one thread each.

    python bench/step_prediction.py

In one run, for each model of `bench/data_parallel.py`: the backend's all-reduce is timed at some sizes and latency and
bandwidth are fitted to it; each layer's seconds are measured without any communication, on both ranks at once; the
seconds of the optimizer's step are measured; and from these alone `predict_step` says how long a step will take. Then
steps are taken. The last column is what the prediction is off by.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from statistics import median

import torch
from data_parallel import MODELS, RANKS, Trainer
from torch.nn import functional as F

from lockstep.comm import Communicator
from lockstep.parallel import measure_profile, predict_step
from lockstep.world import fit_collective, launch, time_collectives

SIZES = tuple(4 * 16**k for k in range(1, 7))  # 64 B to 64 MiB
STEPS = 60


def predicted_and_measured(comm: Communicator, name: str) -> tuple[float, float, float]:
    """(predicted seconds of a step, of them exposed, measured seconds), on this rank."""
    points = time_collectives(comm, {"all_reduce": comm.all_reduce}, SIZES, budget=0.2)["all_reduce"]
    latency, bandwidth, _ = fit_collective("ring_all_reduce", comm.size, points)
    bare, ddp = Trainer(name, "bare", comm), Trainer(name, "ours", comm)
    comm.barrier()
    layers = measure_profile(bare.model, lambda: F.cross_entropy(bare.model(bare.images), bare.labels), repeats=15)
    step = predict_step(bare.model, layers, comm.size, latency, bandwidth)
    rest = _median_seconds(comm, lambda: (bare.optimizer.step(), bare.optimizer.zero_grad()), before=bare.step)
    return step.seconds + rest, step.exposed, _median_seconds(comm, ddp.step)


def _median_seconds(comm: Communicator, call: Callable[[], object], before: Callable[[], object] = int) -> float:
    taken = []
    for _ in range(STEPS):
        before()
        comm.barrier()
        begun = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begun)
    return median(taken[5:])


def main() -> None:
    print(f"{RANKS} ranks, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, torch {torch.__version__}")
    print(f"{'model':<10}{'predicted ms':>14}{'of it exposed':>15}{'measured ms':>13}{'off by':>9}")
    for name in MODELS:
        each = launch(predicted_and_measured, RANKS, name, timeout=900).values
        predicted, exposed, measured = max(each, key=lambda row: row[2])
        print(
            f"{name:<10}{predicted * 1e3:>14.2f}{exposed * 1e3:>15.2f}{measured * 1e3:>13.2f}"
            f"{predicted / measured - 1:>+9.0%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
