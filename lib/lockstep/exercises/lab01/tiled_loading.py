"""01.5, `conv2d_tiled`: kernels that load wrongly; their sentences are in `tiled_mistakes`.

Floor 4, room `exercises`.
"""

from __future__ import annotations

import numpy as np

from lockstep.exercises.lab01.tiled_wrong import HALO, RADIUS, TILE, store, weighted
from lockstep.simt import cuda


@cuda.jit
def own_pixel_only(image, weights, out):
    tile = cuda.shared.array((HALO, HALO), np.float32)
    x, y = cuda.grid(2)
    inside = y < out.shape[0] and x < out.shape[1]
    tile[cuda.threadIdx.y + RADIUS, cuda.threadIdx.x + RADIUS] = image[y, x] if inside else np.float32(0)
    cuda.syncthreads()
    if inside:
        out[y, x] = weighted(weights, tile, False)


@cuda.jit
def tile_without_halo(image, weights, out):
    tile = cuda.shared.array((TILE, TILE), np.float32)
    x, y = cuda.grid(2)
    inside = y < out.shape[0] and x < out.shape[1]
    tile[cuda.threadIdx.y, cuda.threadIdx.x] = image[y, x] if inside else np.float32(0)
    cuda.syncthreads()
    if inside:
        out[y, x] = weighted(weights, tile, False)


@cuda.jit
def swaps_x_and_y_while_loading(image, weights, out):
    tile = cuda.shared.array((HALO, HALO), np.float32)
    for i in range(cuda.threadIdx.y, HALO, TILE):
        for j in range(cuda.threadIdx.x, HALO, TILE):
            row = cuda.blockIdx.x * TILE + i - RADIUS
            column = cuda.blockIdx.y * TILE + j - RADIUS
            inside = row >= 0 and row < image.shape[0] and column >= 0 and column < image.shape[1]
            tile[i, j] = image[row, column] if inside else np.float32(0)
    cuda.syncthreads()
    store(weights, tile, out)


@cuda.jit
def loads_without_asking(image, weights, out):
    tile = cuda.shared.array((HALO, HALO), np.float32)
    for i in range(cuda.threadIdx.y, HALO, TILE):
        for j in range(cuda.threadIdx.x, HALO, TILE):
            tile[i, j] = image[cuda.blockIdx.y * TILE + i - RADIUS, cuda.blockIdx.x * TILE + j - RADIUS]
    cuda.syncthreads()
    store(weights, tile, out)


@cuda.jit
def every_thread_loads_all(image, weights, out):
    tile = cuda.shared.array((HALO, HALO), np.float32)
    if cuda.threadIdx.x == 0 and cuda.threadIdx.y == 0:
        for i in range(HALO):
            for j in range(HALO):
                row = cuda.blockIdx.y * TILE + i - RADIUS
                column = cuda.blockIdx.x * TILE + j - RADIUS
                inside = row >= 0 and row < image.shape[0] and column >= 0 and column < image.shape[1]
                tile[i, j] = image[row, column] if inside else np.float32(0)
    cuda.syncthreads()
    store(weights, tile, out)


@cuda.jit
def steps_of_one(image, weights, out):
    tile = cuda.shared.array((HALO, HALO), np.float32)
    for i in range(cuda.threadIdx.y, HALO, TILE):
        for j in range(cuda.threadIdx.x, HALO):
            row = cuda.blockIdx.y * TILE + i - RADIUS
            column = cuda.blockIdx.x * TILE + j - RADIUS
            inside = row >= 0 and row < image.shape[0] and column >= 0 and column < image.shape[1]
            tile[i, j] = image[row, column] if inside else np.float32(0)
    cuda.syncthreads()
    store(weights, tile, out)


@cuda.jit
def barrier_in_the_loop(image, weights, out):
    tile = cuda.shared.array((HALO, HALO), np.float32)
    for i in range(cuda.threadIdx.y, HALO, TILE):
        for j in range(cuda.threadIdx.x, HALO, TILE):
            row = cuda.blockIdx.y * TILE + i - RADIUS
            column = cuda.blockIdx.x * TILE + j - RADIUS
            inside = row >= 0 and row < image.shape[0] and column >= 0 and column < image.shape[1]
            tile[i, j] = image[row, column] if inside else np.float32(0)
            cuda.syncthreads()
    store(weights, tile, out)


@cuda.jit
def blocks_a_halo_apart(image, weights, out):
    tile = cuda.shared.array((HALO, HALO), np.float32)
    for i in range(cuda.threadIdx.y, HALO, TILE):
        for j in range(cuda.threadIdx.x, HALO, TILE):
            row = cuda.blockIdx.y * HALO + i - RADIUS
            column = cuda.blockIdx.x * HALO + j - RADIUS
            inside = row >= 0 and row < image.shape[0] and column >= 0 and column < image.shape[1]
            tile[i, j] = image[row, column] if inside else np.float32(0)
    cuda.syncthreads()
    store(weights, tile, out)


@cuda.jit
def repeats_the_border(image, weights, out):
    tile = cuda.shared.array((HALO, HALO), np.float32)
    for i in range(cuda.threadIdx.y, HALO, TILE):
        for j in range(cuda.threadIdx.x, HALO, TILE):
            row = min(max(cuda.blockIdx.y * TILE + i - RADIUS, 0), image.shape[0] - 1)
            column = min(max(cuda.blockIdx.x * TILE + j - RADIUS, 0), image.shape[1] - 1)
            tile[i, j] = image[row, column]
    cuda.syncthreads()
    store(weights, tile, out)


@cuda.jit
def halo_from_global_memory(image, weights, out):
    tile = cuda.shared.array((TILE, TILE), np.float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    x, y = cuda.grid(2)
    if x < image.shape[1] and y < image.shape[0]:
        tile[ty, tx] = image[y, x]
    cuda.syncthreads()
    if x < image.shape[1] and y < image.shape[0]:
        total = np.float32(0)
        for i in range(-RADIUS, RADIUS + 1):
            for j in range(-RADIUS, RADIUS + 1):
                row, column = y + i, x + j
                if 0 <= row and row < image.shape[0] and 0 <= column and column < image.shape[1]:
                    if 0 <= ty + i and ty + i < TILE and 0 <= tx + j and tx + j < TILE:
                        total += weights[i + RADIUS, j + RADIUS] * tile[ty + i, tx + j]
                    else:
                        total += weights[i + RADIUS, j + RADIUS] * image[row, column]
        out[y, x] = total


@cuda.jit
def loads_down_columns(image, weights, out):
    tile = cuda.shared.array((HALO, HALO), np.float32)
    for i in range(cuda.threadIdx.x, HALO, TILE):
        for j in range(cuda.threadIdx.y, HALO, TILE):
            row = cuda.blockIdx.y * TILE + i - RADIUS
            column = cuda.blockIdx.x * TILE + j - RADIUS
            inside = row >= 0 and row < image.shape[0] and column >= 0 and column < image.shape[1]
            tile[i, j] = image[row, column] if inside else np.float32(0)
    cuda.syncthreads()
    store(weights, tile, out)
