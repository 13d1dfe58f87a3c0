"""Processes that take one task after another; one that dies or sits too long costs its task and no other.

Floor 4, room `course`. Not `concurrent.futures`: there one dead process ends the whole pool.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

import cloudpickle

GOING_HOME = 10.0  # seconds in which a worker may put away what it had opened


@dataclass(frozen=True)
class Failure:
    """A task without a result, and why, in a sentence."""

    why: str


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    task: int | None = None
    until: float = 0.0


def run(
    work: Callable[[Any], Any],
    tasks: Sequence[Any],
    *,
    jobs: int,
    patience: float,
    goodbye: Callable[[], None] = lambda: None,
) -> Iterator[tuple[int, Any | Failure]]:
    """The result of `work(task)` or a Failure for each task, with its place in `tasks`, as they become ready.

    jobs: processes side by side. patience: seconds that one task may take. `work` is forked where the system can, so
    what was imported stays imported, and sent by value elsewhere. No task is None. goodbye: what a worker does last.
    """
    forks = hasattr(os, "fork")
    context = multiprocessing.get_context("fork" if forks else "spawn")
    duties = (work, goodbye) if forks else cloudpickle.dumps((work, goodbye))
    waiting = list(range(len(tasks)))[::-1]
    crew = [_begin(context, duties) for _ in range(min(jobs, len(tasks)))]
    try:
        while waiting or any(one.task is not None for one in crew):
            for one in crew:
                if one.task is None and waiting:
                    _give(one, waiting.pop(), tasks, patience)
            busy = [one for one in crew if one.task is not None]
            ready = wait(
                [one.pipe for one in busy], timeout=max(0.0, min(one.until for one in busy) - time.monotonic())
            )
            for one in busy:
                if one.pipe not in ready and time.monotonic() < one.until:
                    continue
                done, result = one.task, _taken(one, one.pipe in ready, patience)
                if isinstance(result, Failure):
                    _end(one)
                    crew.remove(one)
                    crew += [_begin(context, duties)] if waiting else []
                one.task = None
                yield done, result
    finally:
        for one in crew:
            _end(one)


def _begin(context: Any, duties: Any) -> _Worker:
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, ours, duties))
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _serve(pipe: Connection, other_end: Connection, duties: Any) -> None:
    """The process: a session of its own, so that it can be ended with all that it started."""
    if hasattr(os, "setsid"):
        os.setsid()
    other_end.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    work, goodbye = cloudpickle.loads(duties) if isinstance(duties, bytes) else duties
    try:
        while (task := pipe.recv()) is not None:
            try:
                result = work(task)
            except Exception as error:
                result = Failure(f"grading itself failed: {type(error).__name__}: {str(error)[:300]}")
            pipe.send(result)
    except (EOFError, OSError):  # whoever started the batch is gone
        pass
    goodbye()


def _give(worker: _Worker, index: int, tasks: Sequence[Any], patience: float) -> None:
    worker.task, worker.until = index, time.monotonic() + patience
    try:
        worker.pipe.send(tasks[index])
    except OSError:  # it has died meanwhile, which reading from it will say
        pass


def _taken(worker: _Worker, ready: bool, patience: float) -> Any | Failure:
    if not ready:
        return Failure(f"it was not graded within {patience:.0f} s and was stopped")
    try:
        return worker.pipe.recv()
    except (EOFError, OSError):
        worker.process.join(5)
        code = worker.process.exitcode
        return Failure(f"the grading process ended by itself ({_ending(code)})")


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"exit status {code}"


def _end(worker: _Worker) -> None:
    """End a process and everything that it started; one that waits for a task is let go home by itself."""
    if worker.task is None:
        with contextlib.suppress(OSError):
            worker.pipe.send(None)
        worker.process.join(GOING_HOME)
    worker.pipe.close()
    if worker.process.pid is not None and hasattr(os, "killpg"):
        try:
            os.killpg(worker.process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            worker.process.kill()
    else:
        worker.process.kill()
    worker.process.join(10)
