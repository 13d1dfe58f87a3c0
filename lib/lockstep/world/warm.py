"""The warm parent: a process that has imported torch and forks ranks on request.

Floor 1. This is the program that runs in that process; `forked.py` is its other side, in the kernel.
It has its own session, has one thread, never touches CUDA, never computes, and never imports the
notebook's `__main__`, so a fork of it can do what a fresh process can: use CUDA, run backward, start
DataLoader workers.

The kernel asks over one socket. A request is one packet (the launch's directory, modules that its ranks need,
and libraries that the notebook has imported) with file descriptors: the launch's own socket, then per rank a control socket
and a pipe for its output. Over the launch's socket go
("started", pids), ("exit", rank, status), ("failed", why) one way and ("signal", number) the other.
When the launch's socket closes, its ranks are killed with everything they started; when the kernel
dies, all of them are, and the warm parent with them.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import importlib
import os
import pickle
import selectors
import shutil
import signal
import socket
import sys
import traceback
from typing import Any, NoReturn

PACKET = 65536  # bytes; a request is a path and at most 2 x 100 + 1 descriptors
DESCRIPTORS = 253  # the most that Linux passes in one packet
# Seconds of imports that an optimizer or DDP makes when it is first used: done while there is nothing else to do,
# piece by piece, so that no request waits long. What a torch lacks is passed over.
LATER = (
    "sympy.core",
    "sympy",
    "triton",
    "torch.fx.experimental.symbolic_shapes",
    "torch._inductor",
    "torch.distributed.tensor",
    "torch.distributed.fsdp",
    "torch._dynamo",
)
PAUSE = 0.5  # seconds without a launch before they begin: the warm parent of a short script is gone by then
PR_SET_PDEATHSIG, PR_SET_THP_DISABLE = 1, 41
prctl = ctypes.CDLL(None).prctl


def serve(kernel_pid: int) -> None:
    """Serve the kernel, whose socket is this process's standard input, until it goes away."""
    main = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # the request for a stack may reach a rank before it can answer
    _import_everything()
    WarmParent(main, kernel_pid).run()


def _import_everything() -> None:
    """What every rank needs, so that no rank pays for it."""
    import numpy  # noqa: F401
    import torch.distributed  # noqa: F401
    import torch.nn.parallel  # noqa: F401
    import torch.utils.data  # noqa: F401

    from lockstep.world.rank import prepare

    prepare()
    gc.disable()
    _freeze()


def _freeze() -> None:
    """Keep everything so far out of garbage collection: in a rank it would touch, and so copy, every page."""
    gc.collect()
    gc.freeze()


class Launch:
    """The ranks of one call of `launch`; `alive` maps the process to its rank."""

    def __init__(self, connection: socket.socket, scratch: str) -> None:
        self.socket = connection
        self.scratch = scratch
        self.alive: dict[int, int] = {}

    def tell(self, *what: Any) -> None:
        try:
            self.socket.send(pickle.dumps(what))
        except OSError:  # the kernel has closed it, and so no longer wants to know
            pass


class WarmParent:
    """One loop over the kernel's socket, the launches' sockets and the ends of children."""

    def __init__(self, main: socket.socket, kernel_pid: int) -> None:
        self.main = main
        self.launches: dict[int, Launch] = {}
        self.later = list(LATER)
        self.selector = selectors.DefaultSelector()
        self.selector.register(main, selectors.EVENT_READ, self.on_request)
        self._watch_children()
        self.kernel_pid, self.kernel_alive = kernel_pid, True
        self._watch_kernel()

    def run(self) -> None:
        pause = PAUSE
        try:
            while self.kernel_alive:
                idle = self.later and not self.launches
                events = self.selector.select(pause if idle else self.patience)
                for key, _ in events:
                    key.data()
                pause = PAUSE
                if idle and not events:
                    self.import_next()
                    pause = 0
                if os.getppid() != self.kernel_pid:
                    self.kernel_alive = False
        finally:
            for launch in list(self.launches.values()):
                self.end(launch)
                shutil.rmtree(launch.scratch, ignore_errors=True)

    def import_next(self) -> None:
        """One piece of what ranks often need and nobody has waited for."""
        try:
            importlib.import_module(self.later.pop(0))
        except Exception:  # it is for speed alone
            pass
        if not self.later:
            _freeze()

    def import_needed(self, names: list[str]) -> None:
        """Once here, instead of in every rank."""
        new = [name for name in names if name not in sys.modules]
        for name in new:
            with contextlib.suppress(Exception):  # the rank that imports it again will say what is wrong
                importlib.import_module(name)
        if new:
            gc.freeze()

    def _watch_children(self) -> None:
        self.wakeup, write_end = os.pipe()
        os.set_blocking(self.wakeup, False)
        os.set_blocking(write_end, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.selector.register(self.wakeup, selectors.EVENT_READ, self.on_child)

    def _watch_kernel(self) -> None:
        """A process that the kernel forked may keep the kernel's socket open; this sees the kernel itself die."""
        self.patience: float | None = None
        try:
            self.selector.register(os.pidfd_open(self.kernel_pid), selectors.EVENT_READ, self.on_kernel_death)
        except (AttributeError, OSError):  # an old Linux, or a Python built on one: look every now and then
            self.patience = 0.5

    def on_kernel_death(self) -> None:
        self.kernel_alive = False

    def on_request(self) -> None:
        request, descriptors, _, _ = socket.recv_fds(self.main, PACKET, DESCRIPTORS)
        if not request:
            self.kernel_alive = False
            return
        scratch, needed, libraries = pickle.loads(request)
        self.import_needed(needed)
        self.later += libraries
        launch = Launch(socket.socket(fileno=descriptors[0]), scratch)
        self.launches[descriptors[0]] = launch
        self.selector.register(launch.socket, selectors.EVENT_READ, lambda: self.on_launch(launch))
        try:
            for rank in range((len(descriptors) - 1) // 2):
                pid = self.fork(descriptors[1 + 2 * rank], descriptors[2 + 2 * rank])
                launch.alive[pid] = rank
            launch.tell("started", {rank: pid for pid, rank in launch.alive.items()})
        except OSError as error:
            launch.tell("failed", f"the system refused to start rank {len(launch.alive)}: {error.strerror}")
        for descriptor in descriptors[1:]:
            os.close(descriptor)

    def on_launch(self, launch: Launch) -> None:
        try:
            message = launch.socket.recv(PACKET)
        except OSError:
            message = b""
        if not message:
            self.selector.unregister(launch.socket)
            del self.launches[launch.socket.fileno()]
            self.end(launch)
            launch.socket.close()
            return
        _, number = pickle.loads(message)
        for pid in launch.alive:
            os.kill(pid, number)

    def on_child(self) -> None:
        """Report every rank that has ended; whatever it started ends with it."""
        os.read(self.wakeup, PACKET)
        for launch in self.launches.values():
            for pid in list(launch.alive):
                if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                    rank, status = launch.alive[pid], self.reap(launch, pid)
                    launch.tell("exit", rank, status)

    def end(self, launch: Launch) -> None:
        for pid in launch.alive:
            _kill_group(pid)
        for pid in list(launch.alive):
            self.reap(launch, pid)

    def reap(self, launch: Launch, pid: int) -> int:
        """Exit code, or minus the signal. The group is killed first, while its number cannot be used again."""
        _kill_group(pid, leader=False)
        _, status = os.waitpid(pid, 0)
        del launch.alive[pid]
        return os.waitstatus_to_exitcode(status)

    def fork(self, control: int, output: int) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            become_rank(parent, control, output)
        return pid


def become_rank(parent: int, control: int, output: int) -> NoReturn:
    """In the child: leave everything of the warm parent behind, then run the rank."""
    try:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # second line: if the warm parent is killed
        prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)  # huge pages are for the fork alone: a rank measures like any process
        if os.getppid() != parent:
            return
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        control = _keep_only(control, output)
        gc.enable()
        from lockstep.world.rank import Rank
        from lockstep.world.wire import Channel

        Rank(Channel(socket.socket(fileno=control))).run()
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        os._exit(1)


def _keep_only(control: int, output: int) -> int:
    """Output becomes descriptors 1 and 2, control 3; all others close, so that no rank holds another's."""
    control = fcntl.fcntl(control, fcntl.F_DUPFD, 10)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.dup2(control, 3, inheritable=False)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 3:
            try:
                os.close(int(name))
            except OSError:  # the descriptor of the listing itself
                pass
    return 3


def _kill_group(pid: int, leader: bool = True) -> None:
    for kill in (os.killpg, os.kill) if leader else (os.killpg,):
        try:
            kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):  # it has left, or has not yet made its group
            pass
