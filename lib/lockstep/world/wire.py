"""Messages over a stream socket between the notebook kernel and one rank.

Floor 1, room `world`, below every other file of the processes. A message is a small header (a tuple
that is pickled) and a body of plain bytes, which may be hundreds of megabytes: it is sent as it is,
never through shared memory, so that a small /dev/shm cannot matter.
"""

from __future__ import annotations

import io
import os
import pickle
import socket
import struct
from collections.abc import Iterator
from typing import Any

LENGTHS = struct.Struct("!IQ")
Message = tuple[tuple[Any, ...], bytearray]


class Channel:
    """One end of a connection: the rank's end blocks, the kernel's end never does."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.closed = False
        self._unsent: list[memoryview] = []
        self._header: tuple[Any, ...] | None = None
        self._lengths: tuple[int, int] | None = None
        self._expect(LENGTHS.size)

    def fileno(self) -> int:
        return self.socket.fileno()

    def close(self) -> None:
        self.closed = True
        self.socket.close()

    # the rank's end

    def send(self, *header: Any, body: bytes | bytearray | memoryview = b"") -> None:
        """Send one message and return when all of it has left."""
        for part in _frame(header, body):
            self.socket.sendall(part)

    def receive(self) -> Message:
        """Wait for one message; EOFError when the other end has gone."""
        for message in self._messages(one=True):
            return message
        raise EOFError("the other end of the channel has closed")

    # the kernel's end

    def post(self, *header: Any, body: bytes | bytearray | memoryview = b"") -> None:
        """Queue one message; `flush` sends it."""
        self._unsent += _frame(header, body)

    def flush(self) -> bool:
        """Send what the socket takes without blocking; False when something is left."""
        self.socket.setblocking(False)
        try:
            while self._unsent:
                sent = self.socket.send(self._unsent[0])
                self._unsent[0] = self._unsent[0][sent:]
                if not self._unsent[0]:
                    del self._unsent[0]
        except BlockingIOError:
            return False
        except OSError:  # the rank has gone; its death is reported elsewhere
            self._unsent.clear()
        return True

    def arrivals(self) -> list[Message]:
        """Every message that is whole by now, without blocking; sets `closed` when the other end has gone."""
        self.socket.setblocking(False)
        return list(self._messages())

    def _expect(self, size: int) -> None:
        self._part, self._filled = bytearray(size), 0

    def _messages(self, one: bool = False) -> Iterator[Message]:
        while not self.closed:
            if self._filled < len(self._part):
                try:
                    count = self.socket.recv_into(memoryview(self._part)[self._filled :])
                except BlockingIOError:
                    return
                except OSError:
                    count = 0
                if count == 0:
                    self.closed = True
                    return
                self._filled += count
                continue
            message = self._part_done(bytes(self._part) if self._header is None else b"")
            if message is not None:
                yield message
                if one:
                    return

    def _part_done(self, part: bytes) -> Message | None:
        """Lengths, then header, then body: step to the next part; the message after the last one."""
        if self._lengths is None:
            self._lengths = LENGTHS.unpack(part)
            self._expect(self._lengths[0])
            return None
        if self._header is None:
            self._header = pickle.loads(part)
            self._expect(self._lengths[1])
            return None
        message = (self._header, self._part)
        self._lengths = self._header = None
        self._expect(LENGTHS.size)
        return message


class Stream:
    """The reading end of a rank's output: a pipe, or a socket where pipes cannot be waited for."""

    def __init__(self, end: int | socket.socket) -> None:
        # A file object closes its descriptor once: closed by number twice, it would take a stranger's that came between.
        self._end = io.FileIO(end) if isinstance(end, int) else end
        if isinstance(self._end, io.FileIO):
            os.set_blocking(end, False)
        else:
            self._end.setblocking(False)

    def fileno(self) -> int:
        return self._end.fileno()

    def read(self) -> bytes | None:
        """What has arrived: None when nothing has, b"" when nothing more will."""
        try:
            return self._end.read(65536) if isinstance(self._end, io.FileIO) else self._end.recv(65536)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def close(self) -> None:
        self._end.close()


def _frame(header: tuple[Any, ...], body: bytes | bytearray | memoryview) -> list[memoryview]:
    head = pickle.dumps(header)
    parts = [memoryview(LENGTHS.pack(len(head), len(body)) + head)]
    return parts + ([memoryview(body)] if len(body) else [])
