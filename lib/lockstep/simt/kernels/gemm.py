"""Matrix product C = A B in float32, any shapes. Block (TILE, TILE), one thread an element of C."""

from __future__ import annotations

import numpy as np

from lockstep.simt import cuda

TILE = 16


@cuda.jit
def gemm_naive(a, b, c):
    """2K reads of global memory a thread."""
    x, y = cuda.grid(2)
    if y < c.shape[0] and x < c.shape[1]:
        total = np.float32(0)
        for k in range(a.shape[1]):
            total += a[y, k] * b[k, x]
        c[y, x] = total


@cuda.jit
def gemm_tiled(a, b, c):
    """Tiles of A and B in shared memory: TILE times fewer reads of global memory."""
    tile_a = cuda.shared.array((TILE, TILE), np.float32)
    tile_b = cuda.shared.array((TILE, TILE), np.float32)
    x, y = cuda.grid(2)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    total = np.float32(0)
    for first in range(0, a.shape[1], TILE):
        inside_a = y < a.shape[0] and first + tx < a.shape[1]
        inside_b = first + ty < b.shape[0] and x < b.shape[1]
        tile_a[ty, tx] = a[y, first + tx] if inside_a else np.float32(0)
        tile_b[ty, tx] = b[first + ty, x] if inside_b else np.float32(0)
        cuda.syncthreads()
        for k in range(TILE):
            total += tile_a[ty, k] * tile_b[k, tx]
        cuda.syncthreads()
    if y < c.shape[0] and x < c.shape[1]:
        c[y, x] = total
