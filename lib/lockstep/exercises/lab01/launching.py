"""How a student's kernel is run and judged: launched in the simulator, looked at, and counted.

Floor 4, room `exercises`. A case's arguments are the grid, the block, and what the kernel is given; the last one is
what it writes. Faults that the simulator finds become the verdict's words, with the lines.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lockstep.exercises.compare import alike
from lockstep.exercises.exercise import Case, Symptom
from lockstep.exercises.judge import Finding, Judge
from lockstep.exercises.observe import Failure, Observation
from lockstep.exercises.plain import plain, short
from lockstep.exercises.remembered import remembered
from lockstep.simt import KernelFault, Report, profile, step_limit
from lockstep.simt.compile.source import quoted, text_of
from lockstep.simt.kernel import Launch, kernel_of

ROUNDS = 450  # of a `while`: a single thread that fills a tile of 400 cells still comes to its end
COUNTED = {
    "sectors a request": "sectors_per_request",
    "sectors of the worst request": "worst_sectors",
    "ways of the worst bank conflict": "bank_conflict",
    "divergent branches": "divergent_branches",
    "barriers a block": "barriers",
    "reads of global memory a thread": "reads_per_thread",
    "share of idle lanes": "idle_share",
    "instructions issued": "issued",
    "bytes moved": "bytes_moved",
}
READS, MOVED = "reads of global memory a thread", "bytes moved"
IDLE, WRITES, ATOMICS = "share of idle lanes", "writes to each element of the output", "atomics"
# What a riddle leaves out of a fault: its lines, and what is missing between them.
TELLING = re.compile(
    r" at line \d+| (between|before|after) (the|two passes of the) barriers?( at lines? [\d and]+)?| with no barrier between them|: .*",
    re.DOTALL,
)


def unwritten(shape: int | tuple[int, ...], dtype: type = np.float32) -> np.ndarray:
    """An output as the kernel finds it: NaN, or integers far below 0, each another one."""
    if np.dtype(dtype).kind == "f":
        return np.full(shape, np.nan, dtype)
    return -1_000_000 - np.arange(np.prod(shape), dtype=dtype).reshape(shape)


def launch_case(name: str, grid: object, block: object, *arguments: Any) -> Case:
    """A launch, named in words with its grid and block: "13 x 37 pixels, grid (2, 1), block (32, 16)"."""
    return Case(f"{name}, grid {grid}, block {block}", (grid, block, *arguments))


@dataclass(frozen=True)
class KernelFailure(Failure):
    """A launch that came to no end; `quoted` holds the lines that its message speaks of."""

    quoted: tuple[tuple[int, str], ...] = ()

    @property
    def riddle(self) -> str:
        return f"The kernel stops with {self.type}: {TELLING.sub('', self.message)}."

    @property
    def fault(self) -> tuple[str, ...]:
        return (TELLING.sub("", self.message),)

    @property
    def headline(self) -> str:
        return self.type

    @property
    def sentence(self) -> str:
        lines = "".join(f" Line {line}: `{code}`." for line, code in self.quoted)
        return f"The kernel stops with {self.type}: {self.message.rstrip('.')}.{lines}"


@dataclass(frozen=True)
class Launched:
    """Observe `kernel[grid, block](*arguments)`: the arrays as it leaves them, and its counts.

    rounds: after so many of one `while` the kernel is stopped.
    """

    rounds: int = ROUNDS

    def __call__(self, fn: Callable[..., Any], case: Case) -> Observation:
        grid, block, *arguments = copy.deepcopy(case.args)
        if not hasattr(fn, "py_func"):
            name = getattr(fn, "__name__", "this")
            said = f"{name} is a plain function: `@cuda.jit` on the line above its `def` makes it a kernel"
            if isinstance(fn, Launch):
                said = f"a grid and a block make a launch of {fn.kernel.__name__}: give `check` the kernel alone"
            return Observation(error=KernelFailure("TypeError", said))
        kernel = kernel_of(fn.py_func, bool(getattr(fn, "is_device", False)))  # no method of the student's own
        try:
            with step_limit(self.rounds):
                report = profile(kernel, grid, block, *arguments)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            if _is_unfinished(kernel.py_func):
                return Observation(error=Failure("NotImplementedError", "", own=True))
            lines = quoted(kernel.py_func, getattr(error, "lines", ()))
            own = isinstance(error, KernelFault)
            return Observation(error=KernelFailure(type(error).__name__, str(error), own=own, quoted=lines))
        return Observation(arguments=plain([grid, block, *arguments]), counts=_counts(report, arguments[-1].size))


LAUNCHED = Launched()


def _counts(report: Report, written: int) -> dict[str, float]:
    counts = {said: float(getattr(report, name)) for said, name in COUNTED.items()}
    return counts | {WRITES: report.total.global_writes / written, ATOMICS: float(report.total.atomics)}


def _is_unfinished(function: Callable[..., Any]) -> bool:
    """Whether the line of the skeleton is still there, which no kernel may contain."""
    text, _ = text_of(function) or ([], 0)
    return any(line.strip().startswith("raise NotImplementedError") for line in text)


def same_output(rtol: float = 1e-4, atol: float = 1e-5) -> Judge:
    """`out`, the last argument, holds what the reference writes, nothing else was changed, and the counts allow it."""

    def judge(case: Case, seen: Observation, expected: Observation) -> Finding | None:
        *inputs, got = seen.arguments
        *wanted, want = expected.arguments
        for given, left in zip(wanted, inputs, strict=True):
            if isinstance(given, np.ndarray) and not np.array_equal(given, left, equal_nan=True):
                return Finding("The kernel changes its input.", "inputs as they were", "a changed input", (left,))
        return _difference(case.args[-1], got, want, rtol, atol) or _impossible(case, seen)

    return judge


def _impossible(case: Case, seen: Observation) -> Finding | None:
    """Counts below what any launch needs that reads every input and leaves this output."""
    grid, block, *inputs, before = case.args
    threads = int(np.prod(grid)) * int(np.prod(block))
    filled = before.size
    cells = sum(one.size for one in inputs if isinstance(one, np.ndarray))
    least = {READS: cells / threads, WRITES: 1.0, MOVED: filled * before.itemsize}
    for count, needed in least.items():
        got = seen.counts[count]
        if got < needed * (1 - 1e-9):
            sentence = f"The output is right, but a launch that leaves it cannot have {_said(count, got)} {count}."
            return Finding(sentence, f"{count}: {_said(count, needed)} or more", _said(count, got), (count, got))
    return None


def _difference(before: np.ndarray, got: np.ndarray, want: np.ndarray, rtol: float, atol: float) -> Finding | None:
    exact = want.dtype.kind != "f"
    wrong = got != want if exact else ~np.isclose(got, want, rtol=rtol, atol=atol, equal_nan=True)
    if not wrong.any():
        return None
    kept = got == before if exact else np.isnan(got)
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    place = ", ".join(map(str, at))
    many = f"{int(wrong.sum())} of {wrong.size} elements are wrong"
    if kept.all(where=wrong):
        sentence = f"`out[{place}]` is not what it should be: it holds what was there before the launch ({many})."
    else:
        sentence = f"`out[{place}]` should be {short(want[at].item())}, and is {short(got[at].item())} ({many})."
    return Finding(sentence, short(want), short(got), (got,))


def at_most(count: str, times: float, sentence: str, more: float = 0.0) -> Judge:
    """A count of the launch is at most `times` that of the reference, plus `more`; `{got}` and `{want}` in the text."""

    def judge(case: Case, seen: Observation, expected: Observation) -> Finding | None:
        got, want = seen.counts[count], expected.counts[count]
        if got <= times * want + more:
            return None
        numbers = {"got": _said(count, got), "want": _said(count, want)}
        most, found = f"{count}: about {numbers['want']}", f"{count}: {numbers['got']}"
        return Finding(sentence.format(**numbers), most, found, (count, got))

    return judge


def exceeds(count: str, times: float, more: float = 0.0) -> Symptom:
    """The count is above `times` that of the reference, plus `more`, on the case that failed first."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        return seen.error is None and seen.counts[count] > times * expected.counts[count] + more

    return symptom


def _said(count: str, number: float) -> str:
    return f"{number:.0%}" if count == IDLE else f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def leaves_like(*kernels: Callable[..., Any]) -> Symptom:
    """Wrong numbers, and just those that one of `kernels` leaves, on the case that failed first."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        if seen.error is not None or alike(seen.arguments[-1], expected.arguments[-1]):
            return False
        for kernel in kernels:
            theirs = remembered(LAUNCHED, kernel, case)
            if theirs.error is None and alike(theirs.arguments[-1], seen.arguments[-1]):
                return True
        return False

    return symptom


@dataclass(frozen=True)
class Touch:
    """What a fault is about: an array's name in the kernel, the index, and the array's shape where it is said."""

    array: str
    index: tuple[int, ...]
    shape: tuple[int, ...]


def touched(seen: Observation, error: str = "OutOfBounds") -> Touch | None:
    """The cell that an error of this type is about; None where nothing of the kind happened."""
    if seen.error is None or seen.error.type != error:
        return None
    cell = re.search(r" (?:touch(?:es)?|reads?) (\w+)\[([-\d,]+)\]", seen.error.message)
    if cell is None:
        return None
    shape = re.search(r" has (?:the shape ([\dx]+)|([\d,]+) elements)", seen.error.message)
    sides = (shape[1] or shape[2].replace(",", "")).split("x") if shape else ()
    return Touch(cell[1], tuple(map(int, cell[2].split(","))), tuple(map(int, sides)))


def outside(array: str) -> Symptom:
    """An index outside the array of this name."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        found = touched(seen)
        return found is not None and found.array == array

    return symptom
