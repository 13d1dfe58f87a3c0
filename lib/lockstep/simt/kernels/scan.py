"""Prefix sums of int32 within blocks. Block (THREADS,), one stretch of THREADS elements a block.

Sources: Hillis and Steele 1986, "Data Parallel Algorithms"; Blelloch 1990, "Prefix Sums and Their Applications".
"""

from __future__ import annotations

import numpy as np

from lockstep.simt import cuda

THREADS = 64


@cuda.jit
def scan_inclusive(source, out):
    """Hillis and Steele: log2(n) rounds, every thread adds; reads and writes parted by a barrier."""
    shared = cuda.shared.array(THREADS, np.int32)
    thread = cuda.threadIdx.x
    i = cuda.grid(1)
    shared[thread] = source[i] if i < source.size else 0
    cuda.syncthreads()
    distance = 1
    while distance < THREADS:
        other = shared[thread - distance] if thread >= distance else 0
        cuda.syncthreads()
        shared[thread] += other
        cuda.syncthreads()
        distance *= 2
    if i < source.size:
        out[i] = shared[thread]


@cuda.jit
def scan_exclusive(source, out):
    """Blelloch: up the tree and down again, 2(n - 1) additions for n elements."""
    shared = cuda.shared.array(THREADS, np.int32)
    thread = cuda.threadIdx.x
    i = cuda.grid(1)
    shared[thread] = source[i] if i < source.size else 0
    distance = 1
    while distance < THREADS:
        cuda.syncthreads()
        at = 2 * distance * (thread + 1) - 1
        if at < THREADS:
            shared[at] += shared[at - distance]
        distance *= 2
    cuda.syncthreads()
    if thread == 0:
        shared[THREADS - 1] = 0
    while distance > 1:
        distance //= 2
        cuda.syncthreads()
        at = 2 * distance * (thread + 1) - 1
        if at < THREADS:
            left = shared[at - distance]
            shared[at - distance] = shared[at]
            shared[at] += left
    cuda.syncthreads()
    if i < source.size:
        out[i] = shared[thread]
