"""Run every case of an exercise in a child process, and bring home what was seen even if the child dies.

Floor 4, room `exercises`. The child gets an observer, a function and cases: no reference, no expected value,
no verdict. It appends each observation to a file as soon as it is made, so a loop, a crash or `os._exit`
in one case loses nothing of the cases before. A watchdog inside the child notes the running line.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.forbidden import forbid
from lockstep.exercises.observe import Failure, Observation, is_students, printed_so_far
from lockstep.simt.kernel import simulated
from lockstep.world.child import run_child
from lockstep.world.run import RankError, RunTimeout

LIMIT = 10.0  # seconds for all cases of one check


def try_in_child(exercise: Exercise, fn: Callable[..., Any], cases: Sequence[Case]) -> list[Observation]:
    """Observe `fn` on `cases` in one child, for at most LIMIT seconds together.

    The list is shorter than `cases` when the child was stopped at its last entry. Raises whatever sending the
    function raises when it cannot be sent, and RankError when the child cannot take it up.
    """
    if hasattr(fn, "py_func"):  # a kernel, perhaps Numba's, which would leave its text behind
        fn = simulated(fn)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        file = str(Path(place) / "seen")
        job = (exercise.observe, fn, list(cases), exercise.forbidden, file, LIMIT)
        end = Failure("Killed", "its process ended before it returned a value")
        try:
            run_child(_observe_all, *job, timeout=LIMIT + 2)
        except RunTimeout as error:  # the watchdog did not get a turn: one long operation inside C code
            end = Failure("Timeout", " at ".join(filter(None, (f"{LIMIT:g} s", error.lines.get(0)))))
        except RankError as error:
            if error.cause is not None:  # not from the cases, whose every error is an observation
                raise
            end = Failure("Killed", "it " + str(error).splitlines()[0].removeprefix("rank 0 "))
        seen = _read(file)
    stopped = bool(seen) and seen[-1].error is not None and seen[-1].error.type == "Timeout"
    return seen if stopped or len(seen) == len(cases) else [*seen, Observation(error=end)]


def observe_here(exercise: Exercise, fn: Callable[..., Any], cases: Sequence[Case]) -> list[Observation]:
    """Observe a function of ours (a reference, a known mistake) in this process."""
    return [_observe(exercise.observe, fn, case, exercise.forbidden) for case in cases]


def _observe(
    observe: Callable[..., Observation], fn: Callable[..., Any], case: Case, forbidden: Sequence[str]
) -> Observation:
    with forbid(forbidden) as called:
        seen = observe(fn, case)
    return replace(seen, forbidden=tuple(called)) if called else seen


def _observe_all(
    observe: Callable[..., Observation],
    fn: Callable[..., Any],
    cases: list[Case],
    forbidden: Sequence[str],
    file: str,
    limit: float,
) -> None:
    """The child's part."""
    me = os.getpid()
    with open(file, "ab", buffering=0) as out:
        watchdog = _Watchdog(out, limit)
        for case in cases:
            seen = _observe(observe, fn, case, forbidden)
            if os.getpid() != me:  # the function forked: this copy's work is nobody's
                os._exit(0)
            watchdog.write(seen)
            if seen.error is not None and seen.error.type == "Timeout":
                break
        watchdog.stop()


class _Watchdog(threading.Thread):
    """Ends the child at the limit, after noting the line of the student's code that is running."""

    def __init__(self, out: Any, limit: float) -> None:
        super().__init__(daemon=True, name="watchdog")
        self.out, self.limit, self.lock, self.done = out, limit, threading.Lock(), threading.Event()
        self.start()

    def write(self, seen: Observation) -> None:
        content = pickle.dumps(seen)
        with self.lock:
            self.out.write(content)

    def stop(self) -> None:
        self.done.set()

    def run(self) -> None:
        if self.done.wait(self.limit):
            return
        file, line = _running_line()
        with self.lock:
            error = Failure("Timeout", f"{self.limit:g} s", file, line)
            self.out.write(pickle.dumps(Observation(error=error, printed=printed_so_far())))
            os._exit(1)


def _running_line() -> tuple[str, int]:
    """The innermost line of the student's code that is running; ("", 0) when none is.

    Of several rank threads all but one wait for their turn, in a lock of the library or of `threading`.
    """
    found = []
    for ident, frame in sys._current_frames().items():
        innermost = frame
        while frame is not None and not is_students(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is not None and ident != threading.get_ident():
            waits = innermost.f_code.co_filename == threading.__file__
            found.append(((waits, frame is not innermost), frame.f_code.co_filename, frame.f_lineno))
    return min(found, default=(None, "", 0))[1:]


def _read(file: str) -> list[Observation]:
    seen: list[Observation] = []
    try:
        with open(file, "rb") as content:
            while True:
                seen.append(pickle.load(content))
    except (OSError, EOFError, pickle.UnpicklingError):
        return seen
