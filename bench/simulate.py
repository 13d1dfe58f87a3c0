"""How many messages a second the simulated world moves: one ring all-reduce, set-up included.

Run: python bench/simulate.py
Prints ranks, messages, and over `REPEATS` runs the median and the fastest. A ring all-reduce over p ranks is
2(p-1) messages a rank; each message is one hand-over of the baton between two threads.
"""

from __future__ import annotations

import statistics
import time

import torch

from lockstep.comm import Communicator
from lockstep.world import simulate

REPEATS = {8: 15, 64: 7, 256: 3}


def ring_all_reduce(comm: Communicator) -> None:
    """One element a chunk, so that the messages count and not their bytes."""
    comm.all_reduce(torch.ones(comm.size))


def seconds(ranks: int) -> float:
    """Real seconds of one run."""
    begun = time.perf_counter()
    run = simulate(ring_all_reduce, ranks, timeout=300)
    took = time.perf_counter() - begun
    assert len(run.trace.messages) == 2 * ranks * (ranks - 1)
    return took


def main() -> None:
    seconds(2)  # imports
    print(f"{'ranks':>6}{'messages':>10}{'median s':>10}{'fastest s':>11}{'messages/s':>12}")
    for ranks, repeats in REPEATS.items():
        times = [seconds(ranks) for _ in range(repeats)]
        messages, median = 2 * ranks * (ranks - 1), statistics.median(times)
        print(f"{ranks:>6}{messages:>10,}{median:>10.3f}{min(times):>11.3f}{messages / median:>12,.0f}")


if __name__ == "__main__":
    main()
