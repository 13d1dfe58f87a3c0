"""Matrix transpose: uncoalesced, through shared memory, and without bank conflicts. Block (TILE, TILE), one a tile.

Source: Harris, "An Efficient Matrix Transpose in CUDA C/C++", NVIDIA technical blog, 2013.
"""

from __future__ import annotations

import numpy as np

from lockstep.simt import cuda

TILE = 32
PADDED = TILE + 1


@cuda.jit
def transpose_naive(source, out):
    """Reads rows and writes columns: each write of a warp touches 32 sectors."""
    x, y = cuda.grid(2)
    if y < source.shape[0] and x < source.shape[1]:
        out[x, y] = source[y, x]


@cuda.jit
def transpose_tiled(source, out):
    """Reads and writes rows, turning in shared memory; a column of the tile lies in one bank."""
    tile = cuda.shared.array((TILE, TILE), np.float32)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    left = cuda.blockIdx.x * TILE
    top = cuda.blockIdx.y * TILE
    if top + ty < source.shape[0] and left + tx < source.shape[1]:
        tile[ty, tx] = source[top + ty, left + tx]
    cuda.syncthreads()
    if left + ty < source.shape[1] and top + tx < source.shape[0]:
        out[left + ty, top + tx] = tile[tx, ty]


@cuda.jit
def transpose_padded(source, out):
    """The same with one column more in the tile, so that a column lies in 32 banks."""
    tile = cuda.shared.array((TILE, PADDED), np.float32)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    left = cuda.blockIdx.x * TILE
    top = cuda.blockIdx.y * TILE
    if top + ty < source.shape[0] and left + tx < source.shape[1]:
        tile[ty, tx] = source[top + ty, left + tx]
    cuda.syncthreads()
    if left + ty < source.shape[1] and top + tx < source.shape[0]:
        out[left + ty, top + tx] = tile[tx, ty]
