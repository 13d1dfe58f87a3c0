"""Seconds of a data-parallel step, predicted before it runs and then measured: two ranks of one thread each.

    python bench/step_prediction.py

In one run, for each model of `bench/data_parallel.py`: the backend's all-reduce is timed at some sizes and latency and
bandwidth are fitted to it; each layer's seconds are measured on both ranks at once, in a wrapped model whose exchange
sends nothing; the seconds of the optimizer's step are measured; and from these alone `predict_step` says how long a
step will take. Then steps are taken.

Two predictions stand beside what is measured: communication hidden behind backward, as on machines whose network needs
no core, and none hidden, since here the backend's threads add and copy on the cores that backward computes on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from statistics import median

import torch
from data_parallel import MODELS, RANKS, Trainer
from torch import Tensor
from torch.nn import functional as F

from lockstep.comm import Bucket, Communicator, Handle
from lockstep.parallel import DistributedDataParallel, measure_profile, predict_step
from lockstep.world import fit_collective, launch, time_collectives

SIZES = tuple(4 * 16**k for k in range(1, 7))  # 64 B to 64 MiB
STEPS = 60


class Nothing:
    """An exchange that sends nothing: what a wrapped model costs by itself. Its handle is itself."""

    exact = True

    def start(self, comm: Communicator, bucket: Bucket) -> Handle:
        return self

    def wait(self) -> None:
        return None


def predicted_and_measured(comm: Communicator, name: str) -> tuple[float, float, float]:
    """Seconds of a step on this rank: predicted with overlap, predicted without, measured."""
    points = time_collectives(comm, {"all_reduce": comm.all_reduce}, SIZES, budget=0.2)["all_reduce"]
    latency, bandwidth, _ = fit_collective("ring_all_reduce", comm.size, points)
    bare, ddp = Trainer(name, "bare", comm), Trainer(name, "ours", comm)
    silent = DistributedDataParallel(bare.model, comm, exchange=Nothing())
    comm.barrier()

    def loss() -> Tensor:
        bare.optimizer.zero_grad()
        return F.cross_entropy(silent(bare.images), bare.labels)

    layers = measure_profile(bare.model, loss, repeats=15)
    hidden, shown = (
        predict_step(bare.model, layers, comm.size, latency, bandwidth, overlap=overlap).seconds
        for overlap in (True, False)
    )
    rest = _median_seconds(comm, bare.optimizer.step, before=lambda: loss().backward())
    return hidden + rest, shown + rest, _median_seconds(comm, ddp.step)


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
    print(f"{'model':<10}{'measured ms':>13}{'predicted, hidden':>24}{'predicted, not hidden':>27}")
    for name in MODELS:
        each = launch(predicted_and_measured, RANKS, name, timeout=900).values
        *predicted, measured = max(each, key=lambda row: row[2])
        shown = [f"{seconds * 1e3:.2f} ({seconds / measured - 1:+.0%})" for seconds in predicted]
        print(f"{name:<10}{measured * 1e3:>13.2f}{shown[0]:>24}{shown[1]:>27}", flush=True)


if __name__ == "__main__":
    main()
