"""Calls that may wait, their handles, and the thread for asynchronous collectives that are ours.

Floor 1, room `comm`.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from lockstep.comm.board import Need

if TYPE_CHECKING:
    from lockstep.comm.torch_group import TorchCommunicator


@dataclass(slots=True)
class Call:
    """One call that may wait: the name and kind of its span, its words for a reader, and what it needs to go on.

    started: seconds of the run's clock, on a GPU an event. bytes: of the tensor it is about. index: of a collective, else None.
    detail: of its span, as `trace.Span` says.
    """

    name: str
    kind: str
    text: str
    needs: Sequence[Need]
    started: float | torch.cuda.Event
    bytes: int | None = None
    index: int | None = None
    mode: str = "all"
    detail: Mapping[str, object] = field(default_factory=dict)


class WorkHandle:
    """Works of the backend that belong to one call; `wait()` gives what `finish()` gives, run once."""

    __slots__ = ("_comm", "_finish", "_result", "_waited", "_works", "call")

    def __init__(
        self, comm: TorchCommunicator, call: Call, works: Sequence[dist.Work], finish: Callable[[], Any]
    ) -> None:
        self.call = call
        self._comm, self._works, self._finish = comm, works, finish
        self._waited = False
        self._result: Any = None

    def done(self) -> bool:
        """Whether the data has moved."""
        return self._waited or all(work.is_completed() for work in self._works)

    def wait(self) -> Any:
        return self.wait_as("wait")

    def wait_as(self, kind: str) -> Any:
        """Wait, and let the span be of this kind: a blocking call's own, or "wait"."""
        if not self._waited:
            self._comm.not_waited.pop(self, None)
            self._comm.block(self.call, kind, self._join)
            self._waited = True
            self._result = self._finish()
            self._comm.hold(self._works)
        return self._result

    def _join(self) -> None:
        for work in self._works:
            work.wait()


class ThreadHandle:
    """A collective of ours that runs in the communicator's thread; `times` are its begin and end, once it is done."""

    def __init__(self, comm: TorchCommunicator, call: Call, run: Callable[[], Any]) -> None:
        self.call = call
        self._comm, self._run = comm, run
        self._ended = threading.Event()
        self.times = (0.0, 0.0)
        self._result: Any = None
        self._error: BaseException | None = None

    def __call__(self) -> None:
        """In the thread: run the collective and keep what came of it."""
        begun = self._comm.begins_beside(self.call)
        try:
            self._result = self._run()
        except BaseException as error:  # raised again where the program waits
            self._error = error
        self.times = begun, self._comm.ended_beside(begun)
        self._ended.set()

    def done(self) -> bool:
        """Whether the collective has ended."""
        return self._ended.is_set()

    def wait(self) -> Any:
        self._comm.not_waited.pop(self, None)
        self._comm.block(self.call, "wait", self._join)
        return self._result

    def _join(self) -> None:
        self._ended.wait()
        if self._error is not None:
            raise self._error


class CollectiveThread:
    """Runs asynchronous collectives of ours one after another, in the order in which they were started.

    A daemon: a collective whose peers are gone must not keep the process alive.
    """

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="lockstep collectives", daemon=True).start()

    def submit(self, task: Callable[[], None]) -> None:
        """Run `task` after all that were submitted before."""
        self._tasks.put(task)

    def _work(self) -> None:
        while True:
            self._tasks.get()()
