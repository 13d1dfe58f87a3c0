"""The library's kernels: right over many shapes without a false alarm, equal on both machines, and on Numba's simulator."""

import os
import pickle
import subprocess
import sys

import kernel_cases
import numpy as np
import pytest

from lockstep.simt.choice import has_driver
from lockstep.simt.kernel import simulated
from lockstep.simt.slow import run_slowly

HERE = os.path.dirname(__file__)


def test_200_random_shapes_are_right_and_raise_no_alarm():
    shapes = 0
    for seed in range(8):
        for case in kernel_cases.cases(seed, largest=120):
            given = kernel_cases.fresh(case)
            simulated(case.kernel)[case.grid, case.block](*given)
            for at, expected in case.outputs.items():
                assert kernel_cases.agree(given[at], expected), (case.name, seed)
            shapes += 1
    assert shapes >= 200


def test_both_machines_agree_to_the_bit():
    for case in kernel_cases.cases(100, largest=9):
        fast, slow = kernel_cases.fresh(case), kernel_cases.fresh(case)
        simulated(case.kernel)[case.grid, case.block](*fast)
        run_slowly(simulated(case.kernel)[case.grid, case.block], *slow)
        for at in case.outputs:
            assert np.array_equal(fast[at], slow[at]), case.name


def run_with_numba(largest: int, names: set[str] | None = None, **environment: str) -> dict[str, list]:
    """The results of all cases where `cuda` is Numba's, from a process of its own."""
    program = f"""
import pickle, sys
sys.path.insert(0, {HERE!r})
import kernel_cases
results = {{}}
for case in kernel_cases.cases(7, largest={largest}):
    if {names!r} is None or case.name in {names!r}:
        given = kernel_cases.fresh(case)
        case.kernel[case.grid, case.block](*given)
        results[case.name] = [given[at] for at in case.outputs]
sys.stdout.buffer.write(pickle.dumps(results))
"""
    variables = os.environ | {"LOCKSTEP_SIMT": "numba", "NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS": "0"} | environment
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], env=variables, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return pickle.loads(done.stdout)


def compare_with(results: dict[str, list], largest: int) -> None:
    for case in kernel_cases.cases(7, largest=largest):
        if case.name in results:
            given = kernel_cases.fresh(case)
            simulated(case.kernel)[case.grid, case.block](*given)
            for at, theirs in zip(case.outputs, results[case.name], strict=True):
                assert kernel_cases.agree(given[at], theirs), case.name


# Numba's simulator knows neither shuffles nor syncwarp, and starts a thread of the host for each thread.
UNKNOWN_TO_NUMBAS_SIMULATOR = {"sum_atomic", "reduce_last_warp", "reduce_unrolled", "reduce_many"}
# They do nothing that another one does not do as well, and on a GPU all are compared.
SIMPLER = {"vector_add", "transpose_naive", "transpose_tiled", "reduce_packed", "reduce_sequential", "scan_inclusive"}
SIMPLER |= {"histogram_global", "conv1d_naive", "conv2d_naive", "gemm_naive"}


def test_numba_s_simulator_gives_the_same_results():
    pytest.importorskip("numba")
    names = {case.name for case in kernel_cases.cases(7, largest=9)} - UNKNOWN_TO_NUMBAS_SIMULATOR - SIMPLER
    results = run_with_numba(9, names, NUMBA_ENABLE_CUDASIM="1")
    assert set(results) == names
    compare_with(results, 9)


@pytest.mark.skipif(not has_driver(), reason="no GPU")
def test_a_gpu_gives_the_same_results():
    pytest.importorskip("numba")
    results = run_with_numba(150)
    assert len(results) >= 25
    compare_with(results, 150)
