"""Many ranks in one process, on a virtual clock: the simulated world.

Floor 1, room `world`. The tensors are computed for real, on the CPU; time is what the cluster's links and
devices would take. The same inputs give the same trace, bit for bit.

A rank is a thread, and gets its own copy of function and arguments. Functions and classes of an importable
module are shared, as threads share modules; those of a notebook or `__main__` are not.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from numbers import Real
from typing import Any

import torch

from lockstep.hardware import DEFAULT_CLUSTER, Cluster, Link
from lockstep.hardware import cluster as as_cluster
from lockstep.trace import Message, Span, Trace
from lockstep.world import ending
from lockstep.world.beside import SecondStream
from lockstep.world.copies import Copies
from lockstep.world.generators import Generators
from lockstep.world.groups import Group
from lockstep.world.run import Run
from lockstep.world.scheduler import Scheduler, Strand
from lockstep.world.seeding import torch_seed
from lockstep.world.simulated import SimulatedCommunicator
from lockstep.world.transfers import Network

_one_at_a_time = threading.Lock()  # the process's random numbers belong to one simulation
_thread = threading.local()


def simulate(
    fn: Callable[..., Any],
    ranks: int,
    *args: Any,
    cluster: str | Cluster | Link = DEFAULT_CLUSTER,
    timeout: float = 10,
    seed: int = 0,
    speed: Mapping[int, float] | None = None,
    **kwargs: Any,
) -> Run:
    """Run `fn(comm, *args, **kwargs)` on `ranks` simulated ranks; `run.seconds` is virtual.

    cluster: such as "8xA100 x 8", a `Cluster`, or a `Link` that joins every pair; by default nodes of eight A100,
    as many as the ranks need. timeout: real seconds; a rank inside a long C call ends when that returns.
    seed: rank r draws from (seed, r). speed: `{1: 0.5}` lets rank 1 take twice as long for every cost.

    Raises RankError when a rank raises, DeadlockError as soon as every rank waits, RunTimeout,
    and ValueError for arguments that make no sense.
    """
    simulation = Simulation(_count(ranks), as_cluster(cluster), seed, _speeds(speed, ranks))
    if not isinstance(timeout, Real) or isinstance(timeout, bool) or not timeout > 0:
        raise ValueError(f"timeout must be a number of seconds above 0, not {timeout!r}")
    torch_seed(seed, 0)  # raises here for a seed that is none
    copies = Copies(fn, args, kwargs)
    deadline = time.monotonic() + min(timeout, threading.TIMEOUT_MAX)
    with _alone(), simulation.generators, _one_torch_thread():
        try:
            simulation.start(copies)
            in_time = simulation.scheduler.run(deadline)
            error = simulation.error(copies, None if in_time else timeout)
        finally:
            simulation.scheduler.stop()
    if error is not None:
        raise error from getattr(error, "cause", None)
    return simulation.result(copies)


class Simulation:
    """What the ranks of one run share: baton, network, generators, spans."""

    def __init__(self, ranks: int, cluster: Cluster, seed: int, speeds: list[float]) -> None:
        cluster.check_ranks(ranks)
        self.ranks, self.cluster, self.speeds = ranks, cluster, speeds
        self.scheduler = Scheduler()
        self.network = Network(self.scheduler, cluster, ranks)
        self.generators = Generators(seed)
        self.second_streams = [SecondStream(self.scheduler, rank) for rank in range(ranks)]
        self.spans: list[Span] = []
        self.own: list[Strand] = []  # each rank's own strand
        self._values: list[Any] = [None] * ranks

    def start(self, copies: Copies) -> None:
        """Make every rank runnable at time 0."""
        group = Group(range(self.ranks), whole=True)

        def live(strand: Strand) -> None:
            _thread.simulated = True
            fn, args, kwargs = copies.new()
            self.generators.install(strand.rank)
            comm = SimulatedCommunicator(self, group, strand)
            self._values[strand.rank] = fn(comm, *args, **kwargs)
            comm.finish()

        self.own = [self.scheduler.strand(rank, 0, live) for rank in range(self.ranks)]

    def error(self, copies: Copies, timeout: float | None) -> Exception | None:
        """Why the run did not end well, if so; `timeout` when that was reached. Threads must still be where they were."""
        if self.scheduler.failure is not None:
            strand, raised = self.scheduler.failure
            cause = copies.home(raised).with_traceback(raised.__traceback__)  # which pickling loses
            return ending.rank_failed(self, strand, raised, cause)
        if timeout is not None:
            return ending.timed_out(self, timeout)
        if not all(strand.done for strand in self.own):
            return ending.deadlocked(self)
        return None

    def result(self, copies: Copies) -> Run:
        """The run, when every rank has returned."""
        messages = [Message(*message) for message in self.network.messages]
        clocks = [strand.clock for strand in self.scheduler.strands]
        trace = Trace.of(self.ranks, self.spans, messages, "simulated")
        return Run([copies.home(value) for value in self._values], trace, self.network.traffic, max(clocks))


def _count(ranks: int) -> int:
    if not isinstance(ranks, int) or isinstance(ranks, bool) or ranks < 1:
        raise ValueError(f"ranks must be an integer of at least 1, not {ranks!r}")
    return ranks


def _speeds(speed: Mapping[int, float] | None, ranks: int) -> list[float]:
    speeds = [1.0] * ranks
    for rank, value in (speed or {}).items():
        if not isinstance(rank, int) or not 0 <= rank < ranks:
            raise ValueError(f"speed is given for rank {rank!r}, but the ranks are 0 to {ranks - 1}")
        if not isinstance(value, Real) or isinstance(value, bool) or not 0 < value < math.inf:
            raise ValueError(f"the speed of rank {rank} must be a number above 0, not {value!r}")
        speeds[rank] = float(value)
    return speeds


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One simulation at a time in a process; one inside a rank of another belongs to that."""
    if getattr(_thread, "simulated", False):
        yield
    else:
        with _one_at_a_time:
            yield


@contextlib.contextmanager
def _one_torch_thread() -> Iterator[None]:
    """A rank stands for one device: threads that start in here compute with one thread each, as in `launch`."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
