"""How closely a paced message takes the time of the link that it is on.

Run: python bench/paced.py [rounds]
For messages of 64 KiB to 16 MiB and links of 0.1 and 1 Gbit/s: seconds from `send` on one rank and `recv` on the other,
whichever is called later, until `recv` returns, over latency + bytes / bandwidth. Median, fastest and slowest of
`rounds` (31). Idle: two ranks that do nothing else. Busy: the same while as many other processes compute as there are
cores. Crowded: four ranks that all exchange with a neighbour at once. At the end, a ring all-reduce of four ranks over its
predicted seconds.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator

import torch

from lockstep.comm import Communicator, predict_seconds
from lockstep.hardware import Link
from lockstep.world import launch

SIZES = (2**16, 2**18, 2**20, 2**22, 2**24)
LINKS = (Link(200e-6, 12.5e6), Link(50e-6, 125e6))


def one_way(comm: Communicator, size: int, rounds: int) -> list[float]:
    """Seconds from `send` on rank 0 to the return of `recv` on rank 1, which is called before it."""
    x, stamp = torch.ones(size, dtype=torch.uint8), torch.zeros(1, dtype=torch.float64)
    taken = []
    for _ in range(rounds + 1):
        comm.barrier()
        if comm.rank == 0:
            with comm.span("let the other one wait", cost=2e-3):
                pass
            begun = comm.now()
            comm.send(x, 1)
            stamp[0] = begun
            comm.send(stamp, 1)
        else:
            waiting = comm.now()
            comm.recv(x, 0)
            there = comm.now()
            comm.recv(stamp, 0)
            taken.append(there - max(waiting, stamp.item()))
    return taken[1:]


def all_at_once(comm: Communicator, size: int, rounds: int) -> list[float]:
    """Seconds of an exchange with both neighbours of a ring, all ranks at once."""
    x, y = torch.ones(size, dtype=torch.uint8), torch.ones(size, dtype=torch.uint8)
    taken = []
    for _ in range(rounds + 1):
        comm.barrier()
        begun = comm.now()
        comm.exchange([(x, (comm.rank + 1) % comm.size)], [(y, (comm.rank - 1) % comm.size)])
        taken.append(comm.now() - begun)
    return taken[1:]


def all_reduce(comm: Communicator, size: int, rounds: int) -> list[float]:
    """Seconds of an all-reduce of `size` bytes."""
    x = torch.ones(size // 4)
    taken = []
    for _ in range(rounds + 1):
        comm.barrier()
        begun = comm.now()
        comm.all_reduce(x)
        taken.append(comm.now() - begun)
    return taken[1:]


@contextlib.contextmanager
def competitors(count: int) -> Iterator[None]:
    """So many other processes that compute all the time."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def row(program, ranks: int, link: Link, size: int, rounds: int, nominal: float) -> str:
    run = launch(program, ranks, size, rounds, pace=True, link=link, timeout=600)
    ratios = sorted(seconds / nominal for seconds in run.values[1])
    assert ratios[0] > 1, "a message arrived before its time"
    return f"{statistics.median(ratios):>10.3f}{ratios[0]:>10.3f}{ratios[-1]:>10.3f}"


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 31
    cores = os.cpu_count() or 1
    print(f"{cores} cores, load {os.getloadavg()[0]:.1f}, torch {torch.__version__}; times over nominal")
    head = f"{'median':>10}{'fastest':>10}{'slowest':>10}"
    print(f"{'Gbit/s':>7}{'KiB':>8}{'nominal ms':>12}   idle: {head}   busy: {head}   crowded: {head}")
    for link in LINKS:
        for size in SIZES:
            few = min(rounds, max(5, int(4 / link.seconds(size))))
            nominal = link.seconds(size)
            idle = row(one_way, 2, link, size, few, nominal)
            with competitors(cores):
                busy = row(one_way, 2, link, size, few, nominal)
            crowded = row(all_at_once, 4, link, size, few, nominal)
            print(
                f"{link.bandwidth * 8e-9:>7.1f}{size // 1024:>8}{nominal * 1e3:>12.2f}   "
                f"      {idle}         {busy}            {crowded}",
                flush=True,
            )
    link = LINKS[1]
    for size in SIZES[1:]:
        nominal = predict_seconds("ring_all_reduce", size, 4, link.latency, link.bandwidth)
        print(f"ring all-reduce of {size // 1024} KiB, 4 ranks, 1 Gbit/s, {nominal * 1e3:.2f} ms nominal: {head}")
        print(" " * 67 + row(all_reduce, 4, link, size, min(rounds, 15), nominal), flush=True)


if __name__ == "__main__":
    main()
