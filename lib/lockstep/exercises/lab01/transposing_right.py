"""01.3 `transpose`: right ways, and the skeleton.

Floor 4, room `exercises`; the exercise is in `transposing.py`.
"""

from __future__ import annotations

import numpy as np

from lockstep.simt import cuda

SIDE = 32
WIDER = 33


@cuda.jit
def transpose(source, out):
    tile = cuda.shared.array((SIDE, WIDER), np.float32)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    x, y = cuda.grid(2)
    if y < source.shape[0] and x < source.shape[1]:
        tile[ty, tx] = source[y, x]
    cuda.syncthreads()
    row = cuda.blockIdx.x * SIDE + ty
    column = cuda.blockIdx.y * SIDE + tx
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = tile[tx, ty]


@cuda.jit
def turns_while_loading(source, out):
    tile = cuda.shared.array((32, 33), np.float32)
    left = cuda.blockIdx.x * cuda.blockDim.x
    top = cuda.blockIdx.y * cuda.blockDim.y
    inside = top + cuda.threadIdx.y < source.shape[0] and left + cuda.threadIdx.x < source.shape[1]
    tile[cuda.threadIdx.x, cuda.threadIdx.y] = (
        source[top + cuda.threadIdx.y, left + cuda.threadIdx.x] if inside else np.float32(0)
    )
    cuda.syncthreads()
    if left + cuda.threadIdx.y < source.shape[1] and top + cuda.threadIdx.x < source.shape[0]:
        out[left + cuda.threadIdx.y, top + cuda.threadIdx.x] = tile[cuda.threadIdx.y, cuda.threadIdx.x]


@cuda.jit
def skewed_instead_of_padded(source, out):
    tile = cuda.shared.array(1024, np.float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    x = cuda.blockIdx.x * 32 + tx
    y = cuda.blockIdx.y * 32 + ty
    if x < source.shape[1] and y < source.shape[0]:
        tile[ty * 32 + (tx + ty) % 32] = source[y, x]
    cuda.syncthreads()
    x = cuda.blockIdx.y * 32 + tx
    y = cuda.blockIdx.x * 32 + ty
    if x < source.shape[0] and y < source.shape[1]:
        out[y, x] = tile[tx * 32 + (ty + tx) % 32]


@cuda.jit
def transpose_stub(source, out):
    raise NotImplementedError("a tile in shared memory: read rows, turn, write rows")
