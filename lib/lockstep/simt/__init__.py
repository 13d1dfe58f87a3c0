"""A GPU you can look inside: kernels run in lockstep, warp by warp, with counters and a race finder.

Floor 0: NumPy, greenlet and the standard library. The same source runs on a GPU through Numba:

    from lockstep.simt import cuda, profile            # the simulator, or numba.cuda where there is a GPU

    @cuda.jit
    def add(a, b, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = a[i] + b[i]

    add[grid, block](a, b, out)                        # runs it; refuses what a GPU would do wrongly
    print(profile(add, grid, block, a, b, out))        # counts it, line by line
    warp_requests(add, grid, block, a, b, out)         # one warp's accesses, to draw
    writers(add, grid, block, a, b, out, array="out")  # who writes which cell, to draw
    milliseconds(add, grid, block, a, b, out)          # on a GPU; None without one

Vocabulary: a *lane* is one thread's place in its warp of 32; a *request* is one access by a warp; a *sector* is 32 bytes
of global memory; the *ways* of a bank conflict are the passes that a request to shared memory takes; an *interval* lies
between two barriers of a block.

| refused                                            | as                                       |
|----------------------------------------------------|------------------------------------------|
| an index below 0 or past the end                   | OutOfBounds                              |
| two threads on one cell, one writes, no order      | RaceError                                |
| a barrier that part of a block does not reach      | BarrierError                             |
| a read of shared or local memory nobody wrote      | UninitializedRead                        |
| an integer divided by zero; an endless loop        | DivisionByZero; EndlessLoop (step_limit) |
| too many threads, too much shared memory           | LaunchError                              |
| Python that kernels may not contain                | Unsupported                              |

Faults carry `.threads`, `.blocks` and `.lines`. Read `cuda`, `kernel`, then `compile/` and `run/`; `slow/` is the same
machine written as obviously as possible, one coroutine a thread, against which tests hold the fast one.
"""

from lockstep.simt.choice import chosen as _chosen
from lockstep.simt.errors import (
    BarrierError,
    DivisionByZero,
    EndlessLoop,
    KernelFault,
    LaunchError,
    OutOfBounds,
    RaceError,
    UninitializedRead,
    Unsupported,
)
from lockstep.simt.occupancy import Occupancy, occupancy
from lockstep.simt.report import Report, profile, warp_requests
from lockstep.simt.run.loops import step_limit
from lockstep.simt.timing import known_gpu, milliseconds
from lockstep.simt.writers import writers

cuda = _chosen()

__all__ = [
    "BarrierError",
    "DivisionByZero",
    "EndlessLoop",
    "KernelFault",
    "LaunchError",
    "Occupancy",
    "OutOfBounds",
    "RaceError",
    "Report",
    "UninitializedRead",
    "Unsupported",
    "cuda",
    "known_gpu",
    "milliseconds",
    "occupancy",
    "profile",
    "step_limit",
    "warp_requests",
    "writers",
]
