"""Matrix transpose of float32: uncoalesced, through shared memory, and without bank conflicts.

Block (TILE, ROWS), one block a tile of TILE x TILE: each thread moves TILE / ROWS elements.
Source: Harris, "An Efficient Matrix Transpose in CUDA C/C++", NVIDIA technical blog, 2013.
"""

from __future__ import annotations

import numpy as np

from lockstep.simt import cuda

TILE = 32
PADDED = TILE + 1
ROWS = 8


@cuda.jit
def transpose_naive(source, out):
    """Reads rows and writes columns: each write of a warp touches 32 sectors."""
    x = cuda.blockIdx.x * TILE + cuda.threadIdx.x
    for row in range(cuda.threadIdx.y, TILE, ROWS):
        y = cuda.blockIdx.y * TILE + row
        if y < source.shape[0] and x < source.shape[1]:
            out[x, y] = source[y, x]


@cuda.jit
def transpose_tiled(source, out):
    """Reads and writes rows, turning in shared memory; a column of the tile lies in one bank."""
    tile = cuda.shared.array((TILE, TILE), np.float32)
    tx = cuda.threadIdx.x
    left = cuda.blockIdx.x * TILE
    top = cuda.blockIdx.y * TILE
    for row in range(cuda.threadIdx.y, TILE, ROWS):
        if top + row < source.shape[0] and left + tx < source.shape[1]:
            tile[row, tx] = source[top + row, left + tx]
    cuda.syncthreads()
    for row in range(cuda.threadIdx.y, TILE, ROWS):
        if left + row < source.shape[1] and top + tx < source.shape[0]:
            out[left + row, top + tx] = tile[tx, row]


@cuda.jit
def transpose_padded(source, out):
    """The same with one column more in the tile, so that a column lies in 32 banks."""
    tile = cuda.shared.array((TILE, PADDED), np.float32)
    tx = cuda.threadIdx.x
    left = cuda.blockIdx.x * TILE
    top = cuda.blockIdx.y * TILE
    for row in range(cuda.threadIdx.y, TILE, ROWS):
        if top + row < source.shape[0] and left + tx < source.shape[1]:
            tile[row, tx] = source[top + row, left + tx]
    cuda.syncthreads()
    for row in range(cuda.threadIdx.y, TILE, ROWS):
        if left + row < source.shape[1] and top + tx < source.shape[0]:
            out[left + row, top + tx] = tile[tx, row]
