"""The kernel's side of the warm parent: start it once, ask it for ranks.

Floor 1; read `warm.py` first. Linux only; elsewhere ranks are spawned (`spares.py`).
"""

from __future__ import annotations

import atexit
import json
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from typing import IO, Any

from lockstep.world.run import RunError
from lockstep.world.wire import Channel, Stream

BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from lockstep.world import warm; warm.serve(int(sys.argv[2]))"
)
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
# Ranks share the cores: threads of a rank that spin while they wait would take them from the others.
PATIENT = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}
# A fork copies page tables: with the heap in huge pages it takes a third of the time. Ranks switch it off again.
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


# Libraries that rank functions use. What a call needs of them, the warm parent imports before it forks, so that not
# every rank of every run does; what else the notebook has imported of them, when it is idle.
LIBRARIES = {"lockstep", "mlxtend", "sklearn", "torchvision"}
# Importing these asks Numba, where it is used, for a GPU; no fork of a process that has asked can use one.
LOOK_FOR_GPUS = ("lockstep.simt", "lockstep.viz", "lockstep.exercises", "lockstep.course")


class WarmParentLost(RunError):
    """The warm parent went away before it had started the ranks: start another."""


class _Warm:
    """The one warm parent of this process. A forked copy of the kernel does not share it."""

    lock = threading.Lock()
    socket: socket.socket | None = None
    process: subprocess.Popen[bytes] | None = None
    log: IO[bytes] | None = None
    told: set[str] = set()


def start_warm_parent() -> socket.socket:
    """The socket to ask for ranks; starts the warm parent if there is none. Does not wait for its imports."""
    with _Warm.lock:
        if _Warm.socket is None or _Warm.process is None or _Warm.process.poll() is not None:
            _forget()
            _start()
        assert _Warm.socket is not None
        return _Warm.socket


def _start() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    _Warm.log = tempfile.TemporaryFile()
    _Warm.process = subprocess.Popen(
        [sys.executable, "-P", "-c", BOOT, json.dumps(import_path()), str(os.getpid())],
        stdin=theirs,
        stdout=_Warm.log,
        stderr=_Warm.log,
        cwd="/",
        env=os.environ | ONE_THREAD | PATIENT | HUGE_PAGES,
        start_new_session=True,
    )
    _Warm.socket, _Warm.told = ours, set()
    theirs.close()


def _new_libraries() -> list[str]:
    """Modules of `LIBRARIES` that this process has imported and the warm parent has not been told of."""
    names = set(filter(_may_be_imported, list(sys.modules))) - _Warm.told
    _Warm.told |= names
    return sorted(names)


def _may_be_imported(module: str) -> bool:
    """By the warm parent."""
    looks = "numba" in sys.modules and module.startswith(LOOK_FOR_GPUS)
    return module.partition(".")[0] in LIBRARIES and not looks


def import_path() -> list[str]:
    """`sys.path` without the working directory, where a student's `random.py` may lie."""
    return [path for path in sys.path if path not in ("", working_directory())]


def working_directory() -> str:
    """The working directory; the root of the file system when it has been deleted."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return os.sep


def _forget() -> None:
    """Close our side; the warm parent, if it lives, ends itself."""
    if _Warm.socket is not None:
        _Warm.socket.close()
        _Warm.log.close()
    _Warm.socket = _Warm.process = None


def _forget_in_fork() -> None:
    _Warm.lock = threading.Lock()
    _forget()


def _retire(gone: socket.socket) -> None:
    """Never ask this warm parent again, even while it takes its time to die."""
    with _Warm.lock:
        if _Warm.socket is gone:
            _Warm.process.kill()
            _forget()


@atexit.register
def stop_warm_parent() -> None:
    """End the warm parent and wait for it; the next launch starts another."""
    with _Warm.lock:
        process = _Warm.process
        _forget()
    if process is not None:
        try:
            process.wait(0.5)
        except subprocess.TimeoutExpired:  # in the middle of an import
            process.kill()
            process.wait()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_fork)


class ForkedRanks:
    """`ranks` new processes, forked from the warm parent: channels, outputs, exits, one end.

    modules: what the ranks will import.
    """

    def __init__(self, ranks: int, scratch: str, modules: Iterable[str] = ()) -> None:
        self.pids: dict[int, int] = {}
        self.channels: list[Channel] = []
        self.outputs: list[Stream] = []
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        handed = [theirs.detach()]
        try:
            handed += self._open_channels(ranks)
            self._warm = start_warm_parent()
            self._ask(scratch, list(filter(_may_be_imported, modules)), handed)
        except BaseException:
            self.end()
            self.close()
            raise
        finally:
            for descriptor in handed:
                os.close(descriptor)

    def _open_channels(self, ranks: int) -> list[int]:
        """Keep our end of each rank's control socket and output; give the others."""
        theirs: list[int] = []
        try:
            for _ in range(ranks):
                control, far_control = socket.socketpair()
                self.channels.append(Channel(control))
                theirs.append(far_control.detach())
                output, far_output = os.pipe()
                self.outputs.append(Stream(output))
                theirs.append(far_output)
        except OSError as error:
            for descriptor in theirs:
                os.close(descriptor)
            raise RunError(f"launch cannot open what {ranks} ranks need: {error.strerror} (`ulimit -n`)") from None
        return theirs

    def _ask(self, scratch: str, needed: list[str], handed: list[int]) -> None:
        try:
            socket.send_fds(self._warm, [pickle.dumps((scratch, needed, _new_libraries()))], handed)
        except OSError:
            raise self._lost() from None

    @property
    def waitable(self) -> list[Any]:
        """What becomes readable when there are `exits` to read."""
        return [self._socket]

    def exits(self) -> list[tuple[int, int]]:
        """(rank, exit code or minus the signal) of ranks that have ended since the last call."""
        ended = []
        while (message := self._receive()) is not None:
            kind, *rest = message
            if kind == "started":
                self.pids = rest[0]
            elif kind == "exit":
                ended.append((rest[0], rest[1]))
            else:
                raise RunError(f"launch could not start its ranks: {rest[0]}. Ask for fewer ranks.")
        return ended

    def _receive(self) -> tuple[Any, ...] | None:
        try:
            packet = self._socket.recv(65536, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except OSError:
            packet = b""
        if packet:
            return pickle.loads(packet)
        if not self.pids:
            raise self._lost()
        raise RunError("the process that starts ranks was killed, and the ranks with it; run the cell again")

    def _lost(self) -> WarmParentLost:
        """No rank has started, and none will: that warm parent is dying or could not import."""
        words = _last_words()
        _retire(self._warm)
        return WarmParentLost(f"the process that starts ranks could not start them: {words}")

    def signal(self, number: int) -> None:
        """Send a signal to every rank that is alive."""
        try:
            self._socket.send(pickle.dumps(("signal", number)))
        except OSError:
            pass

    def end(self) -> None:
        """Kill every rank that is left, with all it started, and return when they are gone (at most 2 s)."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
            self._socket.settimeout(2)
            while self.pids and self._socket.recv(65536):
                pass
        except OSError:
            pass
        self._socket.close()

    def close(self) -> None:
        """Give back channels and pipes; call it after the last output has been read."""
        for channel in self.channels:
            channel.close()
        for output in self.outputs:
            output.close()


def _last_words() -> str:
    with _Warm.lock:
        if _Warm.socket is None:
            return "it left no message"
        text = os.pread(_Warm.log.fileno(), 65536, 0).decode(errors="replace").strip()
    return text.splitlines()[-1] if text else "it left no message"
