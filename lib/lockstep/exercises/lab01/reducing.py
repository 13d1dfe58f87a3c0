"""01.6 `reduce_sum`: a tree of additions that keeps its warps together.

Floor 4, room `exercises`. What is counted: divergent branches, bank conflicts, idle lanes, atomics.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.judge import all_of
from lockstep.exercises.lab01.launching import Launched, at_most, exceeds, launch_case, same_output, unwritten
from lockstep.exercises.symptoms import matches, raises
from lockstep.simt import cuda

THREADS = 128
DIVERGENT, WAYS = "divergent branches", "ways of the worst bank conflict"
IDLE, ATOMICS = "share of idle lanes", "atomics"


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


@cuda.jit
def doubles_the_stride(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    thread = cuda.threadIdx.x
    i = cuda.grid(1)
    shared[thread] = source[i] if i < source.size else 0
    cuda.syncthreads()
    stride = 1
    while stride < THREADS:
        if thread % (2 * stride) == 0:
            shared[thread] += shared[thread + stride]
        cuda.syncthreads()
        stride *= 2
    if thread == 0:
        out[cuda.blockIdx.x] = shared[0]


@cuda.jit
def strided_cells(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    thread = cuda.threadIdx.x
    i = cuda.grid(1)
    shared[thread] = source[i] if i < source.size else 0
    cuda.syncthreads()
    stride = 1
    while stride < THREADS:
        at = 2 * stride * thread
        if at < THREADS:
            shared[at] += shared[at + stride]
        cuda.syncthreads()
        stride *= 2
    if thread == 0:
        out[cuda.blockIdx.x] = shared[0]


@cuda.jit
def no_barrier_in_the_loop(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    thread = cuda.threadIdx.x
    i = cuda.grid(1)
    shared[thread] = source[i] if i < source.size else 0
    cuda.syncthreads()
    stride = THREADS // 2
    while stride > 0:
        if thread < stride:
            shared[thread] += shared[thread + stride]
        stride //= 2
    if thread == 0:
        out[cuda.blockIdx.x] = shared[0]


@cuda.jit
def barrier_in_the_branch(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    thread = cuda.threadIdx.x
    i = cuda.grid(1)
    shared[thread] = source[i] if i < source.size else 0
    cuda.syncthreads()
    stride = THREADS // 2
    while stride > 0:
        if thread < stride:
            shared[thread] += shared[thread + stride]
            cuda.syncthreads()
        stride //= 2
    if thread == 0:
        out[cuda.blockIdx.x] = shared[0]


@cuda.jit
def leaves_before_the_barrier(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    thread = cuda.threadIdx.x
    i = cuda.grid(1)
    if i >= source.size:
        return
    shared[thread] = source[i]
    cuda.syncthreads()
    stride = THREADS // 2
    while stride > 0:
        if thread < stride:
            shared[thread] += shared[thread + stride]
        cuda.syncthreads()
        stride //= 2
    if thread == 0:
        out[cuda.blockIdx.x] = shared[0]


@cuda.jit
def no_guard(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    thread = cuda.threadIdx.x
    shared[thread] = source[cuda.grid(1)]
    cuda.syncthreads()
    stride = THREADS // 2
    while stride > 0:
        if thread < stride:
            shared[thread] += shared[thread + stride]
        cuda.syncthreads()
        stride //= 2
    if thread == 0:
        out[cuda.blockIdx.x] = shared[0]


@cuda.jit
def leaves_cells_empty(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    thread = cuda.threadIdx.x
    i = cuda.grid(1)
    if i < source.size:
        shared[thread] = source[i]
    cuda.syncthreads()
    stride = THREADS // 2
    while stride > 0:
        if thread < stride:
            shared[thread] += shared[thread + stride]
        cuda.syncthreads()
        stride //= 2
    if thread == 0:
        out[cuda.blockIdx.x] = shared[0]


@cuda.jit
def stops_one_level_early(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    thread = cuda.threadIdx.x
    i = cuda.grid(1)
    shared[thread] = source[i] if i < source.size else 0
    cuda.syncthreads()
    stride = THREADS // 2
    while stride > 1:
        if thread < stride:
            shared[thread] += shared[thread + stride]
        cuda.syncthreads()
        stride //= 2
    if thread == 0:
        out[cuda.blockIdx.x] = shared[0]


@cuda.jit
def all_threads_add(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    thread = cuda.threadIdx.x
    i = cuda.grid(1)
    shared[thread] = source[i] if i < source.size else 0
    cuda.syncthreads()
    stride = THREADS // 2
    while stride > 0:
        if thread + stride < THREADS:
            shared[thread] += shared[thread + stride]
        cuda.syncthreads()
        stride //= 2
    if thread == 0:
        out[cuda.blockIdx.x] = shared[0]


@cuda.jit
def one_thread_adds(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    thread = cuda.threadIdx.x
    i = cuda.grid(1)
    shared[thread] = source[i] if i < source.size else 0
    cuda.syncthreads()
    if thread == 0:
        total = 0
        for k in range(THREADS):
            total += shared[k]
        out[cuda.blockIdx.x] = total


@cuda.jit
def atomics_on_one_cell(source, out):
    shared = cuda.shared.array(1, np.int32)
    i = cuda.grid(1)
    if cuda.threadIdx.x == 0:
        shared[0] = 0
    cuda.syncthreads()
    if i < source.size:
        cuda.atomic.add(shared, 0, source[i])
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        out[cuda.blockIdx.x] = shared[0]


@cuda.jit
def every_thread_writes(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    thread = cuda.threadIdx.x
    i = cuda.grid(1)
    shared[thread] = source[i] if i < source.size else 0
    cuda.syncthreads()
    stride = THREADS // 2
    while stride > 0:
        if thread < stride:
            shared[thread] += shared[thread + stride]
        cuda.syncthreads()
        stride //= 2
    out[cuda.blockIdx.x] = shared[0]


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
        "to block b, or of what is left of them: a tree of additions in which threads that work are neighbours, and so "
        "are the cells that they touch."
    ),
    reference=reduce_sum,
    equivalent_mutants=("line 14: if thread == 0: -> if thread == 1:",),  # any one thread may write the sum
    also_right=(by_shuffles, unrolled_by_a_loop_over_halves),
    stub=reduce_sum_stub,
    cases=reduction_cases,
    observe=Launched(),
    judge=all_of(
        same_output(),
        at_most(
            ATOMICS,
            1.0,
            "The sums are right, but {got} atomic additions queue up for one cell: that is no tree.",
        ),
        at_most(
            DIVERGENT,
            1.5,
            "The sums are right, but warps part at {got} branches where {want} are unavoidable: within a warp, some lanes "
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
    ),
    hints=(
        "Halve the number of partial sums at each level. Which threads work at a level: every second one, or the first "
        "half?",
        "Thread t adds the cell that is `stride` further: stride 64, then 32, and so on to 1. The threads below `stride` "
        "work, so at 64 and 32 whole warps do or do not.",
        "Between two levels everyone waits, also those that have nothing to add: the barrier stands in the loop and after "
        "the `if`. At the end thread 0 writes shared[0].",
    ),
    mistakes=(
        Mistake(
            "stride doubling that diverges",
            doubles_the_stride,
            "At the first level every second thread works, so all warps run with half of their lanes, then a quarter, and "
            "so on. Let the first threads work instead: halve the stride, from 64 down to 1.",
            symptom=exceeds(DIVERGENT, 2.0),
        ),
        Mistake(
            "cells that share a bank",
            strided_cells,
            "The first threads work, which is good, but their cells lie 2, 4, 8, ... words apart and fall into the same "
            "banks. Let thread t add cell t + stride, with the stride going down.",
            symptom=exceeds(WAYS, 1.0),
        ),
        Mistake(
            "missing barrier",
            no_barrier_in_the_loop,
            "A level begins before the one above it has ended: a thread adds a partial sum that another one is still "
            "writing. Every level needs a barrier, cuda.syncthreads().",
            symptom=matches("((before|after) the barrier at line \\d+|no barrier between them), and one writes"),
        ),
        Mistake(
            "leaves before the barrier",
            leaves_before_the_barrier,
            "Threads of the last block that have no number return, and the others wait for them at the barrier. Let them "
            "stay, and load a 0.",
            symptom=raises("BarrierError", "return"),
        ),
        Mistake(
            "barrier inside a branch",
            barrier_in_the_branch,
            "Only the threads that add reach the barrier, and they wait for the others. Move it out of the `if`: every "
            "thread of the block has to pass every barrier.",
            symptom=raises("BarrierError"),
        ),
        Mistake(
            "no guard",
            no_guard,
            "The last block has fewer than 128 numbers, and its threads read past the end. Load a 0 where there is none.",
            symptom=raises("OutOfBounds", "source"),
        ),
        Mistake(
            "leaves cells empty",
            leaves_cells_empty,
            "The last block has fewer than 128 numbers, and the cells of its other threads stay empty; the tree adds them "
            "all the same. Put a 0 there.",
            symptom=raises("UninitializedRead"),
        ),
        Mistake(
            "stops one level early",
            stops_one_level_early,
            "Two partial sums are left, and you write one of them: the last level has stride 1.",
        ),
        Mistake(
            "all threads add",
            all_threads_add,
            "At each level threads beyond the first half add as well, and write cells that others read at the same time. "
            "Only threads below `stride` may add.",
            symptom=matches("between (two passes|the barriers).*, and one writes"),
        ),
        Mistake(
            "one thread adds",
            one_thread_adds,
            "One thread adds 128 numbers one after another while 127 wait. A tree needs 7 levels.",
            symptom=exceeds(IDLE, 1.0, 0.25),
        ),
        Mistake(
            "atomics on one cell",
            atomics_on_one_cell,
            "All 128 threads add to one cell, and the hardware lets them in one by one: that takes as long as adding in a "
            "row. Build a tree.",
            symptom=exceeds(ATOMICS, 1.0),
        ),
        Mistake(
            "every thread writes the result",
            every_thread_writes,
            "All threads of the block write `out[b]`. It is the same number, but nobody promises that: let one of them "
            "write.",
            symptom=raises("RaceError", "both write"),
        ),
    ),
)
