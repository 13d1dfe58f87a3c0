"""A student's process: it defines the program, tries one case after the other, and says what it saw as plain data.

Floor 4, room `course`. Read `ranks` for rank functions; plain ones run in the main thread. The grader's messages are
    {"define": statements, "seconds": of one}          -> {"problems": [...]}
    {"observer": pickle, "function": name}
    {"kernel": True}                                   -> {"kernel": the function as plain data, or None}
    {"kernels": plain data}                            the function again, from another process
    {"call": pickle, ...limits}                        -> {"seen": observation}
    {"ranks": pickle, "each": pickles, ...limits}      then some for each lane, {"to": lane, ...}, until {"over": ...}
Pickles go this way only. Limits are "seconds" of the processor and "patience" by the clock.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from lockstep.comm import CommunicationError
from lockstep.comm.errors import PeerLost
from lockstep.course.sandbox.inside.kernels import described, remade
from lockstep.course.sandbox.inside.program import define
from lockstep.course.sandbox.inside.ranks import Lane
from lockstep.course.sandbox.inside.unchanged import Unchanged
from lockstep.course.sandbox.wire import Gone, Line
from lockstep.exercises.forbidden import ForbiddenCall
from lockstep.exercises.observe import Failure, Observation, capture, failure, fresh_state, is_students
from lockstep.exercises.plain import plain
from lockstep.world.copies import Copies
from lockstep.world.generators import Generators

LOOK = 0.2  # seconds between two looks at the clock
ERRORS = {one.__name__: one for one in (CommunicationError, PeerLost, ValueError, TypeError, ForbiddenCall)}


class Missing(Exception):
    """The program does not define what was asked for."""


class Agent:
    """One student's program in this process."""

    def __init__(self, line: Line) -> None:
        self.line, self.sending, self.pid = line, threading.Lock(), os.getpid()
        self.namespace: dict[str, Any] = {"__name__": "__main__", "display": lambda *_, **__: None}
        self.run: Run | None = None
        self.observer: Any = None  # of a rank function: its drive
        self.name = ""
        self._copies: Copies | None = None

    def serve(self, library: Unchanged) -> None:
        """Answer until the grader has gone. library: as it is before the program, to be put back after it."""
        with contextlib.suppress(Gone):
            while True:
                message = self.line.receive()
                if "define" in message:
                    problems = define(message["define"], self.namespace, message["seconds"])
                    library.restore()
                    self.say(problems=problems)
                elif "observer" in message:
                    self.observer, self.name = pickle.loads(message["observer"]), message["function"]
                elif "kernel" in message:
                    self.say(kernel=described(self.namespace.get(self.name)))
                elif "kernels" in message:
                    self.namespace[self.name] = remade(message["kernels"])
                elif "call" in message:
                    self._call(message)
                elif "ranks" in message:
                    self.run = Run(self, message)
                elif self.run is not None:
                    self.run.take(message)

    def say(self, **message: Any) -> None:
        if os.getpid() != self.pid:  # the function forked: what this copy says is nobody's answer
            os._exit(0)
        with self.sending:
            self.line.send(message)

    @property
    def function(self) -> Callable[..., Any]:
        if self.name not in self.namespace:
            raise Missing(f"the program defines no `{self.name}`")
        return self.namespace[self.name]

    @property
    def copies(self) -> Copies:
        """Of the function: each rank of each case gets its own, as if it had come to another process."""
        if self._copies is None:
            self._copies = Copies(self.function, (), {})
        return self._copies

    def _call(self, message: dict[str, Any]) -> None:
        """One case of a plain function, or of a kernel."""
        with Watchdog(self, message["seconds"], message["patience"]):
            try:
                seen = self.observer(self.function, pickle.loads(message["call"]))
            except Exception as error:
                seen = Observation(error=failure(error))
            fields = {"value": seen.value, "arguments": seen.arguments, "printed": seen.printed}
        counts = {str(name): float(number) for name, number in seen.counts.items()}
        self.say(seen={**fields, "counts": counts, "error": seen.error and as_plain(seen.error)})


class Run:
    """The ranks of one case of a rank function."""

    def __init__(self, agent: Agent, message: dict[str, Any]) -> None:
        self.agent = agent
        self.lanes: dict[int, Lane] = {}
        self._kept: dict[int, Callable[..., Any]] = {}
        self._results: dict[int, Any] = {}
        self._unfinished: dict[int, list[Any]] = {}
        self._around = contextlib.ExitStack()
        self._watchdog = self._around.enter_context(Watchdog(agent, message["seconds"], message["patience"]))
        self._around.enter_context(fresh_state())
        self.printed = self._around.enter_context(capture())
        self.args, self.each = message["ranks"], message["each"]
        self.generators = self._around.enter_context(Generators(pickle.loads(self.args)[2]))

    def take(self, message: dict[str, Any]) -> None:
        """A message for a lane, or the end."""
        if "over" in message:
            for lane in self.lanes.values():
                lane.inbox.put({"stop": True})
            printed = self.printed.getvalue()
            self._around.close()
            self.agent.run = None
            self.agent.say(printed=printed)
            return
        key = message["to"]
        if key not in self.lanes:
            self.lanes[key] = Lane(self, key, message["rank"])
        self.lanes[key].inbox.put(message)

    def say(self, lane: int, **message: Any) -> None:
        self.agent.say(**{"from": lane, **message})

    def unfinished(self, rank: int) -> list[Any]:
        """The handles that this rank has not waited for."""
        return self._unfinished.setdefault(rank, [])

    def keep(self, work: Callable[..., Any]) -> int:
        """A number for a function that the grader may ask for later."""
        number = len(self._kept) + 1
        self._kept[number] = work
        return number

    def result(self, work: int) -> Any:
        """What it gave: the object itself, which never left this process."""
        return self._results.pop(work, None)

    def work(self, number: int, comm: Any) -> Any:
        """Work 0 is the rank's function from its beginning; the others were kept."""
        if number:
            self._results[number] = self._kept.pop(number)(comm)
            return None
        fn, _, _ = self.agent.copies.new()
        args, kwargs, _ = pickle.loads(self.args)
        own = pickle.loads(self.each[comm.rank]) if self.each else ()
        drive = self.agent.observer
        value = fn(comm, *own, *args, **kwargs) if drive is None else drive(fn, comm, *own, *args, **kwargs)
        changed = [handle.key for handle in self.unfinished(comm.rank) if handle.changed]
        return plain(value), plain([*own, *args, *kwargs.values()]), changed

    def failure(self, error: BaseException) -> dict[str, Any]:
        return as_plain(failure(error))

    @staticmethod
    def error(kind: str, text: str) -> BaseException:
        """The exception that a call raised over there."""
        return ERRORS.get(kind, RuntimeError)(text)


class Watchdog(threading.Thread):
    """Says which line runs when the time is over; what comes after that is the grader's matter."""

    def __init__(self, agent: Agent, seconds: float, patience: float) -> None:
        super().__init__(daemon=True)
        self.agent, self.done = agent, threading.Event()
        self.computed, self.clock = time.process_time() + seconds, time.monotonic() + patience

    def __enter__(self) -> Watchdog:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()

    def run(self) -> None:
        while not self.done.wait(LOOK):
            if time.process_time() > self.computed or time.monotonic() > self.clock:
                return self.agent.say(late=list(_running_line()))


def _running_line() -> tuple[str, int]:
    """The innermost line of the student's code that is running; ("", 0) when none is."""
    found = []
    for ident, frame in sys._current_frames().items():
        innermost = frame
        while frame is not None and not frame.f_code.co_filename.startswith("<cell "):
            frame = frame.f_back
        if frame is not None and ident != threading.get_ident():
            waits = innermost.f_code.co_filename.endswith(("inside/ranks.py", "threading.py"))
            found.append(((waits, frame is not innermost), frame.f_code.co_filename, frame.f_lineno))
    return min(found, default=(None, "", 0))[1:]


def as_plain(error: Failure) -> dict[str, Any]:
    """Its fields; `quoted` where the failure is that of a kernel."""
    said = {name: getattr(error, name) for name in ("type", "message", "line", "own")}
    quoted = [[int(line), str(text)[:200]] for line, text in getattr(error, "quoted", ())][:20]
    file = error.file if is_students(error.file) else ""
    return said | {"file": file, "quoted": quoted, "kernel": hasattr(error, "quoted")}


def start(line: Line, library: Unchanged) -> None:
    """Serve the grader in this process until it has gone, and end the process without anybody's last words."""
    try:
        Agent(line).serve(library)
    except BaseException as error:  # what the grader sent cannot be taken up here
        with contextlib.suppress(Gone):
            line.send({"broken": f"{type(error).__name__}: {error}"})
    finally:
        os._exit(0)
