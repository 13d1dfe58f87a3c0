"""What `isend`, `irecv` and `async_op=True` give in the simulated world.

Floor 1, room `world`. Between a call and its `wait()` the buffer belongs to the communication. Here that is
held to: a call works on a copy, results appear in the buffer at `wait()` and at no other time, and a
buffer that the program changed in between is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from lockstep.comm import CommunicationError
from lockstep.comm.callsite import call_site
from lockstep.comm.collectives.layout import flatten
from lockstep.world.beside import Job, OwnWork
from lockstep.world.stacks import Frame
from lockstep.world.transfers import Post, copy

if TYPE_CHECKING:
    from lockstep.world.simulated import SimulatedCommunicator


class Lent:
    """A buffer that a call has until `wait()`; `before` is a copy of it as it was when it was lent."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.before = tensor.detach().clone()
        self._version = self._current_version()

    def changed(self) -> bool:
        """Whether the program wrote to it: other bytes, or, where no other tensor shares its memory, a write at all."""
        if self._version != self._current_version():
            return True
        now, before = flatten(self.tensor).view(torch.uint8), flatten(self.before).view(torch.uint8)
        return not torch.equal(now, before)

    def _current_version(self) -> int | None:
        # Views share one count of writes, and a program may well change one chunk while another is on its way.
        alone = 0 < self.tensor.nbytes == self.tensor.untyped_storage().nbytes()
        return self.tensor._version if alone and not self.tensor.is_inference() else None


class SimulatedHandle:
    """`wait()` blocks until the call is done and gives its result; later calls give it again.

    text: the call, for reports. buffer: what was lent to it. block: waits at the rank's clock. finish: makes
    the result, once.
    """

    def __init__(
        self,
        comm: SimulatedCommunicator,
        text: str,
        buffer: Lent | None,
        block: Callable[[], None],
        finish: Callable[[], Any],
    ) -> None:
        self._comm, self.text, self.buffer = comm, text, buffer
        self._block, self._finish = block, finish
        self._waited = False
        self._result: Any = None
        self.may_be_left = False  # whether the rank may return without waiting for it
        self.site = Frame(*call_site(), "")
        comm.unfinished.append(self)

    def wait(self) -> Any:
        """Raises CommunicationError when the buffer was changed since the call."""
        if self._waited:
            return self._result
        with self._comm.call("wait", f"wait for {self.text}"):
            self._comm.unfinished.remove(self)
            self._block()
            if self.buffer is not None and self.buffer.changed():
                raise CommunicationError(
                    f"The buffer of {self.text} was changed before wait() (the call: {self.site}): it belongs to the "
                    f"communication until wait() returns. Change a copy, or wait first."
                )
            self._waited, self._result = True, self._finish()
        return self._result


def send_handle(comm: SimulatedCommunicator, post: Post, text: str, buffer: Lent) -> SimulatedHandle:
    """The handle of an `isend`; `wait()` gives None."""
    return SimulatedHandle(comm, text, buffer, lambda: comm.wait_for(post), lambda: None)


def receive_handle(comm: SimulatedCommunicator, post: Post, text: str, buffer: Lent) -> SimulatedHandle:
    """The handle of an `irecv`; `wait()` fills and gives the buffer."""

    def fill() -> Tensor:
        copy(post.arrived, post.buffer)
        return buffer.tensor

    return SimulatedHandle(comm, text, buffer, lambda: comm.wait_for(post), fill)


def job_handle(comm: SimulatedCommunicator, job: Job) -> SimulatedHandle:
    """The handle of a collective beside the rank's own work; `wait()` gives what the algorithm gave."""
    handle = SimulatedHandle(comm, str(job.meeting), None, lambda: comm.wait_for_job(job), lambda: job.result)
    handle.may_be_left = isinstance(job.meeting, OwnWork)
    return handle


def lend(handle: SimulatedHandle, buffer: Lent, result: Callable[[Any], Any]) -> SimulatedHandle:
    """Let `handle` watch `buffer` too, and give `result(...)` of what it gave."""
    finish = handle._finish
    handle.buffer, handle._finish = buffer, lambda: result(finish())
    return handle
