"""For how long no rank, nor anything a rank started, has computed.

Floor 1. A rank that waits in gloo uses no processor time, like one that sleeps; a rank that transfers does.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

import psutil

NEGLIGIBLE = 0.02  # seconds of processor time that a rank may use and still count as idle


class IdleWatch:
    """Watches the process trees under `pids`; ask `seconds` every now and then."""

    def __init__(self, pids: Mapping[int, int]) -> None:
        self._roots = set(pids.values())
        self._used: dict[int, float] = {}
        self._since = time.monotonic()

    def seconds(self) -> float:
        """Seconds since any of them was last seen to work, as far as it was asked."""
        now = time.monotonic()
        used, running = _processor_time(self._roots)
        worked = any(seconds - self._used.get(pid, 0.0) > NEGLIGIBLE for pid, seconds in used.items())
        if running or worked or used.keys() != self._used.keys():
            self._used, self._since = used, now
        return now - self._since

    def restart(self) -> None:
        """Count from now."""
        self._since = time.monotonic()


def _processor_time(roots: Collection[int]) -> tuple[dict[int, float], bool]:
    """Processor seconds of each process in the trees under `roots`, and whether one is running now."""
    parents, used, running = {}, {}, set()
    for process in psutil.process_iter(["ppid", "cpu_times", "status"]):
        times = process.info["cpu_times"]
        parents[process.pid] = process.info["ppid"]
        used[process.pid] = times.user + times.system if times else 0.0
        if process.info["status"] in (psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP, psutil.STATUS_STOPPED):
            running.add(process.pid)
    tree = {pid for pid in parents if _descends(pid, parents, roots)}
    return {pid: used[pid] for pid in tree}, bool(tree & running)


def _descends(pid: int, parents: Mapping[int, int | None], roots: Collection[int]) -> bool:
    seen: set[int] = set()
    while pid and pid not in seen:
        if pid in roots:
            return True
        seen.add(pid)
        pid = parents.get(pid) or 0
    return False
