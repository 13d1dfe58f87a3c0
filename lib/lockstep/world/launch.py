"""`launch`: run a rank function on real processes, from a notebook or a script.

Floor 1. Read `run.py` for what comes back, `supervise.py` for the watch over the ranks, `warm.py` and
`spares.py` for where their processes come from.
"""

from __future__ import annotations

import inspect
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import torch

from lockstep.comm.board import Board
from lockstep.comm.recorder import Recorder
from lockstep.hardware import Device, Link
from lockstep.trace import Message, Trace
from lockstep.world import spares
from lockstep.world.copies import HomeUnpickler
from lockstep.world.forked import ForkedRanks, WarmParentLost, working_directory
from lockstep.world.paced import Pace, pace_of
from lockstep.world.ports import Ports
from lockstep.world.rank import Job
from lockstep.world.report import RankState, shown_alone
from lockstep.world.run import Run, RunError
from lockstep.world.shipping import pack_and_list
from lockstep.world.supervise import Processes, Supervisor

MOST_RANKS = 100  # descriptors of one request to the warm parent, and memory, end here
LONGEST = 7 * 24 * 3600.0  # seconds
METHODS = ("fork", "spawn")
BACKENDS = ("auto", "gloo", "nccl")


def launch(
    fn: Callable[..., Any],
    ranks: int,
    *args: Any,
    backend: str = "auto",
    timeout: float = 60,
    threads: int = 1,
    seed: int = 0,
    pace: bool = False,
    link: Link | str | None = None,
    device: Device | str | None = None,
    slow: Mapping[int, float] | None = None,
    start_method: str | None = None,
    **kwargs: Any,
) -> Run:
    """Run `fn(comm, *args, **kwargs)` on `ranks` fresh processes of this machine and wait for all of them.

    Each rank gets its own copy of function and arguments, sent by value; `threads` torch threads; and
    torch, NumPy and `random` seeded from (`seed`, rank). backend: "auto" is NCCL when every rank can
    have its own GPU, otherwise gloo on the CPU. timeout: seconds for the function, not counting the
    start of the processes. start_method: "fork" (from a warm parent; the default on Linux) or "spawn".
    What a rank returns comes back as a copy on the CPU, without a graph. A rank ends, with every thread
    and process it started, when all ranks have returned.

    A *paced* run takes as long as other hardware would, by sleeping. pace: spans and charged layers last at least
    their cost, `Cost`s on `device` (a `Device` or its name). link: a message moves as on this `Link` (or its
    name) between any two ranks, which also needs `pace`; collectives are then `comm`'s own algorithms. A message is
    never early; on idle cores 64 KiB to 16 MiB are within 5 % on links up to 1 Gbit/s, and on busy ones late by as
    long as a rank waits for a core (`bench/paced.py`). slow: `{1: 2.0}` lets rank 1 take twice as long, for its costs
    in a paced run, and for what its compute spans really took where no cost is paced; work outside spans is as
    fast as ever. Such runs are on the CPU.

    Raises RankError (a rank raised, was killed or left), DeadlockError, RunTimeout; ValueError or
    TypeError for arguments that cannot be right.
    """
    ranks = _whole("ranks", ranks, MOST_RANKS, "each rank is a process of its own; simulate() runs thousands")
    paced = pace_of(ranks, pace, link, device, slow, backend)
    settings = Settings(
        "gloo" if paced else _backend(backend, ranks),
        seconds_limit(timeout),
        _whole("threads", threads, 1024, "more threads than any processor has"),
        _seed(seed),
        start_method_name(start_method),
        paced,
    )
    _check_call(fn, args, kwargs)
    states = run_processes(fn, args, kwargs, ranks, settings, group=True)
    return collect(states, "processes" if paced is None else "paced")


OPTIONS = [name for name, p in inspect.signature(launch).parameters.items() if p.kind is p.KEYWORD_ONLY]


@dataclass(frozen=True)
class Settings:
    """How ranks are run; `backend` is torch's name for the group."""

    backend: str = "gloo"
    timeout: float = 60.0
    threads: int = 1
    seed: int = 0
    method: str = "fork"
    pace: Pace | None = None


def run_processes(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], ranks: int, settings: Settings, group: bool
) -> list[RankState]:
    """One supervised run; `group` says whether the ranks form a process group and get a communicator."""
    call, modules = pack_and_list(fn, args, kwargs)
    for attempt in (1, 2):
        with _scratch() as scratch:
            jobs = [_job(rank, ranks, scratch, settings, group) for rank in range(ranks)]
            board = Board.create(Path(scratch, "board"), ranks) if group else None
            if settings.pace is not None and settings.pace.link is not None:
                Ports.create(Path(scratch, "ports"), ranks)
            try:
                if settings.method == "fork":
                    processes: Processes = ForkedRanks(ranks, scratch, modules)
                else:
                    processes = spares.SpawnedRanks(ranks, scratch)
                return Supervisor(processes, jobs, call, settings.timeout, board).run()
            except WarmParentLost:
                if attempt == 2:
                    raise
            except KeyboardInterrupt:
                stopped = (
                    f"the run was interrupted, and its {ranks} {'ranks were' if ranks > 1 else 'rank was'} stopped"
                )
                raise shown_alone(KeyboardInterrupt(stopped)) from None
            finally:
                if board is not None:
                    board.close()
                if settings.method == "spawn":
                    spares.refill(ranks)
    raise AssertionError("unreachable")


def _job(rank: int, size: int, scratch: str, settings: Settings, group: bool) -> Job:
    return Job(
        rank=rank,
        size=size,
        scratch=scratch,
        env=dict(os.environ),
        cwd=working_directory(),
        path=list(sys.path),
        threads=settings.threads,
        seed=settings.seed,
        backend=settings.backend,
        group=group,
        stacks_by_signal=os.name == "posix",
        pace=settings.pace,
    )


@contextmanager
def _scratch() -> Iterator[str]:
    """A new directory for one run: the rendezvous, the board, the stacks."""
    try:
        folder = tempfile.mkdtemp(prefix="lockstep-")
    except OSError as error:
        raise RunError(f"launch needs a directory for temporary files and found none: {error}. Set TMPDIR.") from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def collect(states: Sequence[RankState], world: str = "processes") -> Run:
    """Values, trace and traffic of a run that ended well; `world` is the trace's."""
    records = [state.record[0] for state in states]
    spans = [span for record in records for span in record.spans]
    return Run(
        values=[value_of(state) for state in states],
        trace=Trace.of(len(states), spans, _messages(records), world),
        traffic=[state.record[1] for state in states],
        seconds=max(state.seconds for state in states),
    )


def value_of(state: RankState) -> Any:
    """What a rank returned. RunError when this process cannot rebuild it."""
    try:
        return HomeUnpickler(state.value or b"").load()
    except Exception as error:
        raise RunError(
            f"what rank {state.rank} returned arrived, but cannot be rebuilt here ({type(error).__name__}: {error}); "
            f"return numbers, tensors, or lists and dicts of them"
        ) from None


def _messages(records: Sequence[Recorder]) -> Iterator[Message]:
    """Join the sender's and the receiver's half of each message: it moves once both have been posted."""
    sent = {(r.rank, dst, index): posted for r in records for dst, index, _, posted in r.sent}
    for record in records:
        for (src, index, size, arrived), posted in zip(record.received, record.receive_posts, strict=True):
            start = sent.get((src, record.rank, index))
            if start is not None:
                yield Message(src, record.rank, size, max(start, posted), arrived)


def _check_call(fn: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Say in the kernel, before any process starts, that the function does not take what it would get."""
    if not callable(fn):
        raise TypeError(f"launch: the first argument is the function to run, not {fn!r}")
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):  # some functions written in C do not tell
        return
    try:
        signature.bind(None, *args, **kwargs)
    except TypeError as error:
        name = getattr(fn, "__name__", type(fn).__name__)
        raise TypeError(
            f"launch: every rank calls {name}(comm, ...) with the arguments that follow `ranks`, and {name}{signature} "
            f"does not take them: {error}. Options of launch itself are {', '.join(OPTIONS)}"
        ) from None


def _whole(name: str, value: Any, most: int, why: str) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"launch: {name} is a whole number, at least 1, not {value!r}")
    if value < 1:
        raise ValueError(f"launch: {name} is at least 1, not {value}")
    if value > most:
        raise ValueError(f"launch: {name}={value} is more than {most}: {why}")
    return int(value)


def seconds_limit(value: Any) -> float:
    """A time limit that can be one."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"timeout is a number of seconds, not {value!r}")
    if not 0 < value <= LONGEST:
        raise ValueError(f"timeout is more than 0 and at most {LONGEST:,.0f} seconds (a week), not {value}")
    return float(value)


def _seed(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 0:
        raise ValueError(f"launch: seed is a whole number, at least 0, not {value!r}")
    return int(value)


def start_method_name(value: str | None) -> str:
    """ "fork" where a warm parent can be forked (Linux), unless asked otherwise."""
    if value is None:
        return "fork" if sys.platform == "linux" else "spawn"
    if value not in METHODS:
        raise ValueError(f"launch: start_method is 'fork', 'spawn' or None (the best one here), not {value!r}")
    if value == "fork" and sys.platform != "linux":
        raise ValueError("launch: start_method='fork' is for Linux only; leave it out to use 'spawn'")
    return value


def _backend(name: str, ranks: int) -> str:
    """The group's backends as torch wants them; looks for GPUs only when they could be used."""
    if name not in BACKENDS:
        raise ValueError(f"launch: backend is 'auto', 'gloo' or 'nccl', not {name!r}")
    if name == "gloo":
        return "gloo"
    gpus = torch.cuda.device_count() if torch.distributed.is_nccl_available() else 0
    if gpus >= ranks:
        return "cpu:gloo,cuda:nccl"
    if name == "nccl":
        raise ValueError(
            f"launch: backend='nccl' needs a GPU of its own for each of the {ranks} ranks, and there "
            f"{'is' if gpus == 1 else 'are'} {gpus}; backend='gloo' runs them on the CPU"
        )
    return "gloo"
