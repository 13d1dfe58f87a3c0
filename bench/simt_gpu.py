"""The library's kernels on this machine's GPU: results, milliseconds, and sectors by its own counters beside ours.

Run: python bench/simt_gpu.py        (needs an NVIDIA GPU and `pip install "lockstep[gpu]"`)
Sectors of the GPU come from NVIDIA's Nsight Compute, where its `ncu` is on the PATH and may read the counters (as root,
or with NVreg_RestrictProfilingToAdminUsers=0); without it their column says why it is empty. Ours count a request to
memory whether or not a cache answers it, as do the GPU's counters at its first cache (l1tex), so that they should be
equal. Milliseconds are medians of 20 launches by the GPU's events, copies left out.
"""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
import sys

import numpy as np

# Source: NVIDIA, Nsight Compute documentation, "Metrics Reference": sectors and requests at the first cache.
METRICS = {
    "sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"),
    "requests": ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"),
}
ROW = "{:<22}{:>10}{:>12}{:>12}{:>11}{:>14}"


def cases() -> dict[str, tuple]:
    """name -> (kernel, grid, block, arguments); the last argument is written."""
    from lockstep.simt.kernels import convolution, gemm, reduction, transpose, vectors

    rng = np.random.default_rng(0)

    def floats(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    n, side = 2**20, 1024
    image, weights, matrix = floats(side, side), convolution.BLUR, floats(side, side)
    numbers = rng.integers(0, 100, n).astype(np.int32)
    tiles, turns, blocks = (side // 16, side // 16), (side // 32, side // 32), n // reduction.THREADS
    found = {"vector_add": (vectors.vector_add, n // 256, 256, (floats(n), floats(n), floats(n)))}
    for kernel in (transpose.transpose_naive, transpose.transpose_tiled, transpose.transpose_padded):
        found[kernel.__name__] = kernel, turns, (32, 8), (matrix, np.zeros_like(matrix))
    for kernel in (convolution.conv2d_naive, convolution.conv2d_tiled):
        found[kernel.__name__] = kernel, tiles, (16, 16), (image, weights, np.zeros_like(image))
    found["conv2d_constant"] = convolution.conv2d_constant, tiles, (16, 16), (image, np.zeros_like(image))
    for kernel in (gemm.gemm_naive, gemm.gemm_tiled):
        small = floats(256, 256), floats(256, 256), np.zeros((256, 256), np.float32)
        found[kernel.__name__] = kernel, (16, 16), (16, 16), small
    for step, kernel in enumerate(reduction.STEPS[:6]):
        grid = blocks if step < 3 else blocks // 2
        found[kernel.__name__] = kernel, grid, reduction.THREADS, (numbers, np.zeros(grid, np.int32))
    return found


def launch_once() -> None:
    """What `ncu` watches: every kernel once, on arrays that are on the GPU already."""
    from lockstep.simt import cuda

    for kernel, grid, block, arguments in cases().values():
        kernel[grid, block](*map(cuda.to_device, arguments))
    cuda.synchronize()


def sectors_by_ncu() -> dict[str, tuple[float, float]] | str:
    """name -> (sectors, requests) by the GPU's counters; a sentence where they cannot be had."""
    tool = shutil.which("ncu")
    if tool is None:
        return "the GPU's sectors need NVIDIA's ncu on the PATH"
    names = ",".join(name for pair in METRICS.values() for name in pair)
    command = [tool, "--csv", "--page", "raw", "--metrics", names, sys.executable, __file__, "--launch"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    table = "\n".join(line for line in done.stdout.splitlines() if line.startswith('"'))
    rows = [row for row in csv.DictReader(io.StringIO(table)) if (row.get("ID") or "").isdigit()]
    if len(rows) != len(cases()):
        why = next((line for line in done.stdout.splitlines() if "ERR" in line), f"{len(rows)} kernels were seen")
        return f"ncu did not count every kernel: {why}"
    numbers = [
        tuple(sum(float(row[name].replace(",", "")) for name in METRICS[what]) for what in ("sectors", "requests"))
        for row in rows
    ]
    return dict(zip(cases(), numbers, strict=True))


def main() -> None:
    from lockstep.simt import choice, cuda, milliseconds, profile
    from lockstep.simt.kernel import simulated

    if cuda is choice.simulator:
        raise SystemExit('no GPU here, or no numba-cuda: pip install "lockstep[gpu]" on a machine with an NVIDIA GPU')
    counted = sectors_by_ncu()
    print(ROW.format("kernel", "ms", "sectors", "by the GPU", "a request", "results"))
    for name, (kernel, grid, block, arguments) in cases().items():
        expected = [one.copy() for one in arguments]
        report = profile(simulated(kernel), grid, block, *expected)
        on_gpu = [cuda.to_device(one) for one in arguments]
        kernel[grid, block](*on_gpu)
        got, want = on_gpu[-1].copy_to_host(), expected[-1]
        exact = want.dtype.kind == "i"
        same = np.array_equal(got, want) if exact else np.allclose(got, want, rtol=1e-4, atol=1e-4)
        theirs = "" if isinstance(counted, str) else f"{counted[name][0]:,.0f}"
        result = ("equal" if exact else "to rounding") if same else "DIFFERENT"
        taken = f"{milliseconds(kernel, grid, block, *arguments):.4f}"
        print(ROW.format(name, taken, f"{report.total.sectors:,}", theirs, f"{report.sectors_per_request:.2f}", result))
    if isinstance(counted, str):
        print(counted)


if __name__ == "__main__":
    launch_once() if "--launch" in sys.argv else main()
