"""What an exercise may not call, seen while it runs; `mentions` finds it in the source before.

Floor 4, room `exercises`. "comm.all_reduce" is a method of the communicator that a rank function is given;
"torch.nn.functional.conv2d" or "lockstep.comm.ring_all_reduce" is a function by its dotted name, under whatever
name the student imported it. This keeps honest people honest; grading makes the calls unreachable instead.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

COLLECTIVES = (
    "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce", "gather", "scatter", "barrier",
)  # fmt: skip
POINT_TO_POINT = ("send", "recv", "isend", "irecv", "exchange")

_names: tuple[str, ...] = ()  # what is forbidden now; module state, since each rank has its own copy of all else
_called: list[str] = []


class ForbiddenCall(BaseException):
    """Not an Exception, so that a broad `except Exception` in the student's code does not hide it."""


@contextmanager
def forbid(names: Sequence[str]) -> Iterator[list[str]]:
    """While it lasts, `run_watched` and `watch` refuse these names; gives the list of those that were called."""
    global _names, _called
    before = _names, _called
    _names, _called = tuple(names), []
    try:
        yield _called
    finally:
        _names, _called = before


def _refuse(name: str) -> None:
    _called.append(name)
    raise ForbiddenCall(f"{name} may not be called in this exercise")


def resolve(dotted: str) -> Any:
    """The object behind "package.module.name"; a ValueError names what does not exist."""
    parts = dotted.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        try:
            for part in parts[cut:]:
                found = getattr(found, part)
            return found
        except AttributeError:
            break
    raise ValueError(f"{dotted!r} is forbidden but does not exist: check its spelling")


def run_watched(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call `fn` in this thread; a call of a forbidden function raises ForbiddenCall, however it is reached."""
    functions = [(name, resolve(name)) for name in _names if not name.startswith("comm.")]
    if not functions:
        return fn(*args, **kwargs)
    # By identity, since the hash of a code object goes through its constants each time; `functions` keeps them alive.
    codes = {id(f.__code__): name for name, f in functions if hasattr(f, "__code__")}
    others = [(name, f) for name, f in functions if not hasattr(f, "__code__")]
    spelt = {getattr(f, "__name__", "") for _, f in others}

    def profile(frame: Any, event: str, arg: Any) -> None:
        if event == "call":
            if id(frame.f_code) in codes and not _ours(frame.f_back):
                _refuse(codes[id(frame.f_code)])
        elif event == "c_call" and getattr(arg, "__name__", "") in spelt and not _ours(frame):
            for name, f in others:
                if _is_call_of(arg, f):
                    _refuse(name)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        return fn(*args, **kwargs)
    finally:
        sys.setprofile(before)


def _ours(frame: Any) -> bool:
    """True for the library's own frames, which may call anything; the labs' solutions are not among them."""
    module = "" if frame is None else str(frame.f_globals.get("__name__", ""))
    return module.startswith("lockstep.") and not module.startswith("lockstep.exercises.")


def _is_call_of(called: Any, forbidden: Any) -> bool:
    """A method reaches the profiler bound to its object, so it is compared by owner and name."""
    if called is forbidden:
        return True
    owner = getattr(forbidden, "__objclass__", None)
    if owner is None or getattr(called, "__name__", None) != forbidden.__name__:
        return False
    return isinstance(getattr(called, "__self__", None), owner)


def watch(comm: Any) -> list[str]:
    """Note every collective that the rank function calls on `comm` (and on what it splits off), in order.

    The communicator is watched through attributes of the instance, so that it stays of its own class.
    Collectives inside a collective are the library's business and are not noted.
    """
    noted: list[str] = []
    _watch(comm, noted)
    return noted


def _watch(comm: Any, noted: list[str]) -> None:
    for name in (*COLLECTIVES, *POINT_TO_POINT):
        method = getattr(comm, name, None)
        if method is not None and (name in COLLECTIVES or f"comm.{name}" in _names):
            setattr(comm, name, _noting(method, name, noted))
    split = getattr(comm, "split", None)
    if split is not None:

        def split_watched(*args: Any, **kwargs: Any) -> Any:
            part = split(*args, **kwargs)
            if part is not None:
                _watch(part, noted)
            return part

        comm.split = split_watched


def _noting(method: Callable[..., Any], name: str, noted: list[str]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if not _inside_the_library(sys._getframe(1)):
            if f"comm.{name}" in _names:
                _refuse(f"comm.{name}")
            if name in COLLECTIVES:
                noted.append(name)
        return method(*args, **kwargs)

    return call


def _inside_the_library(frame: Any) -> bool:
    """True when a collective of the library stands between the rank function and this call."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith(("lockstep.comm", "lockstep.world")):
            return True
        if module == "lockstep.exercises.observe":
            return False
        frame = frame.f_back
    return False
