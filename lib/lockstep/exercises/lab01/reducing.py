"""01.6 `reduce_sum`: a tree of additions that keeps its warps together.

Floor 4, room `exercises`. What is counted: divergent branches, bank conflicts, idle lanes, atomics, reads, instructions.
The mistakes are in `reducing_mistakes`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import all_of
from lockstep.exercises.lab01.launching import ATOMICS, IDLE, Launched, at_most, launch_case, same_output, unwritten
from lockstep.exercises.lab01.reducing_mistakes import DIVERGENT, ISSUED, READS, REDUCING_MISTAKES, WAYS
from lockstep.exercises.lab01.reducing_wrong import THREADS
from lockstep.simt import cuda

ROUNDS = 150  # of a `while`: a single thread that adds 128 numbers still comes to its end


@cuda.jit
def reduce_sum(source, out):
    partial = cuda.shared.array(THREADS, np.int32)
    thread = cuda.threadIdx.x
    i = cuda.grid(1)
    partial[thread] = source[i] if i < source.size else 0
    cuda.syncthreads()
    stride = THREADS // 2
    while stride > 0:
        if thread < stride:
            partial[thread] += partial[thread + stride]
        cuda.syncthreads()
        stride //= 2
    if thread == 0:
        out[cuda.blockIdx.x] = partial[0]


@cuda.jit
def by_shuffles(source, out):
    sums = cuda.shared.array(4, np.int32)
    i = cuda.grid(1)
    total = 0
    if i < source.size:
        total = source[i]
    step = 16
    while step > 0:
        total += cuda.shfl_down_sync(0xFFFFFFFF, total, step)
        step //= 2
    if cuda.threadIdx.x % 32 == 0:
        sums[cuda.threadIdx.x // 32] = total
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        out[cuda.blockIdx.x] = sums[0] + sums[1] + sums[2] + sums[3]


@cuda.jit
def unrolled_by_a_loop_over_halves(source, out):
    partial = cuda.shared.array(128, np.int64)
    t = cuda.threadIdx.x
    at = cuda.blockIdx.x * cuda.blockDim.x + t
    partial[t] = 0
    if at < source.size:
        partial[t] = source[at]
    for k in range(7):
        cuda.syncthreads()
        half = 64 >> k
        if t < half:
            partial[t] = partial[t] + partial[t + half]
    if t == 0:
        out[cuda.blockIdx.x] = partial[t]


@cuda.jit
def reduce_sum_stub(source, out):
    shared = cuda.shared.array(THREADS, np.int32)  # noqa: F841
    raise NotImplementedError("load one number a thread, then halve until one is left")


def reduction_cases(rng: np.random.Generator) -> Iterator[Case]:
    for n in (THREADS, 2 * THREADS, int(rng.integers(3 * THREADS + 1, 4 * THREADS))):
        source = rng.integers(-50, 100, n).astype(np.int32)
        blocks = -(-n // THREADS)
        yield launch_case(f"{n} numbers", blocks, THREADS, source, unwritten(blocks, np.int32))


REDUCE_SUM = Exercise(
    id="01.6",
    title="A sum without divergence",
    function="reduce_sum",
    points=3,
    asks=(
        "A kernel with blocks of 128 threads. Leave in `out[b]` the sum of the 128 numbers of `source` (int32) that belong "
        "to block b, or of what is left of them: each number is read once into shared memory, and a tree of additions "
        "follows in which threads that work are neighbours, and so are the cells that they touch."
    ),
    reference=reduce_sum,
    equivalent_mutants=("line 14: if thread == 0: -> if thread == 1:",),  # any one thread may write the sum
    also_right=(by_shuffles, unrolled_by_a_loop_over_halves),
    stub=reduce_sum_stub,
    cases=reduction_cases,
    observe=Launched(ROUNDS),
    judge=all_of(
        same_output(),
        at_most(
            ATOMICS,
            1.0,
            "The sums are right, but {got} atomic additions queue up for one cell: that is no tree.",
        ),
        at_most(
            READS,
            2.0,
            "The sums are right, but a thread reads {got} numbers from global memory where {want} would do: each number is "
            "to be fetched once, by one thread.",
        ),
        at_most(
            DIVERGENT,
            1.5,
            "The sums are right, but warps part at {got} branches where {want} will do: within a warp, some lanes "
            "add and others stand by.",
            more=2.0,
        ),
        at_most(
            WAYS,
            1.0,
            "The sums are right and warps stay together, but a request to shared memory takes {got} passes: the cells lie "
            "too far apart, and share banks.",
        ),
        at_most(
            IDLE,
            1.0,
            "The sums are right, but {got} of all lanes stand idle, where {want} would do: few threads do the work.",
            more=0.25,
        ),
        at_most(
            ISSUED,
            4.0,
            "The sums are right, but the warps issue {got} instructions where a tree takes about {want}.",
        ),
    ),
    hints=(
        "Halve the number of partial sums at each level. Which threads work at a level: every second one, or the first "
        "half?",
        "Thread t adds the cell that is `stride` further: stride 64, then 32, and so on to 1. The threads below `stride` "
        "work, so at 64 and 32 whole warps do or do not.",
        "Between two levels everyone waits, also those that have nothing to add: the barrier stands in the loop and after "
        "the `if`. At the end thread 0 writes shared[0].",
    ),
    mistakes=REDUCING_MISTAKES,
)
