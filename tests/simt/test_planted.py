"""Faults planted in the library's kernels: each barrier taken away in turn, each guard opened, each loop kept from ending."""

import linecache
import textwrap

import kernel_cases
import numpy as np
import pytest

from lockstep import simt
from lockstep.simt.compile.source import read
from lockstep.simt.kernel import Kernel, simulated
from lockstep.simt.kernels import reduction

# Barriers without which nothing can go wrong.
REDUNDANT = {
    ("scan_exclusive", 1): "thread 0 alone works in the last round up the tree, and it is the one that goes on",
}


def planted(kernel: Kernel, line: str, nth: int, instead: str) -> Kernel:
    """The kernel with the nth occurrence of `line` replaced."""
    source = read(kernel.py_func)
    texts = [text for number, text in source.lines.items() if number >= source.tree.lineno]
    found = [at for at, text in enumerate(texts) if line in text]
    texts[found[nth]] = texts[found[nth]].replace(line, instead)
    whole = textwrap.dedent("\n".join(texts)) + "\n"
    name = f"<{kernel.__name__} without {line} {nth}>"
    linecache.cache[name] = (len(whole), None, whole.splitlines(keepends=True), name)
    namespace = dict(kernel.py_func.__globals__)
    exec(compile(whole, name, "exec"), namespace)
    return Kernel(namespace[kernel.py_func.__name__])


def occurrences(kernel: Kernel, line: str) -> int:
    source = read(kernel.py_func)
    return sum(line in text for text in source.lines.values())


def outcome(kernel: Kernel, case: kernel_cases.Case) -> str:
    given = kernel_cases.fresh(case)
    try:
        with simt.step_limit(200):
            kernel[case.grid, case.block](*given)
    except simt.KernelFault as fault:
        assert fault.lines and str(fault)
        return type(fault).__name__
    return "nothing"


def plant(line: str, instead: str, seeds: range, redundant: dict) -> tuple[int, list]:
    """(faults planted, those that no seed's shape brought out)."""
    pending: dict[tuple[str, int], set[str]] = {}
    for seed in seeds:
        for case in kernel_cases.cases(seed):
            kernel = simulated(case.kernel)
            for nth in range(occurrences(kernel, line)):
                key = (case.name, nth)
                if key not in redundant:
                    seen = pending.setdefault(key, set())
                    if seen <= {"nothing"}:
                        seen.add(outcome(planted(kernel, line, nth, instead), case))
    return len(pending), [key for key, seen in pending.items() if seen == {"nothing"}]


def test_each_barrier_is_missed():
    count, unseen = plant("cuda.syncthreads()", "pass", range(20, 23), REDUNDANT)
    assert count >= 25 and not unseen


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("if i < out.size:", "if i <= out.size:"),
        ("x < out.shape[1]:", "x < out.shape[1] + 1:"),
        ("i < values.size:", "True:"),
    ],
)
def test_each_open_guard_is_noticed(line, instead):
    count, unseen = plant(line, instead, range(20, 23), {})
    assert count and not unseen


def test_each_endless_loop_ends():
    count, unseen = plant("stride *= 2", "stride *= 1", range(20, 21), {})
    assert count == 2 and not unseen
    zeros = np.zeros(64, np.int32)
    with pytest.raises(simt.EndlessLoop), simt.step_limit(100):
        planted(simulated(reduction.reduce_many), "i += cuda.gridsize(1)", 0, "pass")[1, 128](zeros, zeros)


def test_each_syncwarp_is_missed():
    case = next(case for case in kernel_cases.cases(20) if case.name == "reduce_last_warp")
    device = simulated(reduction.last_warp)
    count = occurrences(device, "cuda.syncwarp()")
    for nth in range(count):
        kernel = planted(simulated(case.kernel), "stride //= 2", 0, "stride //= 2")  # a copy with names of its own
        kernel.py_func.__globals__["last_warp"] = Kernel(
            planted(device, "cuda.syncwarp()", nth, "pass").py_func, is_device=True
        )
        assert outcome(kernel, case) == "RaceError", nth
    assert count == 10
