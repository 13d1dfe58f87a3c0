"""Run a launch thread by thread: each thread is a greenlet that runs until it waits for others.

Floor 0. A block's threads take turns in the order of their numbers. When all of them wait or have ended, warps whose
lanes are together go on; otherwise the block's barrier opens, if everybody is at it.
"""

from __future__ import annotations

import ast
import math
import sys
from types import SimpleNamespace
from typing import NoReturn

import numpy as np
from greenlet import greenlet

from lockstep.simt import errors, rules
from lockstep.simt.arrays import DeviceArray
from lockstep.simt.compile.names import BUILTINS, CUDA_MODULES
from lockstep.simt.kernel import Arguments, Kernel, Launch, check_shared
from lockstep.simt.places import WARP, Places
from lockstep.simt.run.loops import current_limit
from lockstep.simt.slow import numbers
from lockstep.simt.slow.device import Device
from lockstep.simt.slow.meeting import Waiting, answers, together
from lockstep.simt.slow.memory import Diary, SlowArray, Touch
from lockstep.simt.slow.numbers import Number
from lockstep.simt.slow.rewrite import rewritten

FILE = "<one thread at a time>"


def run_slowly(launch: Launch, *arguments: object) -> None:
    """`launch(*arguments)` on the slow machine: the same arrays, the same faults (their sentences are plainer)."""
    bound = Arguments(launch.kernel, arguments)
    program = launch.kernel.program(bound.kinds)
    check_shared(program.shared_bytes, launch.shared_bytes)
    executor = Executor(launch.kernel, launch.places, launch.shared_bytes)
    function = executor.compiled(program)
    values = [executor.argument(name, value) for name, value in zip(bound.names, bound.passed, strict=True)]
    for block in range(launch.places.blocks):
        executor.run_block(block, function, values)
    executor.diary.end_launch()
    bound.copy_back()


def _quietly(function, values: list) -> None:
    """A thread; what overflows, wraps or becomes infinite, as on a GPU. A greenlet has a context of its own."""
    with np.errstate(all="ignore"):
        function(*values)


class Executor:
    """The state of a launch. `thread`, `block` and `number` are those of the thread whose turn it is."""

    def __init__(self, kernel: Kernel, places: Places, dynamic_bytes: int) -> None:
        self.kernel, self.places, self.dynamic_bytes = kernel, places, dynamic_bytes
        self.diary, self.limit = Diary(), current_limit()
        self.thread: tuple = ()
        self.block: tuple = ()
        self.number = 0
        self.rounds: dict[tuple, int] = {}  # of each `while`, by thread
        self.scheduler: greenlet | None = None

    # The kernel's text and what its names mean.

    def compiled(self, program):
        """The kernel as a Python function of slow arrays and numbers."""
        definitions, outside = rewritten(program)
        namespace = {name: self.meaning(value) for name, value in outside.items()}
        namespace |= {"AS": lambda kind, value: Number(value, np.dtype(kind)), "STEP": self.step}
        for tree in definitions.values():
            exec(compile(ast.Module([tree], []), FILE, "exec"), namespace)
        return namespace[program.kernel.name]

    def meaning(self, value: object) -> object:
        """What a name outside the kernel is to a slow thread."""
        if isinstance(value, (bool, int, float, np.generic)):
            return Number(value)
        if isinstance(value, tuple):
            return tuple(self.meaning(item) for item in value)
        if isinstance(value, np.ndarray):
            return SlowArray(self, value.copy(), "a constant array", "const")
        if value is math:
            names = (*rules.MATH_UNARY, *rules.MATH_BINARY)
            functions = {name: numbers.math_function(name) for name in names}
            return SimpleNamespace(**functions, pi=Number(math.pi), e=Number(math.e), inf=Number(math.inf))
        if value is np:
            return SimpleNamespace(**{str(kind): self.cast(kind) for kind in rules.SCALARS if kind != rules.BOOL})
        if getattr(value, "__name__", "") in CUDA_MODULES:
            return Device(self)
        if getattr(value, "__module__", "") == "math":
            return numbers.math_function(value.__name__)
        if getattr(value, "__name__", "") in BUILTINS:
            return self.builtin(value.__name__)
        if hasattr(value, "py_func"):
            return value
        return self.cast(rules.scalar(value))

    def builtin(self, name: str):
        """Python's function over numbers."""
        return {
            **{"range": numbers.counted, "min": numbers.least, "max": numbers.most, "abs": abs},
            "round": numbers.rounded,
            "len": lambda array: Number(len(array)),
            "int": lambda number: Number(number, rules.to_int(number.kind)),
            "float": lambda number: Number(number, rules.to_float(number.kind)),
            "bool": lambda number: Number(number, rules.BOOL),
        }[name]

    def cast(self, kind: np.dtype):
        """`np.float32` and its like: converts, and names a dtype."""

        def convert(number: Number) -> Number:
            return Number(number, kind)

        convert.kind = kind
        return convert

    def argument(self, name: str, value: DeviceArray | np.generic) -> object:
        if not isinstance(value, DeviceArray):
            return Number(value)
        order = np.arange(value.flat.size)
        strides = tuple(stride // value.dtype.itemsize * order.itemsize for stride in value.view.strides)
        start = value.view.__array_interface__["data"][0] - value.flat.__array_interface__["data"][0]
        shifted = order[start // value.dtype.itemsize :] if value.size else order
        cells = np.lib.stride_tricks.as_strided(shifted, value.shape, strides)
        return SlowArray(self, value.view, f"allocation {id(value.flat)}", "global", cells)

    def declared(self, space: str, shape: object, dtype: object) -> SlowArray:
        """The array of a declaration: the block's, or the running thread's."""
        shape = tuple(int(size) for size in shape) if isinstance(shape, tuple) else (int(shape),)
        if shape == (0,):
            shape = (self.dynamic_bytes // dtype.kind.itemsize,)
        frame = sys._getframe(2)
        key = (frame.f_code.co_name, frame.f_lasti, self.thread if space == "local" else None)
        if key not in self.arrays:
            cells = np.zeros(shape, dtype=dtype.kind)
            self.arrays[key] = SlowArray(self, cells, f"{space} array", space)
        return self.arrays[key]

    # A block.

    def run_block(self, block: int, function, values: list) -> None:
        self.block = self.places.block_index(block)
        self.arrays: dict[tuple, SlowArray] = {}
        self.scheduler = greenlet.getcurrent()
        self.syncs = [0] * self.places.threads
        threads = [greenlet(lambda: _quietly(function, values)) for _ in range(self.places.threads)]
        answer: dict[int, object] = dict.fromkeys(range(len(threads)))
        waiting: dict[int, Waiting] = {}
        while answer:
            for number in sorted(answer):
                self.number, self.thread = number, self.places.thread(number)
                given, waits = answer.pop(number), None
                try:
                    waits = threads[number].switch() if given is None else threads[number].switch(given)
                except UnboundLocalError as unbound:
                    self.fault(errors.UninitializedRead, str(unbound), unbound.__traceback__)
                except errors.KernelFault as fault:
                    self.fault(type(fault), str(fault), fault.__traceback__, fault.lines)
                if not threads[number].dead:
                    waiting[number] = waits
            answer = self.go_on(waiting, threads)
        self.diary.end_interval()

    def go_on(self, waiting: dict[int, Waiting], threads: list[greenlet]) -> dict[int, object]:
        """Answers for the threads that may go on: whole warps first, then the block."""
        ended = {number for number, thread in enumerate(threads) if thread.dead}
        answer = together(self, waiting, ended)
        if not answer and waiting:
            lines = {waits.line for waits in waiting.values()}
            if ended or len(lines) > 1 or any(waits.scope == "warp" for waits in waiting.values()):
                late = tuple(self.places.thread(number) for number in sorted(ended)) or (self.thread,)
                raise errors.BarrierError(f"a barrier at lines {lines} that not all reach", late, (), tuple(lines))
            self.diary.end_interval()
            self.syncs = [0] * self.places.threads
            answer = answers(waiting)
        for number in answer:
            waiting.pop(number)
        return answer

    def wait(self, scope: str, how: str, members: Number | None, value: Number, argument: Number | None) -> object:
        """Called by a thread: hand over, and return what the meeting gives."""
        members = None if members is None else int(members) & 0xFFFFFFFF
        return self.scheduler.switch(Waiting(scope, how, self.line(), members, value, argument))

    # Where a thread is, and what it did wrong.

    def step(self) -> None:
        """Called at the head of each round of a `while`."""
        key = (self.block, self.number, self.line())
        self.rounds[key] = self.rounds.get(key, 0) + 1
        if self.rounds[key] > self.limit:
            self.fault(errors.EndlessLoop, f"line {key[2]}")

    def line(self) -> int:
        frame = sys._getframe(1)
        while frame.f_code.co_filename != FILE:
            frame = frame.f_back
        return frame.f_lineno

    def touch(self, what: str) -> Touch:
        return Touch(self.block, self.thread, self.number // WARP, what, self.line(), self.syncs[self.number])

    def made(self, fault: type[errors.KernelFault], text: str, traceback=None, lines: tuple = ()) -> errors.KernelFault:
        """A fault of the running thread."""
        if not lines:
            line = 0
            while traceback is not None:
                line = traceback.tb_lineno if traceback.tb_frame.f_code.co_filename == FILE else line
                traceback = traceback.tb_next
            lines = (line or self.line(),)
        return fault(f"thread {self.thread} of block {self.block}: {text}", (self.thread,), (self.block,), lines)

    def fault(self, kind: type[errors.KernelFault], text: str, traceback=None, lines: tuple = ()) -> NoReturn:
        fault = self.made(kind, text, traceback, lines)
        if kind not in (errors.RaceError, errors.UninitializedRead):
            self.diary.end_interval()
        raise fault
