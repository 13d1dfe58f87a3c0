"""01.6, `reduce_sum`: kernels whose threads race or wait wrongly; their sentences are in `reducing_mistakes`.

Floor 4, room `exercises`.
"""

from __future__ import annotations

import numpy as np

from lockstep.exercises.lab01.reducing_wrong import THREADS, load, tree
from lockstep.simt import cuda


@cuda.jit
def no_barrier_in_the_loop(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    thread = cuda.threadIdx.x
    load(source, shared)
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
    load(source, shared)
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
    tree(shared, THREADS // 2, out)


@cuda.jit
def all_threads_add(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    thread = cuda.threadIdx.x
    load(source, shared)
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
def every_thread_writes(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    thread = cuda.threadIdx.x
    load(source, shared)
    cuda.syncthreads()
    stride = THREADS // 2
    while stride > 0:
        if thread < stride:
            shared[thread] += shared[thread + stride]
        cuda.syncthreads()
        stride //= 2
    out[cuda.blockIdx.x] = shared[0]


@cuda.jit
def no_barrier_after_loading(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    load(source, shared)
    tree(shared, THREADS // 2, out)


@cuda.jit
def last_warp_without_waiting(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    thread = cuda.threadIdx.x
    load(source, shared)
    cuda.syncthreads()
    if thread < 64:
        shared[thread] += shared[thread + 64]
    cuda.syncthreads()
    if thread < 32:
        stride = 32
        while stride > 0:
            shared[thread] += shared[thread + stride]
            stride //= 2
    if thread == 0:
        out[cuda.blockIdx.x] = shared[0]


@cuda.jit
def neighbours_in_place(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    thread = cuda.threadIdx.x
    load(source, shared)
    cuda.syncthreads()
    left = THREADS // 2
    while left > 0:
        if thread < left:
            shared[thread] = shared[2 * thread] + shared[2 * thread + 1]
        cuda.syncthreads()
        left //= 2
    if thread == 0:
        out[cuda.blockIdx.x] = shared[0]


@cuda.jit
def barrier_in_the_loop_of_some(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    thread = cuda.threadIdx.x
    load(source, shared)
    cuda.syncthreads()
    stride = THREADS // 2
    while thread < stride:
        shared[thread] += shared[thread + stride]
        cuda.syncthreads()
        stride //= 2
    if thread == 0:
        out[cuda.blockIdx.x] = shared[0]


@cuda.jit
def every_block_writes_the_first(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    load(source, shared)
    cuda.syncthreads()
    stride = THREADS // 2
    while stride > 0:
        if cuda.threadIdx.x < stride:
            shared[cuda.threadIdx.x] += shared[cuda.threadIdx.x + stride]
        cuda.syncthreads()
        stride //= 2
    if cuda.threadIdx.x == 0:
        out[0] = shared[0]


@cuda.jit
def never_halves(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    thread = cuda.threadIdx.x
    load(source, shared)
    cuda.syncthreads()
    stride = THREADS // 2
    while stride > 0:
        if thread < stride:
            shared[thread] += shared[thread + stride]
        cuda.syncthreads()


@cuda.jit
def waits_again_and_again(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    load(source, shared)
    for _ in range(THREADS):
        cuda.syncthreads()
    tree(shared, THREADS // 2, out)
