"""A process that has imported torch, and forks one student's process at a time.

Floor 4, room `course`. It holds no secret and runs no line of a student's code. The grader's messages are
    {"refuse": names}, with another socket beside it       -> {"pid": of a process that serves there, as this one}
    {"fork": limits}, with the student's socket beside it  -> {"pid": number}
    {"end": True}                                          -> {"exit": status, "killed": bool, "seconds": computed}
After the end nothing that the student's process started is alive, and its folder is gone. Of the first, one is forked
for each set of names: there they refuse, and the library is noted as it is, once for all students and not once for each.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import pkgutil
import resource
import shutil
import signal
import socket
import sys
import tempfile
import time
from typing import Any

from lockstep.course.sandbox.inside import rules
from lockstep.course.sandbox.inside.absent import Absent
from lockstep.course.sandbox.inside.refuse import refuse
from lockstep.course.sandbox.inside.unchanged import Unchanged, sealed
from lockstep.course.sandbox.wire import Gone, Line

PR_SET_CHILD_SUBREAPER, PR_SET_THP_DISABLE = 36, 41
ROOMS = ("trace", "hardware", "nn", "data", "simt", "cost", "comm", "world", "compress", "parallel", "plan")
SLOW = ("lockstep.parallel.checkpoint.storage",)  # seconds of importing, for files that a box cannot write
# What students' functions import; a box that may not read them any more has them already.
LIBRARIES = (
    "abc", "bisect", "collections", "contextlib", "copy", "dataclasses", "decimal", "enum", "fractions", "functools",
    "heapq", "inspect", "itertools", "json", "math", "operator", "random", "re", "statistics", "string", "textwrap",
    "threading", "time", "typing", "uuid", "warnings", "weakref", "numpy.linalg", "numpy.random", "torch.nn.functional",
    "torch.nn.parallel", "torch.distributed", "torch.utils.data", "torch.utils.checkpoint", "encodings.idna",
)  # fmt: skip


def serve(connection: socket.socket) -> None:
    """Import everything, say so, and fork until the grader has gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    line = Line(connection)
    _import_everything()
    line.send({"ready": True, "landlock": rules.landlock_version()})
    _serve(line, None)


def _serve(line: Line, library: Unchanged | None) -> None:
    """Fork until the grader has gone; with the library as it is, students' processes."""
    rules.libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # of this process alone: forks do not have it
    try:
        while True:
            packet, (theirs,), _, _ = socket.recv_fds(line.socket, 1, 1)
            if not packet:
                return
            asked = line.receive()
            if library is None:
                _another(line, theirs, asked["refuse"])
            else:
                _one(line, library, theirs, asked)
    except (Gone, ValueError, OSError):
        return


def _another(line: Line, theirs: int, names: list[str]) -> None:
    """Fork one of this kind, in which `names` refuse."""
    _reap()
    pid = os.fork()
    if pid == 0:
        try:
            line.socket.close()
            refuse(names)
            library = sealed()
            gc.freeze()
            _serve(Line(socket.socket(fileno=theirs)), library)
        finally:
            os._exit(0)
    os.close(theirs)
    line.send({"pid": pid})


def _reap() -> None:
    """Those of which the grader wants no more have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _one(line: Line, library: Unchanged, theirs: int, limits: dict[str, Any]) -> None:
    """Fork a student's process, wait for the word to end it, and leave nothing of it."""
    place = tempfile.mkdtemp(prefix="box-")
    if limits["user"]:
        os.chown(place, limits["user"], limits["user"])
    pid = os.fork()
    if pid == 0:
        try:
            line.socket.close()
            _become_a_student(library, theirs, place, limits)
        finally:
            os._exit(70)
    os.close(theirs)
    line.send({"pid": pid})
    try:
        line.receive()
    finally:
        status, killed, used = _end(pid, limits["user"])
        shutil.rmtree(place, ignore_errors=True)
    line.send({"exit": status, "killed": killed, "seconds": used})


def _become_a_student(library: Unchanged, connection: int, place: str, limits: dict[str, Any]) -> None:
    """In the child: a session, an empty folder, limits and rules; then serve the grader."""
    from lockstep.course.sandbox.inside import agent

    rules.libc.prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)  # the first write to a page must not copy 2 MiB
    os.setsid()
    os.chdir(place)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)
    os.environ.clear()
    os.environ.update(HOME=place, TMPDIR=place, PATH="/usr/bin:/bin", LANG="C.UTF-8", OMP_NUM_THREADS="1")
    tempfile.tempdir = place
    rules.limit(limits["seconds"], limits["memory"], limits["processes"], limits["file"])
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if limits["user"]:
        rules.become(limits["user"])
    rules.shut_in(limits["readable"], [place, os.devnull])
    rules.call_nobody()
    line = Line(socket.socket(fileno=connection))
    agent.start(line, library)


def _end(pid: int, user: int) -> tuple[int, bool, float]:
    """Kill the student's process and all that it started: its status, whether that was us, and the seconds computed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # by itself, before anybody kills it
    deadline, status = time.monotonic() + 2, 0
    _kill(pid)
    while time.monotonic() < deadline:
        if user:
            _kill_all_of(user)
        for child in _children():
            _kill(child)
        try:
            child, how = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if child == pid:
            status = os.waitstatus_to_exitcode(how)
        elif child == 0:
            time.sleep(0.001)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return status, not ended, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _kill(pid: int) -> None:
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except OSError:
            pass


def _kill_all_of(user: int) -> None:
    """Every process of a user of which nobody else makes use."""
    helper = os.fork()
    if helper == 0:
        try:
            rules.become(user)
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(helper, 0)


def _children() -> list[int]:
    """Of this process: the student's, and orphans of it."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as listed:
            return [int(pid) for pid in listed.read().split()]
    except OSError:
        return []


def _import_everything() -> None:
    """What students use, so that no student's process pays for it or needs to read it; nothing else of the course."""
    import torch

    torch.set_num_threads(1)
    for name in LIBRARIES:
        importlib.import_module(name)
    sys.meta_path.insert(0, Absent())
    for room in ROOMS:
        module = importlib.import_module(f"lockstep.{room}")
        for inside in pkgutil.walk_packages(getattr(module, "__path__", ()), f"lockstep.{room}."):
            if inside.name in SLOW:
                continue
            try:
                importlib.import_module(inside.name)
            except ImportError:  # something for a GPU, or for a notebook
                continue
    importlib.import_module("lockstep.course.sandbox.inside.agent")
    _warm_up()
    sys.path[:] = [path for path in sys.path if not os.path.isdir(os.path.join(path, "lockstep"))]
    sys.path_importer_cache.clear()
    gc.collect()
    gc.freeze()


def _warm_up() -> None:
    """What torch looks up when it is first used."""
    import torch

    x = torch.ones(2, requires_grad=True)
    (x * 2).sum()  # no backward: its threads would not live on in a fork
    torch.Generator().manual_seed(0)
    ctypes.CDLL(None)
