"""A rank's second stream: asynchronous collectives, one after the other, beside the rank's own work.

Floor 1, room `world`. The stream is a strand like the rank's own, with a clock of its own: a collective
starts at the later of its launch and the end of the one before it. Both strands share the rank's ports.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from lockstep.world.groups import Meeting
from lockstep.world.scheduler import Scheduler, Strand


class OwnWork:
    """What a rank runs beside itself and no other rank has part in; stands where a collective's meeting would."""

    absent = ()

    def __str__(self) -> str:
        return "what runs beside it"


@dataclass(eq=False)
class Job:
    """A collective or own work that was launched: `run(strand)` performs it. `end` is None until it has."""

    meeting: Meeting | OwnWork
    launched: float
    run: Callable[[Strand], Any]
    result: Any = None
    end: float | None = None
    waiter: Strand | None = None


class SecondStream:
    """Runs jobs in the order of their launch."""

    def __init__(self, scheduler: Scheduler, rank: int) -> None:
        self._scheduler, self._rank = scheduler, rank
        self._jobs: deque[Job] = deque()
        self._idle = False
        self.strand: Strand | None = None

    def launch(self, job: Job) -> None:
        """Called by the rank's own strand; costs it nothing."""
        self._jobs.append(job)
        if self.strand is None:
            self.strand = self._scheduler.strand(self._rank, 1, self._serve, job.launched)
        elif self._idle:
            self._idle = False
            self._scheduler.wake(self.strand, max(self.strand.clock, job.launched))

    def wait(self, job: Job, waiter: Strand) -> None:
        """Move the rank's own strand to the end of `job`."""
        if job.end is None:
            job.waiter = waiter
            self._scheduler.block(waiter, job)
        else:
            waiter.clock = max(waiter.clock, job.end)

    def _serve(self, strand: Strand) -> None:
        torch.set_grad_enabled(False)  # of this thread
        while True:
            job = self._jobs.popleft()
            if job.launched > strand.clock:
                strand.clock = job.launched
            job.result = job.run(strand)
            job.end = strand.clock
            if job.waiter is not None:
                self._scheduler.wake(job.waiter, max(job.waiter.clock, job.end))
            if not self._jobs:
                self._idle = True
                self._scheduler.block(strand, None)
