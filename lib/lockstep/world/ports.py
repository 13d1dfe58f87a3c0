"""When each rank's ports are free, shared by the processes of a paced run.

Floor 1, room `world`. Every rank has a port to send and a port to receive. The rank that posts the second side of a
message decides when it moves: from the latest of both posts and of both ports becoming free, for as long as its
link takes; it takes both ports until then, and the rank that posted first looks the time up. So neither waits for
an answer of the other.

The simulated world lets a transfer that waits for one port leave the other to those behind it; here it keeps its
place in both.
"""

from __future__ import annotations

import itertools
import mmap
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from lockstep.comm import CommunicationError

UNDER_WAY = 512  # messages from one rank to one other, posted on one side or not looked up yet
_TIME = struct.Struct("@d")
_COUNT = struct.Struct("@Q")
_ENTRY = struct.Struct("@QQdd")  # key with the side that posted, its ticket, its post, the end (-1: not met yet)
_NOT_MET = -1.0


class Ticket(NamedTuple):
    """A side that was posted first: look up its end with `Ports.end`."""

    at: int
    key: int
    number: int


class Ports:
    """The ports of `size` ranks in the file `path`, which `create` made. Times are seconds of the run's clock."""

    def __init__(self, path: Path, size: int) -> None:
        self._size = size
        self._file = path.open("r+b")
        self._map = mmap.mmap(self._file.fileno(), _file_bytes(size))
        self._threads = threading.Lock()  # a lock on a file is one process's, whichever thread asks
        self._numbers = itertools.count()

    @staticmethod
    def create(path: Path, size: int) -> None:
        """Make the file: all ports free, no message under way."""
        with path.open("wb") as file:
            file.truncate(_file_bytes(size))

    def post(self, src: int, dst: int, sends: bool, key: int, posted: float, seconds: float) -> float | Ticket:
        """Post one side of a message that moves for `seconds`; gives its end when the other side has posted.

        key: what both sides must agree on, below 2^63; equal ones meet in the order of their posts.
        Raises CommunicationError when too many messages are under way.
        """
        at = self._channel(src, dst)
        with self._locked():
            memory = self._map
            (count,) = _COUNT.unpack_from(memory, at)
            wanted = key << 1 | (not sends)
            for i in range(count):
                slot = at + _COUNT.size + i * _ENTRY.size
                other, number, other_posted, end = _ENTRY.unpack_from(memory, slot)
                if other == wanted and end == _NOT_MET:
                    end = max(posted, other_posted, self._free(src, 0), self._free(dst, 1)) + seconds
                    _ENTRY.pack_into(memory, slot, other, number, other_posted, end)
                    for rank, receives in ((src, 0), (dst, 1)):
                        _TIME.pack_into(memory, self._port(rank, receives), end)
                    return end
            if count == UNDER_WAY:
                raise CommunicationError(
                    f"{UNDER_WAY} messages from rank {src} to rank {dst} are under way, and a paced run has no room "
                    f"for more: wait for some."
                )
            ticket = Ticket(at, key << 1 | sends, next(self._numbers))
            _ENTRY.pack_into(
                memory, at + _COUNT.size + count * _ENTRY.size, ticket.key, ticket.number, posted, _NOT_MET
            )
            _COUNT.pack_into(memory, at, count + 1)
            return ticket

    def end(self, ticket: Ticket) -> float:
        """When the message of `ticket` ends. Waits for the other side, which has its data already, to say so."""
        while (end := self._look_up(ticket)) is None:
            time.sleep(50e-6)
        return end

    def _look_up(self, ticket: Ticket) -> float | None:
        """The end, once; None as long as the other side has not posted."""
        with self._locked():
            memory, first = self._map, ticket.at + _COUNT.size
            (count,) = _COUNT.unpack_from(memory, ticket.at)
            for i in range(count):
                slot = first + i * _ENTRY.size
                key, number, _, end = _ENTRY.unpack_from(memory, slot)
                if (key, number) == (ticket.key, ticket.number):
                    if end == _NOT_MET:
                        return None
                    memory.move(slot, slot + _ENTRY.size, (count - 1 - i) * _ENTRY.size)
                    _COUNT.pack_into(memory, ticket.at, count - 1)
                    return end
            raise AssertionError("a ticket is looked up once")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._threads:
            _lock(self._file.fileno())
            try:
                yield
            finally:
                _unlock(self._file.fileno())

    def _free(self, rank: int, receives: int) -> float:
        return _TIME.unpack_from(self._map, self._port(rank, receives))[0]

    def _port(self, rank: int, receives: int) -> int:
        return (2 * rank + receives) * _TIME.size

    def _channel(self, src: int, dst: int) -> int:
        return 2 * self._size * _TIME.size + (src * self._size + dst) * _CHANNEL


_CHANNEL = _COUNT.size + UNDER_WAY * _ENTRY.size


def _file_bytes(size: int) -> int:
    """Pages that nobody touches cost nothing."""
    return 2 * size * _TIME.size + size * size * _CHANNEL


if sys.platform == "win32":
    import msvcrt
    import os

    def _lock(file: int) -> None:
        while True:
            os.lseek(file, 0, os.SEEK_SET)
            try:
                return msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
            except OSError:  # another rank has it, for microseconds
                time.sleep(0)

    def _unlock(file: int) -> None:
        os.lseek(file, 0, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _lock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX)

    def _unlock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)
