"""A kernel that waits for its launch: `kernel[grid, block](*arguments)`.

Floor 0. A launch checks its shape, compiles the kernel for the kinds of its arguments (once), and runs the blocks batch
after batch. Arrays of the host are copied in, and back when the kernel has ended without a fault.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lockstep.simt import rules
from lockstep.simt.arrays import DeviceArray, layout, to_device
from lockstep.simt.compile.kinds import Array
from lockstep.simt.compile.program import Program
from lockstep.simt.compile.source import quoted, receive, texts_of
from lockstep.simt.errors import LaunchError, ShownAlone
from lockstep.simt.places import Places, places
from lockstep.simt.run.counted import CountedMachine
from lockstep.simt.run.global_owners import GlobalOwners
from lockstep.simt.run.machine import Machine
from lockstep.simt.run.memory import Storage

BATCH_LANES = 16_384  # vectors of this length stay in the cache, and NumPy's cost of a call is spread over them
MOST_SHARED = 227 * 1024  # bytes a block can have on any GPU (sm_90)
STATIC_SHARED = 48 * 1024  # bytes that can be declared; more has to be dynamic


class Kernel:
    """What `cuda.jit` makes of a function; `py_func` is the function."""

    def __init__(self, function: Callable, is_device: bool = False) -> None:
        self.py_func, self.is_device = function, is_device
        self.programs: dict[tuple, Program] = {}
        functools.update_wrapper(self, function)

    def __getitem__(self, shape: tuple) -> Launch:
        if self.is_device:
            raise LaunchError(f"{self.__name__} is a device function: kernels call it, a launch does not")
        if not isinstance(shape, tuple) or not 2 <= len(shape) <= 4:
            raise LaunchError(f"a launch is kernel[grid, block](...): {self.__name__} was given {shape!r}")
        grid, block, stream, shared = (*shape, 0, 0)[:4]
        if stream not in (0, None):
            raise LaunchError("streams are not simulated: pass 0")
        return Launch(self, places(grid, block), shared)

    def __call__(self, *arguments: object) -> None:
        what = "is a device function: only kernels call it" if self.is_device else "needs a grid and a block"
        raise LaunchError(f"{self.__name__} {what}: kernel[grid, block](...)")

    def __getstate__(self) -> dict:
        """For another process: the function by value, with the texts, and without what was compiled here."""
        return {"py_func": self.py_func, "is_device": self.is_device, "texts": texts_of(self.py_func)}

    def __setstate__(self, state: dict) -> None:
        receive(state["texts"])
        self.__init__(state["py_func"], state["is_device"])

    def program(self, kinds: tuple) -> Program:
        """The compiled kernel for these kinds of arguments."""
        if kinds not in self.programs:
            self.programs[kinds] = Program(self.py_func, kinds)
        return self.programs[kinds]


def simulated(kernel: Kernel | Callable) -> Kernel:
    """The simulator's kernel for a kernel of Numba's, or for the plain function of one."""
    return kernel if isinstance(kernel, Kernel) else Kernel(getattr(kernel, "py_func", kernel))


def kernel_of(function: Callable, is_device: bool = False) -> Kernel:
    """The kernel of a function, the same one each time, so that many launches compile it once."""
    return _kernel_of(function, is_device) if inspect.isfunction(function) else Kernel(function, is_device)


@functools.lru_cache(maxsize=256)
def _kernel_of(function: Callable, is_device: bool) -> Kernel:
    return Kernel(function, is_device)


@dataclass(frozen=True)
class Launch:
    """A kernel with its grid and block; calling it runs it."""

    kernel: Kernel
    places: Places
    shared_bytes: int = 0

    def __call__(self, *arguments: object) -> None:
        self.run(arguments, None)

    def run(self, arguments: tuple, counters: object) -> Program:
        """Run every block; `counters` (or None) sees each access. Raises what the kernel does wrongly."""
        try:
            return self._run(arguments, counters)
        except ShownAlone as error:
            error.quoted = quoted(self.kernel.py_func, error.lines)
            raise

    def _run(self, arguments: tuple, counters: object) -> Program:
        bound = Arguments(self.kernel, arguments)
        program = self.kernel.program(bound.kinds)
        check_shared(program.shared_bytes, self.shared_bytes)
        storages = bound.storages(program, self.places.blocks)
        execute = program.executable(counters is not None)
        machine = Machine if counters is None else CountedMachine
        step = max(1, BATCH_LANES // self.places.lanes)
        with np.errstate(all="ignore"):
            for first in range(0, self.places.blocks, step):
                blocks = min(step, self.places.blocks - first)
                batch = machine(self.places, first, blocks, counters, self.shared_bytes)
                execute(batch, batch.all, *bound.values(batch, storages))
                batch.races.settle()
        bound.copy_back()
        return program


def check_shared(declared: int, dynamic: int) -> None:
    """LaunchError for more shared memory than a block can have."""
    if isinstance(dynamic, bool) or not isinstance(dynamic, (int, np.integer)) or dynamic < 0:
        raise LaunchError(f"dynamic shared memory is a number of bytes, not {dynamic!r}")
    if declared > STATIC_SHARED:
        raise LaunchError(
            f"this kernel declares {declared:,} bytes of shared memory, and a block may declare {STATIC_SHARED:,}: "
            "make the tile smaller, or use dynamic shared memory (shape 0, and its bytes in the launch)"
        )
    if declared + dynamic > MOST_SHARED:
        raise LaunchError(
            f"{declared + dynamic:,} bytes of shared memory for a block: no GPU has more than {MOST_SHARED:,}"
        )


class Arguments:
    """A launch's arguments: the kinds that the compiler sees, and the memory that batches see."""

    def __init__(self, kernel: Kernel, given: tuple) -> None:
        names = kernel.py_func.__code__.co_varnames[: kernel.py_func.__code__.co_argcount]
        if len(given) != len(names):
            raise LaunchError(f"{kernel.__name__} takes {len(names)} arguments ({', '.join(names)}), not {len(given)}")
        self.names, self.given = names, given
        self.copies: dict[int, DeviceArray] = {}
        self.passed = [self._passed(name, value) for name, value in zip(names, given, strict=True)]
        self.kinds = tuple(
            Array(value.dtype, value.ndim, "global", name) if isinstance(value, DeviceArray) else value.dtype
            for name, value in zip(names, self.passed, strict=True)
        )

    def _passed(self, name: str, value: object) -> DeviceArray | np.generic:
        if isinstance(value, DeviceArray):
            return value
        if isinstance(value, np.ndarray):
            if id(value) not in self.copies:
                self.copies[id(value)] = to_device(value)
            return self.copies[id(value)]
        try:
            return rules.literal(value).type(value)
        except rules.TypeRefused:
            raise LaunchError(
                f"{name} is a {type(value).__name__}: a kernel takes numbers, NumPy arrays and device arrays"
            ) from None

    def storages(self, program: Program, blocks: int) -> dict[int, Storage]:
        """One storage an allocation, by its identity; several parameters may lie in one."""
        together: dict[int, list[str]] = {}
        for name, value in zip(self.names, self.passed, strict=True):
            if isinstance(value, DeviceArray):
                together.setdefault(id(value.flat), []).append(name)
        found = {}
        for value in self.passed:
            if isinstance(value, DeviceArray) and id(value.flat) not in found:
                watched = program.watched(together[id(value.flat)])
                whole = value.view.flags.c_contiguous and value.size == value.flat.size
                shape = value.shape if whole else (value.flat.size,)  # for the name of a cell in a sentence
                storage = Storage(value.flat.size, shape, watched, False, 0)
                if watched and blocks > 1:
                    storage.across_blocks = GlobalOwners(storage)
                found[id(value.flat)] = storage
        return found

    def values(self, batch: Machine, storages: dict[int, Storage]) -> list:
        """What the compiled kernel is called with."""
        return [
            batch.global_array(value.flat, value.shape, *layout(value), storages[id(value.flat)])
            if isinstance(value, DeviceArray)
            else value
            for value in self.passed
        ]

    def copy_back(self) -> None:
        """The device's contents into the host's arrays."""
        for value in self.given:
            if isinstance(value, np.ndarray) and value.flags.writeable:
                self.copies[id(value)].copy_to_host(value)
