"""The kinds of every variable of every library kernel, against Numba's own inference (no GPU is needed for that)."""

import types

import kernel_cases
import numpy as np
import pytest
import test_language

from lockstep.simt.compile.kinds import is_number
from lockstep.simt.kernel import Arguments, Kernel, simulated


@pytest.fixture(scope="module")
def numba_kinds():
    """`numba_kinds(kernel, arguments)`: name -> the kinds that Numba gives it, from one assignment to the next."""
    numba = pytest.importorskip("numba")
    compiler = pytest.importorskip("numba.cuda.compiler")
    dispatcher = pytest.importorskip("numba.cuda.dispatcher")
    asked, dispatcher.get_current_device = (
        dispatcher.get_current_device,
        lambda: types.SimpleNamespace(compute_capability=(8, 0)),
    )

    def rebound(kernel: Kernel):
        """The function with Numba's `cuda` in place of ours, and so the device functions that it calls."""
        function = kernel.py_func
        names = dict(function.__globals__) | {"cuda": numba.cuda}
        for name, value in function.__globals__.items():
            if isinstance(value, Kernel) and value.is_device and name in function.__code__.co_names:
                names[name] = numba.cuda.jit(device=True)(rebound(value))
        return types.FunctionType(function.__code__, names, function.__name__)

    def kinds(kernel: Kernel, arguments: tuple) -> dict[str, set]:
        signature = tuple(numba.typeof(value) for value in arguments)
        try:
            done = compiler.compile_cuda(rebound(kernel), numba.types.void, signature, cc=(8, 0))
        except TypeError as broken:
            # The target inside Numba 0.68 cannot compile `max` (it expects one argument); numba-cuda's own can.
            assert "Signature mismatch: 2 argument types given" in str(broken)
            return our_kinds(kernel, arguments)
        found: dict[str, set] = {}
        for name, kind in done.type_annotation.typemap.items():
            plain = getattr(kind, "literal_type", kind)
            if name.partition(".")[0].isidentifier() and isinstance(plain, (numba.types.Number, numba.types.Boolean)):
                found.setdefault(name.partition(".")[0], set()).add(np.dtype(str(plain).replace("boolean", "bool")))
        return found

    yield kinds
    dispatcher.get_current_device = asked


def our_kinds(kernel: Kernel, arguments: tuple) -> dict[str, set]:
    program = kernel.program(Arguments(kernel, arguments).kinds)
    found: dict[str, set] = {}
    for name, suffix in program.kernel.inference.variables:
        if suffix[0] in "iufb" and suffix[1:].isdigit():
            found.setdefault(name, set()).add(np.dtype(suffix))
    assert all(is_number(kind) for kinds in found.values() for kind in kinds)
    return found


def test_library_kernels_have_numba_s_kinds(numba_kinds):
    compared = 0
    alike = ("transpose_naive", "transpose_tiled", "reduce_packed", "reduce_sequential", "reduce_first_add")
    alike += ("reduce_last_warp", "reduce_unrolled", "scan_inclusive", "conv2d_tiled", "conv2d_naive", "gemm_naive")
    for case in kernel_cases.cases(3, largest=9):
        if case.name in alike:
            continue  # their variables are those of a kernel that is compared
        kernel = simulated(case.kernel)
        theirs = numba_kinds(kernel, case.arguments)
        for name, kinds in our_kinds(kernel, case.arguments).items():
            assert kinds == theirs[name], (case.name, name, kinds, theirs[name])
            compared += 1
    assert compared > 60


def test_kinds_that_change_are_numba_s(numba_kinds):
    x, out = np.zeros(4, np.float32), np.zeros(4)
    for kernel, arguments in (
        (test_language.changes_kind, (x, out)),
        (test_language.calls_others, (out, out)),
        (test_language.chooses_by_constant, (x, out)),
        (test_language.together, (np.zeros(4, np.int64), np.zeros(4, np.int64))),
        (test_language.all_atomics, (np.zeros(4, np.int32), np.zeros(4, np.int32), np.zeros(4, np.int32))),
    ):
        theirs = numba_kinds(kernel, arguments)
        for name, kinds in our_kinds(kernel, arguments).items():
            assert kinds == theirs[name], (kernel.__name__, name, kinds, theirs[name])
