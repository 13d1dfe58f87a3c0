"""The `with` blocks of a simulated rank: around each call of its communicator, and around its own spans.

Floor 1, room `world`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.world.scheduler import Stop

if TYPE_CHECKING:
    from lockstep.world.simulated import SimulatedCommunicator


class Call:
    """Around a call of the communicator: checks the thread, records the span, brings back the rank's generators."""

    __slots__ = ("_comm", "_kind", "_name", "_nbytes", "_start", "detail")

    def __init__(self, comm: SimulatedCommunicator, kind: str, name: str, nbytes: int | None, detail: dict) -> None:
        self._comm, self._kind, self._name, self._nbytes, self.detail = comm, kind, name, nbytes, detail

    def __enter__(self) -> Call:
        self._comm.check_thread()
        self._comm.strand.collective = None  # one that failed may have left it
        self._start = self._comm.strand.clock
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        comm = self._comm
        if kind is Stop or comm.simulation.scheduler.stopping:
            return
        comm.simulation.generators.install(comm.strand.rank)
        waited = comm.strand.clock > self._start
        if self._name and kind is None and (waited or self._kind != "wait"):
            comm.record(self._kind, self._name, self._start, comm.strand, bytes=self._nbytes, detail=self.detail)


class CostSpan:
    """What `comm.span` gives: at its end the clock moves so that the block lasts `seconds`, unless costs were inside."""

    def __init__(
        self, comm: SimulatedCommunicator, kind: str, name: str, micro_batch: int | None, seconds: float | None
    ) -> None:
        self._comm, self._kind, self._name = comm, kind, name
        self._micro_batch, self._seconds = micro_batch, seconds
        self._start = 0.0

    def __enter__(self) -> None:
        self._comm.check_thread()
        self._start = self._comm.strand.clock
        self._comm.open_spans.append(False)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        comm, spans = self._comm, self._comm.open_spans
        charged = spans.pop()
        if kind is not None:
            return
        if self._seconds is not None and not charged:
            with comm.call(self._kind, ""):
                comm.simulation.scheduler.yield_to_earlier(comm.strand)
                comm.strand.clock = max(comm.strand.clock, self._start + self._seconds)
            charged = True
        if spans and charged:
            spans[-1] = True
        comm.record(self._kind, self._name, self._start, comm.strand, micro_batch=self._micro_batch)
