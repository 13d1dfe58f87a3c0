"""01.5, `conv2d_tiled`: kernels that load rightly and go wrong elsewhere; their sentences are in `tiled_mistakes`.

Floor 4, room `exercises`; kernels that load wrongly are in `tiled_loading`.
"""

from __future__ import annotations

import numpy as np

from lockstep.simt import cuda

TILE = 16
RADIUS = 2
WIDTH = 2 * RADIUS + 1
HALO = TILE + 2 * RADIUS


@cuda.jit(device=True)
def load(image, tile, shift):
    for i in range(cuda.threadIdx.y, HALO, TILE):
        for j in range(cuda.threadIdx.x, HALO, TILE):
            row = cuda.blockIdx.y * TILE + i - shift
            column = cuda.blockIdx.x * TILE + j - shift
            inside = row >= 0 and row < image.shape[0] and column >= 0 and column < image.shape[1]
            tile[i, j] = image[row, column] if inside else np.float32(0)


@cuda.jit(device=True)
def weighted(weights, tile, flipped):
    total = np.float32(0)
    for i in range(WIDTH):
        for j in range(WIDTH):
            at = WIDTH - 1 - i if flipped else i
            across = WIDTH - 1 - j if flipped else j
            total += weights[at, across] * tile[cuda.threadIdx.y + i, cuda.threadIdx.x + j]
    return total


@cuda.jit(device=True)
def store(weights, tile, out):
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = weighted(weights, tile, False)


@cuda.jit
def no_barrier(image, weights, out):
    tile = cuda.shared.array((HALO, HALO), np.float32)
    load(image, tile, RADIUS)
    store(weights, tile, out)


@cuda.jit
def barrier_in_the_guard(image, weights, out):
    tile = cuda.shared.array((HALO, HALO), np.float32)
    load(image, tile, RADIUS)
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        cuda.syncthreads()
        out[y, x] = weighted(weights, tile, False)


@cuda.jit
def halo_off_by_one(image, weights, out):
    tile = cuda.shared.array((HALO, HALO), np.float32)
    load(image, tile, RADIUS - 1)
    cuda.syncthreads()
    store(weights, tile, out)


@cuda.jit
def no_halo_before(image, weights, out):
    tile = cuda.shared.array((HALO, HALO), np.float32)
    load(image, tile, 0)
    cuda.syncthreads()
    store(weights, tile, out)


@cuda.jit
def counts_from_the_pixel(image, weights, out):
    tile = cuda.shared.array((HALO, HALO), np.float32)
    load(image, tile, RADIUS)
    cuda.syncthreads()
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        total = np.float32(0)
        for i in range(WIDTH):
            for j in range(WIDTH):
                total += weights[i, j] * tile[cuda.threadIdx.y + i - RADIUS, cuda.threadIdx.x + j - RADIUS]
        out[y, x] = total


@cuda.jit
def from_global_memory(image, weights, out):
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        total = np.float32(0)
        for i in range(WIDTH):
            for j in range(WIDTH):
                row = y + i - RADIUS
                column = x + j - RADIUS
                if row >= 0 and row < image.shape[0] and column >= 0 and column < image.shape[1]:
                    total += weights[i, j] * image[row, column]
        out[y, x] = total


@cuda.jit
def flips_the_filter(image, weights, out):
    tile = cuda.shared.array((HALO, HALO), np.float32)
    load(image, tile, RADIUS)
    cuda.syncthreads()
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = weighted(weights, tile, True)


@cuda.jit
def no_guard(image, weights, out):
    tile = cuda.shared.array((HALO, HALO), np.float32)
    load(image, tile, RADIUS)
    cuda.syncthreads()
    x, y = cuda.grid(2)
    out[y, x] = weighted(weights, tile, False)


@cuda.jit
def leaves_before_the_barrier(image, weights, out):
    tile = cuda.shared.array((HALO, HALO), np.float32)
    x, y = cuda.grid(2)
    if y >= out.shape[0] or x >= out.shape[1]:
        return
    load(image, tile, RADIUS)
    cuda.syncthreads()
    out[y, x] = weighted(weights, tile, False)


@cuda.jit
def adds_the_radius(image, weights, out):
    tile = cuda.shared.array((HALO, HALO), np.float32)
    load(image, tile, RADIUS)
    cuda.syncthreads()
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        total = np.float32(0)
        for i in range(WIDTH):
            for j in range(WIDTH):
                total += weights[i, j] * tile[cuda.threadIdx.y + i + RADIUS, cuda.threadIdx.x + j + RADIUS]
        out[y, x] = total


@cuda.jit
def sums_up_in_global_memory(image, weights, out):
    tile = cuda.shared.array((HALO, HALO), np.float32)
    load(image, tile, RADIUS)
    cuda.syncthreads()
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = 0
        for i in range(WIDTH):
            for j in range(WIDTH):
                out[y, x] += weights[i, j] * tile[cuda.threadIdx.y + i, cuda.threadIdx.x + j]
