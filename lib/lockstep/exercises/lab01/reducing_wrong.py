"""01.6, `reduce_sum`: kernels that take wrong numbers or many steps; their sentences are in `reducing_mistakes`.

Floor 4, room `exercises`.
"""

from __future__ import annotations

import numpy as np

from lockstep.simt import cuda

THREADS = 128


@cuda.jit(device=True)
def load(source, shared):
    i = cuda.grid(1)
    shared[cuda.threadIdx.x] = source[i] if i < source.size else 0


@cuda.jit(device=True)
def tree(shared, first, out):
    """The tree from stride `first` down, and the sum of this block into `out`."""
    thread = cuda.threadIdx.x
    stride = first
    while stride > 0:
        if thread < stride:
            shared[thread] += shared[thread + stride]
        cuda.syncthreads()
        stride //= 2
    if thread == 0:
        out[cuda.blockIdx.x] = shared[0]


@cuda.jit
def doubles_the_stride(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    thread = cuda.threadIdx.x
    load(source, shared)
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
    load(source, shared)
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
def no_guard(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    thread = cuda.threadIdx.x
    shared[thread] = source[cuda.grid(1)]
    cuda.syncthreads()
    tree(shared, THREADS // 2, out)


@cuda.jit
def leaves_cells_empty(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    thread = cuda.threadIdx.x
    i = cuda.grid(1)
    if i < source.size:
        shared[thread] = source[i]
    cuda.syncthreads()
    tree(shared, THREADS // 2, out)


@cuda.jit
def stops_one_level_early(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    thread = cuda.threadIdx.x
    load(source, shared)
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
def one_thread_adds(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    thread = cuda.threadIdx.x
    load(source, shared)
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
def adds_to_what_was_there(source, out):
    i = cuda.grid(1)
    if i < source.size:
        cuda.atomic.add(out, cuda.blockIdx.x, source[i])


@cuda.jit
def all_add_without_an_if(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    thread = cuda.threadIdx.x
    load(source, shared)
    cuda.syncthreads()
    stride = THREADS // 2
    while stride > 0:
        shared[thread] += shared[thread + stride]
        cuda.syncthreads()
        stride //= 2
    if thread == 0:
        out[cuda.blockIdx.x] = shared[0]


@cuda.jit
def begins_at_the_whole_block(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    load(source, shared)
    cuda.syncthreads()
    tree(shared, THREADS, out)


@cuda.jit
def guards_by_the_output(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    i = cuda.grid(1)
    shared[cuda.threadIdx.x] = source[i] if i < out.size else 0
    cuda.syncthreads()
    tree(shared, THREADS // 2, out)


@cuda.jit
def forgets_the_block(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    i = cuda.threadIdx.x
    shared[i] = source[i] if i < source.size else 0
    cuda.syncthreads()
    tree(shared, THREADS // 2, out)


@cuda.jit
def strided_blocks(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    i = cuda.blockIdx.x + cuda.threadIdx.x * cuda.gridDim.x
    shared[cuda.threadIdx.x] = source[i] if i < source.size else 0
    cuda.syncthreads()
    tree(shared, THREADS // 2, out)


@cuda.jit
def every_thread_adds_all(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    load(source, shared)
    cuda.syncthreads()
    total = 0
    for k in range(THREADS):
        total += shared[k]
    if cuda.threadIdx.x == 0:
        out[cuda.blockIdx.x] = total


@cuda.jit
def every_thread_reads_all(source, out):
    total = 0
    for k in range(THREADS):
        i = cuda.blockIdx.x * THREADS + k
        if i < source.size:
            total += source[i]
    if cuda.threadIdx.x == 0:
        out[cuda.blockIdx.x] = total
