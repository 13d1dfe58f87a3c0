"""Try one exercise of a program in a process of its own, on draws of cases that it does not know.

Floor 4, room `course`. What comes back are observations; nobody judges here.

What it returns it has to compute; traffic, order, collectives, the trace and the seconds of ranks are seen here, see
`world`, and bytes that a drive told are recounted, see `grade/recount.py`. A kernel is taken out of the program and
launched in a process where nothing else of that has run, see `inside/kernels.py`. What a *drive* reads off (times of
passes, memory held, hooks left, whether a generator was touched) comes from beside the student's code. The library is
put back as it was once the program is defined, see `inside/unchanged.py`. Open is what a program does *while* a case
runs: a thread, a hook or an object of its own that finds the library or the drive's frame and changes it then; and ranks
that pass numbers by memory beside messages that are long enough to have carried them. The ways to the former are named
to the instructor, see `grade/reaching.py`.
"""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import cloudpickle

from lockstep.course.grade.submission import Program
from lockstep.course.sandbox.box import Box, Child, Limits
from lockstep.course.sandbox.reading import TimedOut, listen, read_observation
from lockstep.course.sandbox.wire import Garbled, Gone, Late
from lockstep.course.sandbox.world import observe_ranks
from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.observe import Failure, Observation, Simulate
from lockstep.simt.kernel import Kernel
from lockstep.world.shipping import dumps

DEFINING, EACH = 8.0, 10.0  # processor seconds: for the whole program, and for each draw of cases, as in `check`
STATEMENT = 3.0  # seconds that a single statement may take: it defines something, and does no work
PATIENCE = 3.0  # times as long it may take by the clock: other boxes want the cores too
GRACE = 1.0  # seconds that a process has to say at which line it is
LAB = re.compile(r"lockstep\.exercises\.lab\d\d")


@dataclass
class Tried:
    """seen: for each draw, observations of its cases, fewer where it ended early. problems: statements that failed."""

    seen: list[list[Observation]] = field(default_factory=list)
    problems: list[tuple[int, int, str]] = field(default_factory=list)
    seconds: float = 0.0


def try_program(
    box: Box,
    exercise: Exercise,
    program: Program,
    draws: Sequence[Sequence[Case]],
    refused: Sequence[str] = (),
    enough: Callable[[int, Sequence[Observation]], bool] = lambda draw, seen: False,
) -> Tried:
    """Define the program, then observe the exercise's function on every case, until one comes to no end.

    refused: dotted names that do not work over there, see `inside/refuse.py`. enough(draw, seen): whether the draws
    after this one need not be tried. Raises BoxLost.
    """
    tried = Tried()
    end: Failure | None = None
    ended = False
    kernel = _kernel_of(box, exercise, program, refused, tried)
    limits = Limits(seconds=DEFINING + EACH * len(draws))
    with box.child(limits, refused) as child:
        try:
            if kernel is None:
                tried.problems.clear()
                _define(child, exercise, program, tried)
            else:
                _define(child, exercise, Program(), Tried())
                child.send(time.monotonic() + PATIENCE * DEFINING, kernels=kernel)
            for draw, cases in enumerate(draws):
                if draw and enough(draw - 1, tried.seen[-1]):
                    break
                tried.seen.append([])
                deadline = time.monotonic() + PATIENCE * EACH
                for case in cases:
                    tried.seen[-1].append(_vouched(exercise, kernel, _observe(child, exercise, case, deadline)))
        except TimedOut as late:
            end = Failure("Timeout", f"{EACH:g} s", late.file, late.line)
        except Late:
            end = Failure("Timeout", f"{EACH:g} s")
        except Garbled as error:
            end = Failure("Killed", f"its process sends what is no answer: {error}")
        except Gone:
            pass
        else:
            ended = True
    tried.seconds += child.seconds
    if not ended and end is None:
        end = _death(child)
    if end is not None:
        tried.seen = tried.seen or [[]]
        tried.seen[-1].append(Observation(error=end))
    return tried


def _kernel_of(
    box: Box, exercise: Exercise, program: Program, refused: Sequence[str], tried: Tried
) -> list[Any] | None:
    """The program's kernel as plain data; None where none is asked for, and where it cannot be had."""
    if not isinstance(exercise.reference, Kernel):
        return None
    with box.child(Limits(seconds=DEFINING), refused) as child:
        try:
            _define(child, exercise, program, tried)
            deadline = time.monotonic() + PATIENCE * DEFINING
            child.send(deadline, kernel=True)
            said = listen(child, "kernel", deadline)["kernel"]
        except (Late, Garbled, Gone):
            said = None
    tried.seconds = child.seconds
    return said if type(said) is list and said else None


def _vouched(exercise: Exercise, kernel: list[Any] | None, seen: Observation) -> Observation:
    """Counts of a launch beside the whole program are the program's to choose: of such a launch only an error counts."""
    if kernel is not None or seen.error is not None or not isinstance(exercise.reference, Kernel):
        return seen
    return replace(seen, error=Failure("Unsupported", "it cannot be launched apart from the notebook's other cells"))


def _define(child: Child, exercise: Exercise, program: Program, tried: Tried) -> None:
    deadline = time.monotonic() + PATIENCE * DEFINING
    statements = [(one.text, one.cell, one.line) for one in program.statements]
    child.send(deadline, define=statements, seconds=STATEMENT)
    child.send(deadline, observer=_observer(exercise), function=exercise.function)
    for problem in listen(child, "problems", deadline)["problems"]:
        if type(problem) is not list or list(map(type, problem)) != [int, int, str]:
            raise Garbled("a problem is none")
        tried.problems.append((problem[0], problem[1], problem[2][:300]))


def _observe(child: Child, exercise: Exercise, case: Case, deadline: float) -> Observation:
    limits = {"seconds": EACH, "patience": max(0.1, deadline - time.monotonic())}
    *around, observe = _layers(exercise)
    if isinstance(observe, Simulate):
        with by_value(exercise):  # a case may hold an object of its lab's
            each = None if case.each is None else [dumps(tuple(own)) for own in case.each]
            payload = dumps((case.args, dict(case.kwargs), case.world.get("seed", 0)))
        seen = observe_ranks(child, {"ranks": payload, "each": each, **limits}, case, exercise.forbidden, deadline)
        return _told(around, seen)
    with by_value(exercise):  # neither the case's name nor what is expected
        payload = dumps(SimpleNamespace(args=case.args, kwargs=dict(case.kwargs), ranks=None))
    child.send(deadline, call=payload, **limits)
    return _told(around, read_observation(listen(child, "seen", deadline + GRACE)["seen"]))


def _layers(exercise: Exercise) -> list[Any]:
    """The observer, outermost first: one that has `of` puts what its `observe` saw in another form, which is done here."""
    layers = [exercise.observe]
    while hasattr(layers[-1], "of"):
        layers.append(layers[-1].observe)
    return layers


def _told(around: Sequence[Any], seen: Observation) -> Observation:
    for layer in reversed(around):
        seen = layer.of(seen)
    return seen


@lru_cache(maxsize=128)
def _observer(exercise: Exercise) -> bytes:
    """What runs beside the student's function: an observer, or the drive of a rank function; no judge, no reference."""
    observe = _layers(exercise)[-1]
    with by_value(exercise):
        return dumps(observe.drive if isinstance(observe, Simulate) else observe)


@contextmanager
def by_value(exercise: Exercise) -> Iterator[None]:
    """Let functions of the labs' modules, and of an instructor's own, be pickled whole: a box has no such modules."""
    observe = _layers(exercise)[-1]
    own = {exercise.reference.__module__, type(observe).__module__}
    own |= {getattr(getattr(observe, "drive", None), "__module__", exercise.reference.__module__)}
    own = {name for name in own if not name.startswith("lockstep.")}
    names = [name for name in sys.modules if LAB.fullmatch(name) or name in own]
    for name in names:
        cloudpickle.register_pickle_by_value(sys.modules[name])
    try:
        yield
    finally:
        for name in names:
            cloudpickle.unregister_pickle_by_value(sys.modules[name])


@lru_cache(maxsize=1)
def _numbers_of_signals() -> dict[int, str]:
    return {number.value: number.name for number in signal.Signals}


def _death(child: Child) -> Failure:
    """Why there is no answer, from how the process ended."""
    if child.killed:
        return Failure("Killed", "it closes its connection to the grader")
    if child.status == -signal.SIGXCPU:
        return Failure("Timeout", "its seconds of the processor")
    if child.status == -signal.SIGKILL:
        return Failure("MemoryError", "the system killed its process, most likely for want of memory")
    if child.status < 0:
        name = _numbers_of_signals().get(-child.status, f"signal {-child.status}")
        return Failure("Killed", f"it is ended by {name}")
    return Failure("Killed", f"it ends its process with exit code {child.status}")
