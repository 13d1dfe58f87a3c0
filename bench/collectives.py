"""All-reduce on this machine: ours against the backend's, and what latency and bandwidth predict for each.

Run: python bench/collectives.py [ranks] [--seconds 0.5]
One run; for every size the ways take turns. Ours are written from messages and run as the communicator's collectives,
as data parallelism runs them; "ring by hand" is the same ring on the messages of a user's own program, each of which
is announced to the other ranks. Prints, for each size from 4 B to 64 MiB, measured and predicted seconds (latency and
bandwidth fitted to this run, each algorithm by its own form) and the bus bandwidth; then the ratio of the rings to
the backend, geometric mean over 1, 4, 16 and 64 MiB.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable

import torch
from torch import Tensor

from lockstep.comm import Communicator, bus_bandwidth, predict_seconds
from lockstep.comm.collectives import rabenseifner_all_reduce, recursive_doubling_all_reduce, ring_all_reduce
from lockstep.trace.units import show_bytes, show_seconds
from lockstep.world import fit_collective, launch, time_collectives

MIB = 2**20
JUDGED = (MIB, 4 * MIB, 16 * MIB, 64 * MIB)
# gloo's own all-reduce is a ring, too, so that form is fitted to it.
WAYS = {
    "backend": "ring_all_reduce",
    "ring": "ring_all_reduce",
    "ring by hand": "ring_all_reduce",
    "recursive doubling": "recursive_doubling_all_reduce",
    "Rabenseifner": "rabenseifner_all_reduce",
}


def measure(comm: Communicator, budget: float) -> dict[str, list[tuple[int, float]]]:
    """The rank function."""

    def collective(algorithm: Callable[[Communicator, Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        name = algorithm.__name__
        return lambda x: comm.run_collective(name, f"{name} of {x.numel()}", lambda wire: algorithm(wire, x))

    calls = {
        "backend": comm.all_reduce,
        "ring": collective(ring_all_reduce),
        "ring by hand": lambda x: ring_all_reduce(comm, x),
        "recursive doubling": collective(recursive_doubling_all_reduce),
        "Rabenseifner": collective(rabenseifner_all_reduce),
    }
    return time_collectives(comm, calls, budget=budget)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ranks", type=int, nargs="?", default=2)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each size, all ways together")
    options = parser.parse_args()
    p = options.ranks
    points = launch(measure, p, options.seconds, timeout=600).values[0]

    print(f"{p} ranks, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, torch {torch.__version__}")
    for way, algorithm in WAYS.items():
        latency, bandwidth, error = fit_collective(algorithm, p, points[way])
        print(
            f"\n{way}: a step takes {show_seconds(latency)} + bytes / ({show_bytes(bandwidth)}/s); "
            f"median error {error:.0%}"
        )
        print(f"{'bytes':>12}{'measured':>12}{'predicted':>12}{'of that':>8}{'bus MB/s':>11}")
        for size, seconds in points[way]:
            predicted = predict_seconds(algorithm, size, p, latency, bandwidth)
            bus = bus_bandwidth("all_reduce", size, p, seconds) / 1e6
            print(
                f"{size:>12,}{show_seconds(seconds):>12}{show_seconds(predicted):>12}{seconds / predicted:>8.0%}{bus:>11,.1f}"
            )
    print()
    for way in ("ring", "ring by hand"):
        ratios = [dict(points[way])[size] / dict(points["backend"])[size] for size in JUDGED]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(
            f"{way} / backend at 1, 4, 16, 64 MiB: {', '.join(f'{r:.2f}' for r in ratios)}; geometric mean {mean:.2f}"
        )


if __name__ == "__main__":
    main()
