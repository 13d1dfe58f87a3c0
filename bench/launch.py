"""How long a cell waits for ranks: `launch` beside the ways a notebook user would start ranks otherwise.

Run: python bench/launch.py [rounds] [--spawn]
Every round starts, by each way in turn, `RANKS` fresh ranks that form a gloo group and all-reduce once.
Prints the median, the fastest, and the ratio of the medians. What is started once and kept (our warm
parent, an ipyparallel cluster) is listed apart. Peers: pip install accelerate ipyparallel.
`--spawn` adds `launch(start_method="spawn")`: at once after a run, and with the spares ready.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing

from lockstep.comm import Communicator
from lockstep.world import launch, spares

RANKS = 4
PAUSE = 1.0  # seconds between two measurements, so that the end of one does not slow the next


def all_reduce_once(comm: Communicator) -> float:
    """The work: one small all-reduce."""
    return comm.all_reduce(torch.ones(1000))[0].item()


def work_in_group(rank: int, size: int, store: str) -> float:
    """The same work for a peer that leaves the group to the user."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", store=dist.FileStore(store, size), rank=rank, world_size=size)
    x = torch.ones(1000)
    dist.all_reduce(x)
    dist.destroy_process_group()
    return x[0].item()


def work_in_accelerate(size: int, store: str) -> None:
    """Started by accelerate, which puts the rank into the environment."""
    assert work_in_group(int(os.environ["RANK"]), size, store) == size


def by_launch() -> None:
    assert launch(all_reduce_once, RANKS).values == [float(RANKS)] * RANKS


def by_spawned_launch() -> None:
    assert launch(all_reduce_once, RANKS, start_method="spawn").values == [float(RANKS)] * RANKS


def by_torch() -> None:
    with rendezvous() as store:
        torch.multiprocessing.spawn(work_in_group, (RANKS, store), nprocs=RANKS)


def by_accelerate() -> None:
    from accelerate import notebook_launcher

    with rendezvous() as store, contextlib.redirect_stdout(io.StringIO()):
        notebook_launcher(work_in_accelerate, (RANKS, store), num_processes=RANKS, use_port="0")


@contextlib.contextmanager
def rendezvous():
    with tempfile.TemporaryDirectory() as folder:
        yield str(Path(folder, "store"))


class Engines:
    """An ipyparallel cluster: started once; a call then runs in processes that are not fresh."""

    def __init__(self) -> None:
        import ipyparallel

        begun = time.perf_counter()
        self.cluster = ipyparallel.Cluster(n=RANKS, log_level=logging.ERROR)
        self.client = self.cluster.start_and_connect_sync()
        self.view = self.client[:]
        self.view.apply_sync(_import_torch)
        self.start_seconds = time.perf_counter() - begun

    def call(self) -> None:
        with rendezvous() as store:
            asked = [engine.apply_async(_engine_work, i, RANKS, store) for i, engine in enumerate(self.client)]
            assert [answer.get() for answer in asked] == [float(RANKS)] * RANKS

    def stop(self) -> None:
        self.client.shutdown(hub=True)
        self.client.close()


def _import_torch() -> None:
    import torch.distributed  # noqa: F401


def _engine_work(rank: int, size: int, store: str) -> float:
    import os

    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", store=dist.FileStore(store, size), rank=rank, world_size=size)
    x = torch.ones(1000)
    dist.all_reduce(x)
    dist.destroy_process_group()
    return x[0].item()


def seconds(way: Callable[[], None]) -> float:
    begun = time.perf_counter()
    way()
    took = time.perf_counter() - begun
    time.sleep(PAUSE)
    return took


def wait_for_spares() -> None:
    """Until the spares that the last run left have imported torch."""
    for spare in list(spares._spares):
        spare.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rounds", type=int, nargs="?", default=7)
    parser.add_argument("--spawn", action="store_true")
    options = parser.parse_args()

    first = seconds(by_launch)
    time.sleep(10)  # the warm parent's background imports
    ways: dict[str, Callable[[], None]] = {"lockstep launch": by_launch, "torch.multiprocessing.spawn": by_torch}
    missing, engines = [], None
    try:
        import accelerate  # noqa: F401

        ways["accelerate notebook_launcher"] = by_accelerate
    except ImportError:
        missing.append("accelerate")
    try:
        engines = Engines()
        ways["ipyparallel, a call"] = engines.call
    except ImportError:
        missing.append("ipyparallel")

    times: dict[str, list[float]] = {name: [] for name in ways}
    try:
        for _ in range(options.rounds):
            for name, way in ways.items():
                times[name].append(seconds(way))
    finally:
        if engines is not None:
            engines.stop()
    if options.spawn:
        times["launch spawn, at once"] = [seconds(by_spawned_launch) for _ in range(2)]
        times["launch spawn, spares ready"] = []
        for _ in range(options.rounds):
            wait_for_spares()
            times["launch spawn, spares ready"].append(seconds(by_spawned_launch))
    report(times, first, engines, missing)


def report(times: dict[str, list[float]], first: float, engines: Engines | None, missing: list[str]) -> None:
    ours = statistics.median(times["lockstep launch"])
    print(
        f"{RANKS} ranks, one all-reduce, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, torch {torch.__version__}"
    )
    print(f"{'':<32}{'median s':>10}{'fastest s':>11}{'ratio':>8}")
    for name, taken in times.items():
        median = statistics.median(taken)
        print(f"{name:<32}{median:>10.3f}{min(taken):>11.3f}{median / ours:>8.1f}")
    print(f"once per kernel: lockstep's first launch {first:.1f} s", end="")
    print(f", an ipyparallel cluster {engines.start_seconds:.1f} s" if engines else "")
    if missing:
        print(f"not installed, so not measured: {', '.join(missing)}")


if __name__ == "__main__":
    main()
