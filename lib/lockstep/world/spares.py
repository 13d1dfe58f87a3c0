"""Spare ranks: processes with torch already imported that wait for one job, where fork is not available.

Floor 1. The kernel starts a spare with a secret on its standard input and listens on a loopback port of
the system's choice; the spare imports, connects, shows the secret and waits. It is used once. When the
kernel goes away, standard input ends, and the spare ends itself and whatever it started.
"""

from __future__ import annotations

import atexit
import hmac
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from typing import Any

import psutil

from lockstep.world.forked import ONE_THREAD, PATIENT, import_path
from lockstep.world.run import RunError
from lockstep.world.wire import Channel, Stream

BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from lockstep.world import spares; spares.stand_by(int(sys.argv[2]))"
)
SECRET_BYTES = 32
PIPES_CAN_BE_WAITED_FOR = os.name == "posix"
# A rank opens no window and does not hear the Ctrl-C that is meant for the kernel; 0 where there is no such flag.
WINDOWS_FLAGS = getattr(subprocess, "CREATE_NO_WINDOW", 0) | getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
START_LIMIT = 120.0  # seconds for Python to start and import torch on a slow disk

_lock = threading.Lock()
_spares: list[Spare] = []  # those that wait
_all: weakref.WeakSet[Spare] = weakref.WeakSet()  # and those that work


class Spare:
    """The kernel's side of one spare process."""

    def __init__(self) -> None:
        self.secret = secrets.token_bytes(SECRET_BYTES)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=4)
        self.listener.settimeout(0.1)
        port = self.listener.getsockname()[1]
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", BOOT, json.dumps(import_path()), str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=os.path.abspath(os.sep),
            env=os.environ | ONE_THREAD | PATIENT,
            start_new_session=os.name == "posix",
            creationflags=WINDOWS_FLAGS,
        )
        self.process.stdin.write(self.secret)
        self.process.stdin.flush()
        self.channel: Channel | None = None
        self.copier: threading.Thread | None = None
        _all.add(self)

    def wait(self) -> Channel:
        """Its channel, once it has imported everything; RunError when it cannot start."""
        deadline = time.monotonic() + START_LIMIT
        while self.channel is None:
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.end()
                raise RunError(f"a rank could not start: {_last_line(self.process.stdout.read())}")
            try:
                self._greet(self.listener.accept()[0])
            except TimeoutError:
                continue
        self.listener.close()
        return self.channel

    def _greet(self, connection: socket.socket) -> None:
        """Take the connection if it knows the secret: any local process could have made it."""
        connection.settimeout(2)
        try:
            shown = connection.recv(SECRET_BYTES, socket.MSG_WAITALL)
        except OSError:
            shown = b""
        if hmac.compare_digest(shown, self.secret):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.channel = Channel(connection)
        else:
            connection.close()

    def output(self) -> Stream:
        """Something `select` can wait for; on Windows a pipe is not, so a thread copies it into a socket."""
        if PIPES_CAN_BE_WAITED_FOR:
            return Stream(os.dup(self.process.stdout.fileno()))
        ours, theirs = socket.socketpair()
        self.copier = threading.Thread(target=_copy, args=(self.process.stdout, theirs), daemon=True)
        self.copier.start()
        return Stream(ours)

    def end(self) -> None:
        """Kill it with everything it started, and wait until it is gone."""
        kill_tree(self.process.pid)
        self.process.wait()
        self.process.stdin.close()
        self.listener.close()
        if self.copier is not None:
            self.copier.join(0.5)  # so that its last lines are there to be read


class SpawnedRanks:
    """`ranks` spare processes put to work: the same surface as `ForkedRanks`."""

    def __init__(self, ranks: int, scratch: str) -> None:
        self._spares = _take(ranks)
        self._reported: set[int] = set()
        self.channels: list[Channel] = []
        try:
            for spare in self._spares:
                self.channels.append(spare.wait())
        except BaseException:
            self.end()
            raise
        self.outputs = [spare.output() for spare in self._spares]
        self.pids = {rank: spare.process.pid for rank, spare in enumerate(self._spares)}

    @property
    def waitable(self) -> list[Any]:
        return []  # a process that ends closes its channel, which wakes the supervisor

    def exits(self) -> list[tuple[int, int]]:
        ended = []
        for rank, spare in enumerate(self._spares):
            if rank not in self._reported and spare.process.poll() is not None:
                self._reported.add(rank)
                ended.append((rank, spare.process.returncode))
        return ended

    def signal(self, number: int) -> None:
        for spare in self._spares:
            spare.process.send_signal(number)

    def end(self) -> None:
        for spare in self._spares:
            spare.end()

    def close(self) -> None:
        for channel in self.channels:
            channel.close()
        for spare, output in zip(self._spares, self.outputs, strict=True):
            output.close()
            if PIPES_CAN_BE_WAITED_FOR:  # elsewhere the thread that copies still has it
                spare.process.stdout.close()


def _take(ranks: int) -> list[Spare]:
    with _lock:
        _spares[:] = [spare for spare in _spares if spare.process.poll() is None]
        taken = [_spares.pop(0) for _ in range(min(ranks, len(_spares)))]
    return taken + [Spare() for _ in range(ranks - len(taken))]


def refill(ranks: int) -> None:
    """See to it that `ranks` spares wait or are on their way; they import in the background."""
    with _lock:
        _spares.extend(Spare() for _ in range(ranks - len(_spares)))


@atexit.register
def dismiss() -> None:
    """End all spares that wait."""
    with _lock:
        spares = _spares[:]
        _spares.clear()
    for spare in spares:
        spare.end()


def _forget_in_fork() -> None:
    """A forked copy of the kernel must not keep spares and ranks alive."""
    global _lock
    _lock = threading.Lock()
    for spare in _all:
        spare.process.stdin.close()
        spare.listener.close()
    _spares.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_fork)


def kill_tree(pid: int) -> None:
    """Kill a process and everything it started."""
    if os.name == "posix":
        for kill in (os.killpg, os.kill):
            try:
                kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        return
    try:
        process = psutil.Process(pid)
        for each in [*process.children(recursive=True), process]:
            each.kill()
    except psutil.NoSuchProcess:
        pass


def _copy(pipe: Any, sink: socket.socket) -> None:
    with sink:
        while data := os.read(pipe.fileno(), 65536):
            sink.sendall(data)


def _last_line(output: bytes) -> str:
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it left no message"


def stand_by(port: int) -> None:
    """The spare's own program: import, connect, do one job. Ends with the kernel."""
    if os.name == "posix":
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # the request for a stack may come before it can be answered
    secret = sys.stdin.buffer.read(SECRET_BYTES)
    kernel_input = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    work: list[Any] = []
    threading.Thread(target=_end_with_kernel, args=(kernel_input, work), daemon=True).start()
    from lockstep.world.rank import Rank, prepare

    prepare()
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(secret)
    work.append(Rank(Channel(connection)))
    work[0].run()


def _end_with_kernel(kernel_input: int, work: list[Any]) -> None:
    """Wait in a thread for the kernel to go; then nobody else removes the run's directory."""
    os.read(kernel_input, 1)
    if work and work[0].job is not None:
        shutil.rmtree(work[0].job.scratch, ignore_errors=True)
    kill_tree(0 if os.name == "posix" else os.getpid())
