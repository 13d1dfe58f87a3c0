"""What runs inside a rank's process, however the process was started.

Floor 1. `Job` is what the kernel sends first; then the call itself, packed. The rank sets itself up,
says ("ready", ...), waits for ("go", origin), calls the function and reports. It then stays, with its
process group open, until it is killed: a rank that leaves early breaks the connections of those that
still work, and would be blamed for their errors.
"""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from lockstep.comm.board import Board
from lockstep.comm.errors import NeverWaited
from lockstep.comm.torch_group import TorchCommunicator
from lockstep.world.linked import LinkedCommunicator
from lockstep.world.paced import Pace, PacedCommunicator
from lockstep.world.ports import Ports
from lockstep.world.seeding import seed_rank
from lockstep.world.shipping import dumps, unpack
from lockstep.world.wire import Channel, Message

LOOPBACK = {"linux": "lo", "darwin": "lo0"}


@dataclass(frozen=True)
class Job:
    """Everything a rank must know besides the call. `group` is False for a lone child without a communicator.

    pace: None in a run that takes the time it takes.
    """

    rank: int
    size: int
    scratch: str
    env: dict[str, str]
    cwd: str
    path: list[str]
    threads: int
    seed: int
    backend: str
    group: bool
    stacks_by_signal: bool
    pace: Pace | None = None


@dataclass(frozen=True)
class Failure:
    """An exception as plain data: `frames` is (file, line, function) from the outermost in; `when` is monotonic seconds."""

    kind: str
    text: str
    frames: tuple[tuple[str, int, str], ...]
    when: float
    doing: str


class Rank:
    """One rank, from its job to its report."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.process = os.getpid()
        self.job: Job | None = None
        self.doing = "failed before its function began"
        self.origin = 0.0

    def run(self) -> NoReturn:
        """Do one job, report, and stay until killed; leave if the kernel has gone."""
        try:
            (self.job,), _ = self._receive()
            _, call = self._receive()
            self._work(call)
        except BaseException as error:
            self._leave_if_copy(error)
            self._report_failure(error)
        _flush()
        while True:
            time.sleep(3600)

    def _leave_if_copy(self, error: BaseException | None = None) -> None:
        """The function may have forked: what returns in the copy is nobody's result."""
        if os.getpid() != self.process:
            if error is not None:
                traceback.print_exception(error)
            _flush()
            os._exit(error is not None)

    def _receive(self) -> Message:
        """The next message; without a kernel there is nobody to work for."""
        try:
            return self.channel.receive()
        except EOFError:
            os._exit(0)

    def _work(self, call: bytearray) -> None:
        _enter_environment(self.job)
        self._answer_stack_requests()
        fn, args, kwargs = unpack(call)
        _stand_in_for_main(fn)
        comm = self._open_group() if self.job.group else None
        seed_rank(self.job.seed, self.job.rank)
        self.channel.send("ready", threading.get_ident())
        (_, self.origin), _ = self._receive()
        if not self.job.stacks_by_signal:
            threading.Thread(target=self._serve_stack_requests, daemon=True).start()
        self.doing = "raised"
        value = fn(*args, **kwargs) if comm is None else fn(comm, *args, **kwargs)
        if comm is not None:
            comm.check_all_waited()
        seconds = time.perf_counter() - self.origin
        self._leave_if_copy()
        self.doing = f"returned a {type(value).__name__} that cannot be sent back"
        body = dumps(value)
        record = None
        if comm is not None:
            self.board.finished()
            record = (comm.recorder, comm.traffic)
        _flush()
        self.channel.send("value", seconds, record, body=body)

    def _open_group(self) -> TorchCommunicator:
        job = self.job
        device = torch.device("cpu")
        if job.backend == "cpu:gloo,cuda:nccl":
            device = torch.device("cuda", job.rank)
            torch.cuda.set_device(device)
        dist.init_process_group(
            job.backend,
            store=dist.FileStore(str(Path(job.scratch, "rendezvous")), job.size),
            rank=job.rank,
            world_size=job.size,
            timeout=timedelta(days=7),  # the kernel watches the time, and says more than this limit would
        )
        self.board = Board.open(Path(job.scratch, "board"), job.size, job.rank)
        options = {"device": device, "board": self.board, "clock": lambda: time.perf_counter() - self.origin}
        if job.pace is None:
            return TorchCommunicator(**options)
        if job.pace.link is None:
            return PacedCommunicator(pace=job.pace, **options)
        return LinkedCommunicator(pace=job.pace, ports=Ports(Path(job.scratch, "ports"), job.size), **options)

    def _answer_stack_requests(self) -> None:
        """On SIGUSR1 every thread's stack goes to a file, even while C code holds the interpreter."""
        self.stacks = open(Path(self.job.scratch, f"stacks.{self.job.rank}"), "w")  # noqa: SIM115
        faulthandler.enable(self.stacks, all_threads=False)  # a crash in native code has a line, too
        if self.job.stacks_by_signal:
            faulthandler.register(signal.SIGUSR1, self.stacks, all_threads=True)

    def _serve_stack_requests(self) -> None:
        with contextlib.suppress(EOFError):
            while True:
                self.channel.receive()
                faulthandler.dump_traceback(self.stacks, all_threads=True)

    def _report_failure(self, error: BaseException) -> None:
        failure = Failure(type(error).__name__, _text(error), tuple(_frames(error)), time.monotonic(), self.doing)
        try:
            body = dumps(error)
        except BaseException:
            body = memoryview(b"")
        _flush()
        with contextlib.suppress(OSError):
            self.channel.send("failure", failure, body=body)


def prepare() -> None:
    """What a process that is not yet a rank can do ahead of every rank; touches no accelerator.

    Newer torches search every installed package for their own backends, and seeding reads the source of every
    frame on the stack, in case CUDA fails later: together 35 ms a rank.
    """
    torch.set_num_threads(1)
    seed_rank(0, 0)
    register = getattr(dist.Backend, "_ensure_backend_registered", None)
    for name in ("gloo", "nccl"):
        if register is not None:
            with contextlib.suppress(Exception):  # a build without it, or another torch: the rank will see
                register(name)


def _enter_environment(job: Job) -> None:
    """The kernel's environment, working directory and import path; output line by line."""
    os.environ.clear()
    os.environ.update(job.env | _rank_environment(job))
    with contextlib.suppress(OSError):  # a directory that is gone cannot be entered; nor could the kernel
        os.chdir(job.cwd)
    sys.path[:] = job.path
    # Where DataLoader workers put their sockets: they are killed with the rank, and would leave a folder each.
    multiprocessing.current_process()._config["tempdir"] = job.scratch
    torch.set_num_threads(job.threads)
    sys.stdin = _NoKeyboard()
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = open(descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _stand_in_for_main(fn: Any) -> None:
    """Let `__main__` have the names that a notebook's function uses: pickling an object in the rank looks there."""
    if getattr(fn, "__module__", None) == "__main__":
        names = {name: value for name, value in getattr(fn, "__globals__", {}).items() if not name.startswith("__")}
        vars(sys.modules["__main__"]).update(names)


def _rank_environment(job: Job) -> dict[str, str]:
    env = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(job.threads))
    if job.group:
        env |= {"RANK": str(job.rank), "LOCAL_RANK": str(job.rank)}
        env |= {"WORLD_SIZE": str(job.size), "LOCAL_WORLD_SIZE": str(job.size)}
        env["USE_LIBUV"] = "0"  # PyTorch's Windows builds lack it
        if sys.platform in LOOPBACK:
            env["GLOO_SOCKET_IFNAME"] = env["NCCL_SOCKET_IFNAME"] = LOOPBACK[sys.platform]
    return env


class _NoKeyboard:
    """Standard input of a rank: `input()` gets a sentence, not an end of file."""

    encoding, errors, closed = "utf-8", "strict", False

    def readline(self, *_: int) -> str:
        raise EOFError("a rank has no keyboard: ask in the notebook, and pass the answer to the ranks as an argument")

    read = readlines = __iter__ = readline

    def fileno(self) -> int:
        return 0

    def close(self) -> None:
        pass


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(its text cannot be shown)"


def _frames(error: BaseException) -> Iterator[tuple[str, int, str]]:
    step = error.__traceback__
    while step is not None:
        yield step.tb_frame.f_code.co_filename, step.tb_lineno, step.tb_frame.f_code.co_name
        step = step.tb_next
    if isinstance(error, NeverWaited):  # seen at the end, done at the call
        yield (*error.site, "")


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the function may have closed it
            stream.flush()
