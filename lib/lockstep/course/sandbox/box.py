"""The grader's end of a box: start one, let it fork a student's process, talk, and end it.

Floor 4, room `course`. Read `levels` first; the other end is `inside/zygote.py`.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.course.sandbox import levels
from lockstep.course.sandbox.package import copy_package
from lockstep.course.sandbox.wire import Garbled, Gone, Late, Line

BOOT = (
    "import json, socket, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from lockstep.course.sandbox.inside import zygote; "
    "zygote.serve(socket.socket(fileno=int(sys.argv[2])))"
)
START = 120.0  # seconds that a box may take to import torch
KINDS = 8  # processes that fork, each with other names that refuse: those of a lab and of its exercises
ENDING = 10.0  # seconds that it may take to end a student's process
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/tmp", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONDONTWRITEBYTECODE": "1",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",  # a fork copies page tables: with huge pages in a third of the time
}  # fmt: skip


@dataclass(frozen=True)
class Limits:
    """Of one student's process: seconds of the processor, bytes of memory and of a file, processes and threads."""

    seconds: float = 40.0
    memory: int = 2 << 30
    processes: int = 48
    file: int = 16 << 20


class BoxLost(RuntimeError):
    """A box does not start, or has ended; the message says what it said last."""


class Child:
    """A student's process. `send` and `receive` raise what `wire` raises."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.status, self.killed, self.seconds = 0, False, 0.0  # known after the end; killed: by us

    def send(self, deadline: float, **message: Any) -> None:
        self.line.send(message, deadline)

    def receive(self, deadline: float) -> dict[str, Any]:
        return self.line.receive(deadline)


class Box:
    """A zygote at one level; `landlock` is the version of Landlock that shuts its children in, or 0."""

    def __init__(self, level: str) -> None:
        self.level, self.process, self._line = level, None, None
        self.landlock = 0
        self._lines: dict[tuple[str, ...], Line] = {}  # to those who fork, by what refuses there
        self._folder = Path(tempfile.mkdtemp(prefix="lockstep-box-"))
        self._last_words = tempfile.TemporaryFile()
        self._taken: socket.socket | None = None
        self.user = self._a_user() if os.geteuid() == 0 and level != "process" else 0
        self._start()

    def _a_user(self) -> int:
        """A user whom no other grader on this machine has: at the end of a child, all of that user's processes end."""
        for offset in range(levels.USERS):
            user = levels.FIRST_USER + (os.getpid() + offset) % levels.USERS
            self._taken = socket.socket(socket.AF_UNIX)
            try:
                self._taken.bind(f"\0lockstep user {user}")  # a name without a file, which the system gives back
            except OSError:
                self._taken.close()
                continue
            return user
        raise BoxLost(f"{levels.USERS} graders run on this machine already")

    def _start(self) -> None:
        library = copy_package(self._folder)
        ours, theirs = socket.socketpair()
        self._line = Line(ours)
        try:
            self.process = subprocess.Popen(
                self._command(library, theirs.fileno()), stdin=subprocess.DEVNULL, stdout=self._last_words,
                stderr=self._last_words, pass_fds=[theirs.fileno()], cwd="/", env=ENVIRONMENT, start_new_session=True,
            )  # fmt: skip
            theirs.close()
            self.landlock = int(self._line.receive(time.monotonic() + START)["landlock"])
        except (Gone, Late, Garbled, KeyError, OSError) as error:
            self.close()
            raise BoxLost(f"the sandbox ({self.level}) does not start: {self._said() or error}") from None
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)  # it has imported all of it

    def _command(self, library: Path, descriptor: int) -> list[str]:
        names = ("stdlib", "platstdlib", "purelib", "platlib")
        standard = [path for path in sys.path if path.endswith(("lib-dynload", ".zip"))]
        path = list(dict.fromkeys([str(library), *(sysconfig.get_path(name) for name in names), *standard]))
        python = [sys.executable, "-I", "-S", "-c", BOOT, json.dumps(path), str(descriptor)]
        if self.level != "bubblewrap":
            return python
        options = [*levels.bubblewrap_options(), "--ro-bind", str(library), str(library), "--chdir", "/tmp"]
        return [str(shutil.which("bwrap")), *options, "--", *python]

    @contextlib.contextmanager
    def child(self, limits: Limits, refused: Sequence[str] = ()) -> Iterator[Child]:
        """Fork a student's process in which the names `refused` refuse, see `inside/refuse.py`. Raises BoxLost.

        At the end of the block nothing of it is alive.
        """
        forking = self._forking(tuple(refused))
        ours, theirs = socket.socketpair()
        made = Child(Line(ours))
        asked = {**vars(limits), "user": self.user, "readable": list(levels.readable())}
        asked["processes"] += 0 if self.user or self.level == "bubblewrap" else _tasks_of_this_user()
        self._ask(forking, theirs, asked)
        try:
            yield made
        finally:
            ours.close()
            self._end(made, forking)

    def _forking(self, refused: tuple[str, ...]) -> Line:
        """The line to the process that forks those in which `refused` refuse; the oldest of too many is let go."""
        if refused not in self._lines:
            while len(self._lines) >= KINDS:
                self._lines.pop(next(iter(self._lines))).socket.close()
            ours, theirs = socket.socketpair()
            self._lines[refused] = Line(ours)
            self._ask(self._line, theirs, {"refuse": list(refused)})
        return self._lines[refused]

    def _ask(self, line: Line, theirs: socket.socket, asked: dict[str, Any]) -> None:
        try:
            socket.send_fds(line.socket, [b"x"], [theirs.fileno()])
            line.send(asked)
            line.receive(time.monotonic() + ENDING)
        except (Gone, Late, Garbled, OSError):
            raise self._lost() from None
        finally:
            theirs.close()

    def _end(self, made: Child, forking: Line) -> None:
        try:
            forking.send({"end": True})
            told = forking.receive(time.monotonic() + ENDING)
            made.status, made.killed, made.seconds = int(told["exit"]), bool(told["killed"]), float(told["seconds"])
        except (Gone, Late, Garbled, KeyError):
            self.close()

    @property
    def name(self) -> str:
        """The level, and what else shuts in: "user, Landlock"."""
        return self.level + (", Landlock" if self.landlock else "")

    @property
    def is_open(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def _lost(self) -> BoxLost:
        said = self._said()
        self.close()
        return BoxLost(f"the sandbox ({self.level}) has ended: {said}")

    def _said(self) -> str:
        text = os.pread(self._last_words.fileno(), 65536, 0).decode(errors="replace").strip()
        return text.splitlines()[-1] if text else "it left no message"

    def _hang_up(self) -> None:
        for line in (*self._lines.values(), *([self._line] if self._line else [])):
            line.socket.close()

    def close(self) -> None:
        """End the zygote, and every process that it has forked."""
        self._hang_up()
        if self.process is not None:
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self._taken is not None:
            self._taken.close()
        shutil.rmtree(self._folder, ignore_errors=True)


_boxes: dict[str, Box] = {}
_lock = threading.RLock()


def box(level: str) -> Box:
    """This process's box of that level; starts one if there is none, or if the last one has ended."""
    with _lock:
        if level in _boxes and not _boxes[level].is_open:
            _boxes.pop(level).close()
        if level not in _boxes:
            _boxes[level] = Box(level)
        return _boxes[level]


@atexit.register
def close_boxes() -> None:
    """End all boxes of this process."""
    while _boxes:
        _boxes.popitem()[1].close()


def _forget() -> None:
    """A forked copy of this process has boxes of its own."""
    global _lock
    _lock = threading.RLock()
    for one in _boxes.values():
        one._hang_up()
        if one._taken is not None:
            one._taken.close()
    _boxes.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _tasks_of_this_user() -> int:
    """Processes and threads that count against the limit of a user who has others."""
    me, many = os.getuid(), 0
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if entry.stat().st_uid == me:
                    many += len(os.listdir(f"/proc/{entry.name}/task"))
    return many
