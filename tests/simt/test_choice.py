"""Which `cuda` a machine gets, and that a kernel written for Numba's runs in the simulator as it stands."""

import linecache

import cloudpickle
import numpy as np
import pytest

from lockstep import simt
from lockstep.simt import choice
from lockstep.simt.compile import source
from lockstep.simt.kernel import simulated
from lockstep.simt.slow import run_slowly


def test_the_variable_decides(monkeypatch):
    monkeypatch.setenv("LOCKSTEP_SIMT", "simulator")
    assert choice.chosen() is choice.simulator
    monkeypatch.setenv("LOCKSTEP_SIMT", "gpu")
    with pytest.raises(ValueError, match="LOCKSTEP_SIMT is simulator or numba, not 'gpu'"):
        choice.chosen()


def test_a_driver_alone_is_no_gpu(monkeypatch):
    monkeypatch.delenv("LOCKSTEP_SIMT", raising=False)
    monkeypatch.setattr(choice, "has_driver", lambda: False)
    assert choice.chosen() is choice.simulator
    numba_cuda = pytest.importorskip("numba.cuda")
    monkeypatch.setattr(choice, "has_driver", lambda: True)
    monkeypatch.setattr(numba_cuda, "is_available", lambda: False)
    assert choice.chosen() is choice.simulator
    monkeypatch.setattr(numba_cuda, "is_available", lambda: True)
    assert choice.chosen() is numba_cuda


FOR_NUMBA = """
@cuda.jit(device=True)
def half(x):
    return x * float32(0.5)

@cuda.jit
def halves(x, out):
    i = cuda.grid(1)
    tile = cuda.shared.array(32, float32)
    tile[cuda.threadIdx.x] = half(x[i])
    cuda.syncthreads()
    out[i] = tile[31 - cuda.threadIdx.x]
"""


def test_a_kernel_of_numba_s_is_simulated_and_profiled():
    numba = pytest.importorskip("numba")
    from numba import cuda

    linecache.cache["<for numba>"] = (len(FOR_NUMBA), None, FOR_NUMBA.splitlines(keepends=True), "<for numba>")
    namespace = {"cuda": cuda, "float32": numba.float32}
    exec(compile(FOR_NUMBA, "<for numba>", "exec"), namespace)
    x, out, slow = np.arange(64, dtype=np.float32), np.zeros(64, np.float32), np.zeros(64, np.float32)
    report = simt.profile(namespace["halves"], 2, 32, x, out)
    run_slowly(simulated(namespace["halves"])[2, 32], x, slow)
    assert np.array_equal(out, x.reshape(2, 32)[:, ::-1].ravel() / 2) and np.array_equal(slow, out)
    assert report.barriers == 1 and report.sectors_per_request == 4


def test_a_kernel_of_numba_s_takes_its_text_and_its_helpers_along(monkeypatch):
    # A check sends it to another process, where the cells of the notebook are not known: "the source is not at hand".
    numba = pytest.importorskip("numba")
    from numba import cuda

    linecache.cache["<a cell>"] = (len(FOR_NUMBA), None, FOR_NUMBA.splitlines(keepends=True), "<a cell>")
    namespace = {"cuda": cuda, "float32": numba.float32}
    exec(compile(FOR_NUMBA, "<a cell>", "exec"), namespace)
    sent = cloudpickle.dumps(simulated(namespace["halves"]))
    del linecache.cache["<a cell>"]
    monkeypatch.setattr(source, "_received", {})
    x, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    report = simt.profile(cloudpickle.loads(sent), 2, 32, x, out)
    assert np.array_equal(out, x.reshape(2, 32)[:, ::-1].ravel() / 2)
    assert {line.function for line in report.lines} == {"half", "halves"}
