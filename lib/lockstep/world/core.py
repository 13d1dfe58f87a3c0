"""Keep threads that take turns on one core, where the system can.

Floor 1, room `world`. Ranks of a simulation run one at a time. Handing the baton to a thread on another,
sleeping core costs more than the step itself: on one core, 64 ranks need about two thirds of the time.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from functools import cache


def core_here() -> int | None:
    """The core that the calling thread runs on, or None where nobody can say."""
    if sys.platform != "linux":
        return None
    with contextlib.suppress(OSError, AttributeError):
        core = _libc().sched_getcpu()
        return core if core in os.sched_getaffinity(0) else None
    return None


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def stay_on(core: int | None) -> None:
    """Keep the calling thread, and what it starts, on `core`; None leaves it as it is."""
    if core is not None:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {core})
