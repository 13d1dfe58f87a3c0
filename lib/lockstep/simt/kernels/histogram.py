"""Histograms of small integers: atomics in global memory, and in shared memory first. 1-D grid, any block."""

from __future__ import annotations

import numpy as np

from lockstep.simt import cuda

BINS = 16


@cuda.jit
def histogram_global(values, counts):
    """Every thread adds 1 to its bin in global memory; `counts` (int32) has to start at 0."""
    i = cuda.grid(1)
    if i < values.size:
        cuda.atomic.add(counts, values[i], 1)


@cuda.jit
def histogram_shared(values, counts):
    """Each block counts for itself, then adds its BINS bins to `counts`: fewer threads meet on one cell."""
    mine = cuda.shared.array(BINS, np.int32)
    thread = cuda.threadIdx.x
    for bin in range(thread, BINS, cuda.blockDim.x):
        mine[bin] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), values.size, cuda.gridsize(1)):
        cuda.atomic.add(mine, values[i], 1)
    cuda.syncthreads()
    for bin in range(thread, BINS, cuda.blockDim.x):
        cuda.atomic.add(counts, bin, mine[bin])
