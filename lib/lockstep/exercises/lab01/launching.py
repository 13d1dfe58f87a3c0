"""How a student's kernel is run and judged: launched in the simulator, looked at, and counted.

Floor 4, room `exercises`. A case's arguments are the grid, the block, and what the kernel is given; the last one is
what it writes. Faults that the simulator finds become the verdict's words, with the lines.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lockstep.exercises.exercise import Case, Symptom
from lockstep.exercises.judge import Finding, Judge
from lockstep.exercises.observe import Failure, Observation
from lockstep.exercises.plain import plain, short
from lockstep.simt import KernelFault, Report, profile, step_limit
from lockstep.simt.compile.source import text_of
from lockstep.simt.kernel import simulated

ROUNDS = 500  # of a `while`, more than a right solution needs
COUNTED = {
    "sectors a request": "sectors_per_request",
    "sectors of the worst request": "worst_sectors",
    "ways of the worst bank conflict": "bank_conflict",
    "divergent branches": "divergent_branches",
    "barriers a block": "barriers",
    "reads of global memory a thread": "reads_per_thread",
    "writes to global memory a thread": "writes_per_thread",
    "share of idle lanes": "idle_share",
}


def unwritten(shape: int | tuple[int, ...], dtype: type = np.float32) -> np.ndarray:
    """An output as the kernel finds it: NaN, or integers far below 0, each another one."""
    if np.dtype(dtype).kind == "f":
        return np.full(shape, np.nan, dtype)
    return -1_000_000 - np.arange(np.prod(shape), dtype=dtype).reshape(shape)


def launch_case(name: str, grid: object, block: object, *arguments: Any) -> Case:
    """A launch, named in words with its grid and block: "13 x 37 pixels, grid (2, 1), block (32, 16)"."""
    return Case(f"{name}, grid {grid}, block {block}", (grid, block, *arguments))


@dataclass(frozen=True)
class Launched:
    """Observe `kernel[grid, block](*arguments)`: the arrays as it leaves them, and its counts."""

    def __call__(self, fn: Callable[..., Any], case: Case) -> Observation:
        grid, block, *arguments = copy.deepcopy(case.args)
        if not hasattr(fn, "py_func"):
            name = getattr(fn, "__name__", "this")
            said = f"{name} is a plain function: `@cuda.jit` on the line above its `def` makes it a kernel"
            return Observation(error=Failure("TypeError", said))
        kernel = simulated(fn)
        try:
            with step_limit(ROUNDS):
                report = profile(kernel, grid, block, *arguments)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            if _is_unfinished(kernel.py_func):
                return Observation(error=Failure("NotImplementedError", "", own=True))
            fault = isinstance(error, KernelFault)
            quoted = _quoted(kernel.py_func, error.lines) if fault else ""
            message = f"{str(error).rstrip('.')}{quoted}"
            return Observation(error=Failure(type(error).__name__, message, own=fault))
        return Observation(arguments=plain([grid, block, *arguments]), counts=_counts(report))


def _counts(report: Report) -> dict[str, float]:
    counts = {said: float(getattr(report, name)) for said, name in COUNTED.items()}
    return counts | {"atomics": float(report.total.atomics)}


def _is_unfinished(function: Callable[..., Any]) -> bool:
    """Whether the line of the skeleton is still there, which no kernel may contain."""
    text, _ = text_of(function) or ([], 0)
    return any(line.strip().startswith("raise NotImplementedError") for line in text)


def _quoted(function: Callable[..., Any], lines: tuple[int, ...]) -> str:
    """The text of a fault's lines, those of the student's cell; "" when they may lie in another function."""
    helpers = [one for one in inspect.getclosurevars(function).globals.values() if hasattr(one, "py_func")]
    found = text_of(function)
    if found is None or helpers:
        return ""
    text, first = found
    shown = {line: text[line - first].strip() for line in lines if 0 <= line - first < len(text)}
    return ".".join(["", *(f" Line {line}: `{code}`" for line, code in sorted(shown.items()))])


def same_output(rtol: float = 1e-4, atol: float = 1e-5) -> Judge:
    """`out`, the last argument, holds what the reference writes, and nothing else was changed."""

    def judge(case: Case, seen: Observation, expected: Observation) -> Finding | None:
        *inputs, got = seen.arguments
        *wanted, want = expected.arguments
        for given, left in zip(wanted, inputs, strict=True):
            if isinstance(given, np.ndarray) and not np.array_equal(given, left, equal_nan=True):
                return Finding("The kernel changes its input.", "inputs as they were", "a changed input", (left,))
        return _difference(case.args[-1], got, want, rtol, atol)

    return judge


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
        said = sentence.format(got=f"{got:.3g}", want=f"{want:.3g}")
        return Finding(said, f"about {want:.3g} {count}", f"{got:.3g} {count}", (count,))

    return judge


def exceeds(count: str, times: float, more: float = 0.0) -> Symptom:
    """The count is above `times` that of the reference, plus `more`, on the case that failed first."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        return seen.error is None and seen.counts[count] > times * expected.counts[count] + more

    return symptom
