"""What a student's process says, read with suspicion.

Floor 4, room `course`. Every field has one type and a length; what has another is `Garbled`.
"""

from __future__ import annotations

import linecache
import re
import time
from typing import Any

from lockstep.course.grade.characters import writable
from lockstep.course.sandbox.box import Child
from lockstep.course.sandbox.wire import Garbled, Late
from lockstep.exercises.observe import PRINTED, Failure, Observation

PASSED_OVER = 50  # stray messages of threads that were stopped


class TimedOut(Late):
    """The time is over, and the process says at which line of the student's code."""

    def __init__(self, where: Any) -> None:
        super().__init__()
        ok = type(where) is list and len(where) == 2 and type(where[0]) is str and type(where[1]) is int
        self.file, self.line = _place(where[0], where[1]) if ok else ("", 0)


def listen(child: Child, field: str, deadline: float) -> dict[str, Any]:
    """The next message that has `field`; TimedOut where the process says that the time is over, Garbled where it broke."""
    for _ in range(PASSED_OVER):
        message = child.receive(deadline)
        if field in message:
            return message
        if "late" in message:
            raise TimedOut(message["late"])
        if type(message.get("broken")) is str:
            raise Garbled(writable(message["broken"][:300]))
        if time.monotonic() > deadline:
            raise Late
    raise Garbled("it talks and does not answer")


def read_failure(said: Any) -> Failure:
    """An error as the process tells it."""
    if type(said) is not dict:
        raise Garbled("an error is none")
    kind, message, line, own = (said.get(name) for name in ("type", "message", "line", "own"))
    if type(kind) is not str or type(message) is not str or type(line) is not int or type(own) is not bool:
        raise Garbled("an error is none")
    file, line = _place(said.get("file"), line)
    kind, message = writable(kind[:2000]), writable(message[:2000])
    if said.get("kernel") is True:
        return _kernel_failure(kind, message, own, said.get("quoted"))
    return Failure(kind[:100], message[:500], file, line, own)


def _kernel_failure(kind: str, message: str, own: bool, quoted: Any) -> Failure:
    from lockstep.exercises.lab01.launching import KernelFailure  # how that lab words a fault

    lines = tuple((one[0], writable(str(one[1]))) for one in quoted if type(one) is list and type(one[0]) is int)
    return KernelFailure(kind[:100], message[:2000], own=own, quoted=lines)


def read_observation(said: Any) -> Observation:
    """What a plain function did, as the process tells it."""
    if type(said) is not dict or type(said.get("printed")) is not str or type(said.get("counts")) is not dict:
        raise Garbled("an observation is none")
    counts = {writable(str(name)): float(number) for name, number in said["counts"].items() if type(number) is float}
    error = None if said.get("error") is None else read_failure(said["error"])
    return Observation(
        value=said.get("value"), arguments=said.get("arguments"), printed=writable(said["printed"][:PRINTED]),
        counts=counts, error=error,
    )  # fmt: skip


def _place(file: Any, line: int) -> tuple[str, int]:
    """A line that the cell has, by `remember_lines`; a number that it has not may be anything, also a hidden input."""
    known = type(file) is str and re.fullmatch(r"<cell \d{1,6}>", file) is not None
    return (file, line) if known and linecache.getline(file, line).strip() else ("", 0)
