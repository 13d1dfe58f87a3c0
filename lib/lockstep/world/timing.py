"""How long collectives take on this machine, and the latency and bandwidth that explain it.

Floor 1. `time_collectives` is called by every rank of a run; `fit_collective` turns its times into the two numbers
that `lockstep.comm.predict_seconds` takes. `calibrate` does the same for single messages: a collective's steps cost
more than those, because every rank sends, receives and adds at once on the cores that there are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median

import torch
from torch import Tensor

from lockstep.comm import Communicator, longest_chain
from lockstep.world.calibrate import fit_link

SIZES = tuple(4**k for k in range(1, 14))  # 4 B to 64 MiB
FEWEST, MOST = 3, 40  # calls of each size


def time_collectives(
    comm: Communicator,
    calls: Mapping[str, Callable[[Tensor], object]],
    sizes: Sequence[int] = SIZES,
    budget: float = 0.1,
) -> dict[str, list[tuple[int, float]]]:
    """Median seconds of each of `calls`, by name, as (bytes, seconds) for each of `sizes`; every rank calls it.

    Each call gets a float32 tensor of that many bytes. They take turns, so that a busy moment of the machine meets
    all of them, for about `budget` seconds a size and at least three rounds after one that warms up.
    Raises ValueError for sizes that are no whole number of float32 elements.
    """
    for size in sizes:
        if not isinstance(size, int) or size < 0 or size % 4:
            raise ValueError(f"a size is a number of bytes that float32 elements fill, not {size!r}")
    points: dict[str, list[tuple[int, float]]] = {name: [] for name in calls}
    for size in sizes:
        x = torch.zeros(size // 4)
        first = sum(_seconds(comm, call, x) for call in calls.values())
        wanted = min(max(FEWEST, budget / max(first, 1e-6)), MOST)
        rounds = int(comm.broadcast(torch.tensor(float(wanted))).item())  # the ranks measured different seconds
        times = {name: [] for name in calls}
        for _ in range(rounds):
            for name, call in calls.items():
                times[name].append(_seconds(comm, call, x))
        for name, taken in times.items():
            points[name].append((size, median(taken)))
    return points


def fit_collective(
    algorithm: str, ranks: int, points: Sequence[tuple[int, float]], itemsize: int = 4
) -> tuple[float, float, float]:
    """Latency (s), bandwidth (bytes/s) and median relative error of `predict_seconds(algorithm, ...)` at `points`.

    points: (bytes of the whole tensor, seconds). The bandwidth holds what is added on the way, too.
    Raises ValueError for an unknown algorithm, for one rank, which sends nothing, and as `fit_link`.
    """
    chains = [(longest_chain(algorithm, size, ranks, itemsize=itemsize), seconds) for size, seconds in points]
    if ranks == 1:
        raise ValueError("One rank sends no message, so there is no link to fit: time two ranks or more.")
    return fit_link([(chain.moved / chain.messages, seconds / chain.messages) for chain, seconds in chains])


def _seconds(comm: Communicator, call: Callable[[Tensor], object], x: Tensor) -> float:
    """Of one call that all ranks begin together."""
    comm.barrier()
    begun = time.perf_counter()
    call(x)
    return time.perf_counter() - begun
