"""Sums of int32: the seven steps of Harris, each faster than the one before. Block (THREADS,), one partial sum a block.

Source: Harris, "Optimizing Parallel Reduction in CUDA", NVIDIA, 2007. Warps no longer run in step by themselves, so the
steps that drop `syncthreads` for the last warp use `syncwarp`, and each lane reads before any lane writes.
"""

from __future__ import annotations

import numpy as np

from lockstep.simt import cuda

THREADS = 128


@cuda.jit
def reduce_interleaved(source, out):
    """Step 1: neighbours first; threads with `thread % (2 * stride) == 0` work, so every warp diverges."""
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
def reduce_packed(source, out):
    """Step 2: the first threads work, so warps stay whole; strided indices fall into the same banks."""
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
def reduce_sequential(source, out):
    """Step 3: halves onto halves, so that neighbours touch neighbouring banks."""
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
def reduce_first_add(source, out):
    """Step 4: half the blocks, each thread adds two elements while loading. Grid: half of step 3's."""
    shared = cuda.shared.array(THREADS, np.int32)
    thread = cuda.threadIdx.x
    i = cuda.blockIdx.x * THREADS * 2 + thread
    total = source[i] if i < source.size else 0
    if i + THREADS < source.size:
        total += source[i + THREADS]
    shared[thread] = total
    cuda.syncthreads()
    stride = THREADS // 2
    while stride > 0:
        if thread < stride:
            shared[thread] += shared[thread + stride]
        cuda.syncthreads()
        stride //= 2
    if thread == 0:
        out[cuda.blockIdx.x] = shared[0]


@cuda.jit(device=True)
def last_warp(shared, thread):
    """64 partial sums to one, by the 32 threads of a warp."""
    total = shared[thread] + shared[thread + 32]  # nobody here writes what lies 32 further
    shared[thread] = total
    cuda.syncwarp()
    total += shared[thread + 16]
    cuda.syncwarp()
    shared[thread] = total
    cuda.syncwarp()
    total += shared[thread + 8]
    cuda.syncwarp()
    shared[thread] = total
    cuda.syncwarp()
    total += shared[thread + 4]
    cuda.syncwarp()
    shared[thread] = total
    cuda.syncwarp()
    total += shared[thread + 2]
    cuda.syncwarp()
    shared[thread] = total
    cuda.syncwarp()
    total += shared[thread + 1]
    cuda.syncwarp()
    shared[thread] = total


@cuda.jit
def reduce_last_warp(source, out):
    """Step 5: the last warp goes on alone, without barriers of the block. Grid as in step 4."""
    shared = cuda.shared.array(THREADS, np.int32)
    thread = cuda.threadIdx.x
    i = cuda.blockIdx.x * THREADS * 2 + thread
    total = source[i] if i < source.size else 0
    if i + THREADS < source.size:
        total += source[i + THREADS]
    shared[thread] = total
    cuda.syncthreads()
    stride = THREADS // 2
    while stride > 32:
        if thread < stride:
            shared[thread] += shared[thread + stride]
        cuda.syncthreads()
        stride //= 2
    if thread < 32:
        last_warp(shared, thread)
    if thread == 0:
        out[cuda.blockIdx.x] = shared[0]


@cuda.jit
def reduce_unrolled(source, out):
    """Step 6: no loop at all, for a block of 128. Grid as in step 4."""
    shared = cuda.shared.array(THREADS, np.int32)
    thread = cuda.threadIdx.x
    i = cuda.blockIdx.x * THREADS * 2 + thread
    total = source[i] if i < source.size else 0
    if i + THREADS < source.size:
        total += source[i + THREADS]
    shared[thread] = total
    cuda.syncthreads()
    if thread < 64:
        shared[thread] += shared[thread + 64]
    cuda.syncthreads()
    if thread < 32:
        last_warp(shared, thread)
    if thread == 0:
        out[cuda.blockIdx.x] = shared[0]


@cuda.jit
def reduce_many(source, out):
    """Step 7: few blocks, each thread adds many elements first. Any grid; `out` has one element a block."""
    shared = cuda.shared.array(THREADS, np.int32)
    thread = cuda.threadIdx.x
    total = 0
    i = cuda.grid(1)
    while i < source.size:
        total += source[i]
        i += cuda.gridsize(1)
    shared[thread] = total
    cuda.syncthreads()
    if thread < 64:
        shared[thread] += shared[thread + 64]
    cuda.syncthreads()
    if thread < 32:
        last_warp(shared, thread)
    if thread == 0:
        out[cuda.blockIdx.x] = shared[0]


STEPS = (
    reduce_interleaved,
    reduce_packed,
    reduce_sequential,
    reduce_first_add,
    reduce_last_warp,
    reduce_unrolled,
    reduce_many,
)


@cuda.jit
def sum_atomic(source, out):
    """One sum over the whole grid: a warp adds up by shuffles, its first lane adds to out[0] atomically."""
    total = 0
    i = cuda.grid(1)
    while i < source.size:
        total += source[i]
        i += cuda.gridsize(1)
    total += cuda.shfl_down_sync(0xFFFFFFFF, total, 16)
    total += cuda.shfl_down_sync(0xFFFFFFFF, total, 8)
    total += cuda.shfl_down_sync(0xFFFFFFFF, total, 4)
    total += cuda.shfl_down_sync(0xFFFFFFFF, total, 2)
    total += cuda.shfl_down_sync(0xFFFFFFFF, total, 1)
    if cuda.laneid == 0:
        cuda.atomic.add(out, 0, total)
