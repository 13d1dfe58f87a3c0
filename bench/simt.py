"""How much faster than Numba's simulator a kernel runs in ours, with counting and without.

Run: python bench/simt.py [rounds]     (a round takes minutes: Numba starts a host thread for each thread of the GPU)
Both simulators run the same library kernels on the same arrays, in turn, within one run; Numba's in a process of its
own, since `cuda` is chosen on import. Faults and races are looked for in all of ours, also without counting. Prints
the median seconds of each, the ratios, and their geometric means; then one vector addition of 2^20 threads.
"""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

OURS_EACH_ROUND = 3
WANTED = {"counting": 100, "without": 300}


def cases() -> dict[str, tuple]:
    """name -> (kernel, grid, block, arguments)."""
    from lockstep.simt.kernels import convolution, gemm, reduction, vectors

    rng = np.random.default_rng(0)

    def floats(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    n = 65_536
    numbers = rng.integers(0, 100, n).astype(np.int32)
    image, weights = floats(64, 64), floats(convolution.WIDTH, convolution.WIDTH)
    tiles, block = (4, 4), (16, 16)
    threads = reduction.THREADS
    return {
        "vector add, 65,536": (vectors.vector_add, n // 256, 256, (floats(n), floats(n), floats(n))),
        "tiled GEMM, 64x64": (gemm.gemm_tiled, tiles, block, (floats(64, 64), floats(64, 64), floats(64, 64))),
        "tiled convolution, 64x64": (convolution.conv2d_tiled, tiles, block, (image, weights, np.zeros_like(image))),
        "reduction of 65,536": (
            reduction.reduce_sequential,
            n // threads,
            threads,
            (numbers, np.zeros(n // threads, np.int32)),
        ),
    }


def seconds(run: Callable[[], object]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def answer() -> None:
    """The other process: read a case's name, run it on Numba's simulator, write its seconds."""
    known = cases()
    for line in sys.stdin:
        kernel, grid, block, arguments = known[line.strip()]
        print(seconds(lambda: kernel[grid, block](*arguments)), flush=True)  # noqa: B023


def main(rounds: int) -> None:
    from lockstep.simt import profile

    environment = os.environ | {"LOCKSTEP_SIMT": "numba", "NUMBA_ENABLE_CUDASIM": "1"}
    command = [sys.executable, "-W", "ignore", __file__, "--peer"]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as peer:
        print(f"{'':<26}{'Numba s':>9}{'counting s':>12}{'ratio':>8}{'without s':>11}{'ratio':>8}")
        ratios = {"counting": [], "without": []}
        for name, (kernel, grid, block, arguments) in cases().items():
            profile(kernel, grid, block, *arguments)  # compiles
            kernel[grid, block](*arguments)
            times: dict[str, list[float]] = {"numba": [], "counting": [], "without": []}
            for _ in range(rounds):
                print(name, file=peer.stdin, flush=True)
                times["numba"].append(float(peer.stdout.readline()))
                for _ in range(OURS_EACH_ROUND):
                    times["counting"].append(seconds(lambda: profile(kernel, grid, block, *arguments)))  # noqa: B023
                    times["without"].append(seconds(lambda: kernel[grid, block](*arguments)))  # noqa: B023
            numba, counting, without = (statistics.median(times[key]) for key in ("numba", "counting", "without"))
            ratios["counting"].append(numba / counting)
            ratios["without"].append(numba / without)
            print(
                f"{name:<26}{numba:>9.2f}{counting:>12.4f}{numba / counting:>8,.0f}{without:>11.4f}{numba / without:>8,.0f}"
            )
        peer.stdin.close()
    for key, values in ratios.items():
        mean = math.exp(statistics.fmean(map(math.log, values)))
        print(f"geometric mean, {key}: {mean:,.0f} times (wanted: at least {WANTED[key]})")
    million_threads()


def million_threads() -> None:
    """Vector addition of 2^20 threads with counting: at most 1 second is wanted."""
    from lockstep.simt import profile
    from lockstep.simt.kernels.vectors import vector_add

    a = np.ones(2**20, np.float32)
    took = [seconds(lambda: profile(vector_add, 2**20 // 256, 256, a, a, a.copy())) for _ in range(5)]
    print(f"vector add, 2^20 threads, counting: {statistics.median(took):.3f} s (wanted: at most 1)")


if __name__ == "__main__":
    if "--peer" in sys.argv:
        answer()
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
