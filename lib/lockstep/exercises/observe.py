"""Observers: run a function on one case and note what it does, as plain data. They run in the child.

Floor 4, room `exercises`. An observer holds no expected value and decides nothing; `judge.py` does that
in the parent. `Call` is for plain functions, `Simulate` for rank functions (in the simulated world).
"""

from __future__ import annotations

import contextlib
import copy
import io
import linecache
import os
import random
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import lockstep
from lockstep.comm import Traffic
from lockstep.exercises.forbidden import run_watched, watch
from lockstep.exercises.plain import plain
from lockstep.trace import Trace
from lockstep.world.generators import Generators
from lockstep.world.run import DeadlockError, RankError, RunTimeout

# How the world ends what a rank waits for: ", lab.py, line 4:  comm.barrier()", ", cell In[3], line 4:  ...".
WHERE = re.compile(r", (?:cell (?:In\[\d+\], )?|(?P<file>[^,]*), )line (?P<line>\d+)(?::  .*|, in .*)?$", re.DOTALL)
PRINTED = 2000  # characters of output kept from one case


@dataclass(frozen=True)
class Failure:
    """Why a call gave no value. `type` is the exception's name, "Deadlock" or "Timeout".

    file, line: where, in the student's own code (0: never got there). own: it was raised right there and
    not further inside. waiting: for a deadlock, what each rank waits for.
    """

    type: str
    message: str
    file: str = ""
    line: int = 0
    own: bool = False
    rank: int | None = None
    waiting: tuple[tuple[int, str], ...] = ()

    @property
    def fault(self) -> tuple[int, ...]:
        """What two functions with the same mistake share: the ranks that wait; not lines and wordings."""
        return tuple(rank for rank, _ in self.waiting)

    @property
    def place(self) -> str:
        """ ", on line 3: `total += x`", or "" when the line is not known."""
        return _on_line(self.file, self.line) if self.line else ""

    @property
    def waits(self) -> tuple[tuple[int, str], ...]:
        """For a deadlock, what each rank waits for, without where its call stands."""
        return tuple((rank, WHERE.sub("", what)) for rank, what in self.waiting)

    @property
    def headline(self) -> str:
        """ "ZeroDivisionError: division by zero"."""
        return f"{self.type}: {self.message}" if self.message else self.type

    @property
    def sentence(self) -> str:
        """What happened, where, and on which rank."""
        if self.type == "Deadlock":
            waits = "; ".join(f"rank {rank} waits for {what}" for rank, what in _placed(self.waiting))
            return f"The ranks wait for each other for ever, a deadlock: {waits}."
        if self.type == "Timeout":
            return f"The function does not come to an end within {self.message}{self.place}."
        if self.type == "Killed":
            return f"The function does not return: {self.message.rstrip('.')}."
        who = "The function" if self.rank is None else f"Rank {self.rank}"
        return f"{who} raises {self.headline.rstrip('.')}{self.place}."

    @property
    def riddle(self) -> str:
        """What `diagnose` shows: as much of the sentence as gives nothing away."""
        return self.sentence


def _on_line(file: str, line: int) -> str:
    code = linecache.getline(file, line).strip()
    return f", on line {line}" + (f": `{code}`" if code else "")


def _placed(waiting: tuple[tuple[int, str], ...]) -> list[tuple[int, str]]:
    """What each rank waits for with its line of the student's code, whose text only the notebook's process knows."""
    placed = []
    for rank, what in waiting:
        where = WHERE.search(what)
        if where is not None:
            file, line = os.path.abspath(where["file"] or ""), int(where["line"])
            shown = _on_line(file, line) if where["file"] and is_students(file) else ""
            what = what[: where.start()] + (shown or (f", on line {line}" if where["file"] is None else ""))
        placed.append((rank, what))
    return placed


@dataclass(frozen=True)
class Observation:
    """What one call did; for a rank function `value`, `arguments` and the rest hold one entry for each rank.

    value: what was returned. error: why nothing was. arguments: how the call left its arguments.
    traffic, trace, seconds: of the simulated run. collectives: names, in order, for each rank.
    printed: the first characters of what it printed. forbidden: what it called although it may not.
    counts: of a GPU kernel's launch, by what is counted.
    """

    value: Any = None
    error: Failure | None = None
    arguments: Any = None
    traffic: tuple[Traffic, ...] = ()
    trace: Trace | None = None
    seconds: float = 0.0
    collectives: tuple[tuple[str, ...], ...] = ()
    printed: str = ""
    forbidden: tuple[str, ...] = ()
    counts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """Observe `fn(*case.args, **case.kwargs)`, or `drive(fn, *case.args, **case.kwargs)`."""

    drive: Callable[..., Any] | None = None

    def __call__(self, fn: Callable[..., Any], case: Any) -> Observation:
        args, kwargs = copy.deepcopy((case.args, dict(case.kwargs)))
        call = fn if self.drive is None else lambda *a, **k: self.drive(fn, *a, **k)
        with fresh_state(), capture() as printed:
            try:
                value = plain(run_watched(call, *args, **kwargs))
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                return Observation(error=failure(error), printed=printed.getvalue())
        return Observation(value=value, arguments=plain([*args, *kwargs.values()]), printed=printed.getvalue())


@dataclass(frozen=True)
class Simulate:
    """Observe `fn(comm, *each[rank], *args)` on `case.ranks` ranks of the simulated world.

    drive: called as `drive(fn, comm, ...)` instead. timeout: real seconds of one run; longer than `check` gives to
    all cases together, since its own limit names the running line.
    """

    drive: Callable[..., Any] | None = None
    timeout: float = 20.0

    def __call__(self, fn: Callable[..., Any], case: Any) -> Observation:
        from lockstep.world import simulate  # here, since plain exercises need no ranks

        program = _RankProgram(fn, self.drive, case.each)
        with capture() as printed:  # each rank has generators, dtype and grad mode of its own
            try:
                run = simulate(program, case.ranks, *case.args, timeout=self.timeout, **case.world, **case.kwargs)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                return Observation(error=failure(error), printed=printed.getvalue())
        values, arguments, collectives = zip(*run.values, strict=True)
        return Observation(
            value=list(values), arguments=list(arguments), traffic=tuple(run.traffic), trace=run.trace,
            seconds=run.seconds, collectives=tuple(map(tuple, collectives)), printed=printed.getvalue(),
        )  # fmt: skip


@dataclass(frozen=True)
class _RankProgram:
    """What each rank runs: the student's function with this rank's own arguments, watched."""

    fn: Callable[..., Any]
    drive: Callable[..., Any] | None
    each: tuple[tuple[Any, ...], ...] | None

    def __call__(self, comm: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any, list[str]]:
        own = () if self.each is None else self.each[comm.rank]
        collectives = watch(comm)
        call = self.fn if self.drive is None else lambda *a, **k: self.drive(self.fn, *a, **k)
        value = run_watched(call, comm, *own, *args, **kwargs)
        return plain(value), plain([*own, *args, *kwargs.values()]), collectives


class _FirstLines(io.StringIO):
    """Keeps the start of what is printed, so that an endless print fills no memory."""

    def write(self, text: str) -> int:
        if self.tell() < PRINTED:
            super().write(text[: PRINTED - self.tell()])
        return len(text)


@contextlib.contextmanager
def capture() -> Iterator[_FirstLines]:
    """Collect what is printed to stdout and stderr; gives the buffer."""
    lines = _FirstLines()
    with contextlib.redirect_stdout(lines), contextlib.redirect_stderr(lines):
        yield lines


def printed_so_far() -> str:
    """What `capture` has collected, for another thread while the function still runs."""
    return sys.stdout.getvalue() if isinstance(sys.stdout, _FirstLines) else ""


@contextlib.contextmanager
def fresh_state() -> Iterator[None]:
    """Seeded generators, float32 and gradients on, as in a new process; what was set in a notebook is put back.

    Only the CPU's generator of torch is touched: `torch.manual_seed` would seed those of GPUs too.
    """
    grad = torch.is_grad_enabled()
    with Generators(0):  # which puts generators and dtype back
        torch.set_default_dtype(torch.float32)
        torch.set_grad_enabled(True)
        for seed in (torch.default_generator.manual_seed, np.random.seed, random.seed):
            seed(0)
        try:
            yield
        finally:
            torch.set_grad_enabled(grad)


def failure(error: BaseException) -> Failure:
    """The plain form of what a call raised; for a run of ranks, of its root cause."""
    if isinstance(error, DeadlockError):
        return Failure("Deadlock", "", waiting=tuple(sorted((int(r), str(w)) for r, w in error.waiting.items())))
    if isinstance(error, RunTimeout):
        lines = "; ".join(f"rank {rank} was at {line}" for rank, line in error.lines.items())
        return Failure("Timeout", f"the time limit of the run ({lines})" if lines else "the time limit of the run")
    if isinstance(error, RankError) and error.cause is not None:
        found = failure(error.cause)
        return Failure(found.type, found.message, found.file, found.line, found.own, error.rank, found.waiting)
    frames = [(f.f_code.co_filename, line) for f, line in traceback.walk_tb(error.__traceback__)]
    own = [i for i, (name, _) in enumerate(frames) if is_students(name)]
    file, line = frames[own[-1]] if own else ("", 0)
    try:
        message = str(error)
    except Exception:  # a student's exception may have any `__str__`
        message = ""
    return Failure(type(error).__name__, message[:500], file, line, bool(own) and own[-1] == len(frames) - 1)


_HERE = Path(lockstep.__file__).parent
_INSTALLED = {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")}


@lru_cache(maxsize=4096)
def is_ours(file: str) -> bool:
    """True for a file of this library, the labs' solutions included."""
    return bool(file) and Path(os.path.realpath(file)).is_relative_to(_HERE)


@lru_cache(maxsize=4096)
def is_students(file: str) -> bool:
    """True for code of a notebook or of the user's own files, and for the labs' own solutions."""
    if file.startswith(("<frozen", "<lockstep")) or file == "<string>":  # <lockstep ...>: what a kernel was compiled to
        return False
    path = Path(os.path.realpath(file))
    if path.is_relative_to(_HERE):
        room, *inside = path.relative_to(_HERE).parts
        return room == "exercises" and inside[0].startswith("lab")
    return not any(path.is_relative_to(place) for place in _INSTALLED)
