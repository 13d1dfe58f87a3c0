"""One baton for many threads: the simulated world's order of events.

Floor 1, room `world`. A *strand* is a thread with a virtual clock: a rank's own (stream 0), or the one
that runs its asynchronous collectives (stream 1). One strand at a time has the baton; it is always the
runnable one with the earliest clock, ties by rank, so that nothing ever happens before its cause.
*Events* are small functions due at a virtual time; they run before strands of that time, whoever has the baton.

Ranks are OS threads and not coroutines, because communication may be called below C++: autograd runs
hooks inside `backward()`, and its stack cannot be left half-way.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable
from heapq import heappop, heappush, heapreplace
from typing import Any

from lockstep.world.core import core_here, stay_on

SLICE = 0.1  # real seconds: a thread that waits longer at a stretch could not be interrupted on Windows
GRACE = 1.0  # real seconds that threads get to end after a run


class Stop(BaseException):
    """Ends the thread of a strand whose run is over. No Exception, so that `except Exception` lets it through."""


class Strand:
    """A thread with a virtual clock (seconds).

    waits: what it is blocked on, for the report of a deadlock; None while it is runnable.
    collective, returned: for the same, the meeting it takes part in, and the handle that its rank returned without.
    missing, until: transfers that it waits for and that have not begun, and when the last of the others ends.
    inside: whether the work, and not the thread's beginning or end, is being run.
    """

    __slots__ = (
        "clock",
        "collective",
        "done",
        "inside",
        "missing",
        "rank",
        "returned",
        "stream",
        "thread",
        "turn",
        "until",
        "waits",
    )

    def __init__(self, rank: int, stream: int) -> None:
        self.rank, self.stream, self.clock = rank, stream, 0.0
        self.turn = threading.Lock()
        self.turn.acquire()
        self.waits: Any = None
        self.collective: Any = None
        self.returned: Any = None
        self.missing, self.until = 0, 0.0
        self.inside = self.done = False
        self.thread: threading.Thread | None = None


class Scheduler:
    """Hands the baton on. `failure` is the first exception of a strand, with the strand."""

    def __init__(self) -> None:
        self.strands: list[Strand] = []
        self.running: Strand | None = None
        self.failure: tuple[Strand, BaseException] | None = None
        self.stopping = False
        # time, rank, stream, strand; of an event: time, -1, turn, event
        self._queue: list[tuple[float, int, int, Any]] = []
        self._over = threading.Lock()  # released when nothing can run any more
        self._over.acquire()
        self._core = core_here()
        self._raising = threading.Lock()  # held while an exception is raised in another thread

    def strand(self, rank: int, stream: int, work: Callable[[Strand], None], clock: float = 0.0) -> Strand:
        """A new runnable strand; its thread starts when it first gets the baton and ends with `work`."""
        strand = Strand(rank, stream)
        strand.clock = clock
        strand.thread = threading.Thread(
            target=self._live, args=(strand, work), name=f"simulated rank {rank}, stream {stream}", daemon=True
        )
        self.strands.append(strand)
        self.wake(strand, clock)
        return strand

    # what the strand with the baton calls

    def wake(self, strand: Strand, clock: float) -> None:
        """Make a blocked strand runnable at `clock`."""
        strand.clock = clock
        heappush(self._queue, (clock, strand.rank, strand.stream, strand))

    def at(self, time: float, turn: int, event: Callable[[float], None]) -> None:
        """Call `event(time)` when the virtual time has come; of events due together the lowest `turn`, unlike any other, goes first."""
        heappush(self._queue, (time, -1, turn, event))

    def yield_to_earlier(self, me: Strand) -> None:
        """Return when `me`, which has the baton, is the earliest of all that can run."""
        if self.stopping:
            raise Stop
        queue, mine = self._queue, (me.clock, me.rank, me.stream, me)
        while queue and queue[0] < mine:
            if queue[0][1] < 0:
                event = heappop(queue)
                event[3](event[0])
            else:
                self._hand_to(heapreplace(queue, mine)[3], me)
                return  # whoever handed it back found me the earliest

    def block(self, me: Strand, waits: Any) -> None:
        """Give the baton away; return when another strand or an event woke `me` and it is the earliest."""
        me.waits = waits
        following = self._next()
        if following is not me:
            self._hand_to(following, me)
        me.waits = None

    def _next(self) -> Strand | None:
        queue = self._queue
        while queue:
            first = heappop(queue)
            if first[1] >= 0:
                return first[3]
            first[3](first[0])
        return None

    def _hand_to(self, following: Strand | None, me: Strand) -> None:
        self._pass_on(following)
        me.turn.acquire()
        if self.stopping:
            raise Stop

    def _pass_on(self, following: Strand | None) -> None:
        self.running = following
        if following is None:
            self._over.release()
        elif following.thread.ident is None:
            following.thread.start()
        else:
            following.turn.release()

    def _live(self, me: Strand, work: Callable[[Strand], None]) -> None:
        stay_on(self._core)
        try:
            me.inside = True
            try:
                work(me)
                me.done = True
            except Stop:
                pass
            except BaseException as error:
                if not self.stopping:
                    self.failure = (me, error)
                    self.stopping = True
                    self._over.release()
            # Whoever raises Stop in this thread holds the lock and saw `inside`; a Stop on its way lands here.
            with self._raising:
                me.inside = False
        except Stop:
            me.inside = False
        if not self.stopping:
            self._pass_on(self._next())

    # what the thread that started the run calls

    def run(self, deadline: float) -> bool:
        """Run until no strand can go on, one has failed (True), or `time.monotonic()` reaches `deadline` (False)."""
        self._pass_on(self._next())
        while (left := deadline - time.monotonic()) > 0:
            if self._over.acquire(timeout=min(left, SLICE)):
                return True
        return False

    def stop(self) -> None:
        """End every thread, one after the other, with `Stop`. One that is inside a C call ends when that returns."""
        self.stopping = True
        last = time.monotonic() + GRACE
        for strand in sorted(self.strands, key=lambda s: s is not self.running):  # the one that may loop first
            if strand.thread.ident is None:
                continue
            patience = 0.02 if strand is self.running else 0.2  # blocked ones have `finally` blocks to run
            while strand.thread.is_alive():
                if strand.turn.locked():  # blocked, or it will find the baton waiting when it next gives it away
                    strand.turn.release()
                strand.thread.join(patience)
                if strand.thread.is_alive():
                    self._raise_in(strand)
                    patience = 0.01  # one that swallows what is raised ends by the raise that lands outside its `try`
                if time.monotonic() > last:
                    break

    def _raise_in(self, strand: Strand) -> None:
        if self._raising.acquire(timeout=SLICE):
            if strand.inside and not importing(strand.thread):
                raise_in_thread(strand.thread, Stop)
            self._raising.release()


def importing(thread: threading.Thread) -> bool:
    """Whether the thread is importing a module, which would stay half there for everyone if it were stopped now."""
    frame = sys._current_frames().get(thread.ident)
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None


def raise_in_thread(thread: threading.Thread, exception: type[BaseException]) -> None:
    """Raise `exception` in another thread at its next line of Python."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(exception))
