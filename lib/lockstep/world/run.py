"""What a run gives back, and the errors that say why it gave nothing.

Floor 1. Both worlds return the same `Run`; read this before `launch.py` and `simulate.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lockstep.comm import Traffic
from lockstep.trace import Trace


@dataclass(frozen=True)
class Run:
    """The outcome of one rank function on every rank, in either world.

    values: what each rank returned, in rank order.
    trace: every span and message.
    traffic: per rank, messages and bytes sent and received, and to whom.
    seconds: wall seconds, or virtual seconds in the simulated world.
    """

    values: list[Any]
    trace: Trace
    traffic: Sequence[Traffic]
    seconds: float


class RunError(Exception):
    """A run that did not end well; every error of `launch` and `simulate` is one."""


class RankError(RunError):
    """A rank raised, was killed or left: `rank` is the root cause, `cause` its exception."""

    def __init__(self, message: str, rank: int, cause: BaseException | None = None) -> None:
        super().__init__(message)
        self.rank = rank
        self.cause = cause


class DeadlockError(RunError):
    """Ranks wait for each other for ever; `waiting` maps each rank to what it waits for."""

    def __init__(self, message: str, waiting: Mapping[int, str]) -> None:
        super().__init__(message)
        self.waiting = dict(waiting)


class RunTimeout(RunError):
    """The run reached its time limit; `stacks` maps each rank to where it was, `lines` to the user's running line."""

    def __init__(
        self, message: str, stacks: Mapping[int, str] | None = None, lines: Mapping[int, str] | None = None
    ) -> None:
        super().__init__(message)
        self.stacks = dict(stacks or {})
        self.lines = dict(lines or {})
