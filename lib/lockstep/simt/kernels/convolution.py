"""Convolution as CNNs mean it (no flip), "same" size with zeros around, odd filters, float32.

One thread an output element. 2-D blocks are (TILE, TILE) for the tiled kernels; 1-D blocks are (SPAN,).
Source: Kirk and Hwu, "Programming Massively Parallel Processors", chapter on convolution.
"""

from __future__ import annotations

import numpy as np

from lockstep.simt import cuda

SPAN = 64
RADIUS = 2
REACH = SPAN + 2 * RADIUS
TILE = 16
HALO = TILE + 2 * RADIUS
WIDTH = 2 * RADIUS + 1
BLUR = (np.outer([1, 4, 6, 4, 1], [1, 4, 6, 4, 1]) / 256).astype(np.float32)  # binomial weights, exact in float32


@cuda.jit
def conv1d_naive(source, weights, out):
    """Any odd filter, read from global memory by every thread."""
    i = cuda.grid(1)
    if i < out.size:
        radius = weights.size // 2
        total = np.float32(0)
        for k in range(weights.size):
            at = i + k - radius
            if 0 <= at and at < source.size:
                total += weights[k] * source[at]
        out[i] = total


@cuda.jit
def conv1d_tiled(source, weights, out):
    """WIDTH weights; a block loads its SPAN elements and RADIUS on either side once."""
    tile = cuda.shared.array(REACH, np.float32)
    first = cuda.blockIdx.x * SPAN - RADIUS
    for j in range(cuda.threadIdx.x, REACH, SPAN):
        at = first + j
        tile[j] = source[at] if at >= 0 and at < source.size else np.float32(0)
    cuda.syncthreads()
    i = cuda.grid(1)
    if i < out.size:
        total = np.float32(0)
        for k in range(WIDTH):
            total += weights[k] * tile[cuda.threadIdx.x + k]
        out[i] = total


@cuda.jit
def conv2d_naive(image, weights, out):
    """Any odd filter: k*k reads of the image a thread."""
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        total = np.float32(0)
        for i in range(weights.shape[0]):
            for j in range(weights.shape[1]):
                row = y + i - weights.shape[0] // 2
                column = x + j - weights.shape[1] // 2
                if row >= 0 and row < image.shape[0] and column >= 0 and column < image.shape[1]:
                    total += weights[i, j] * image[row, column]
        out[y, x] = total


@cuda.jit(device=True)
def load_tile(image, tile, top, left):
    """The tile and its halo, HALO x HALO, by TILE x TILE threads; zeros outside the image."""
    for i in range(cuda.threadIdx.y, HALO, TILE):
        for j in range(cuda.threadIdx.x, HALO, TILE):
            row = top + i - RADIUS
            column = left + j - RADIUS
            inside = row >= 0 and row < image.shape[0] and column >= 0 and column < image.shape[1]
            tile[i, j] = image[row, column] if inside else np.float32(0)


@cuda.jit
def conv2d_tiled(image, weights, out):
    """A WIDTH x WIDTH filter over a tile with its halo in shared memory."""
    tile = cuda.shared.array((HALO, HALO), np.float32)
    load_tile(image, tile, cuda.blockIdx.y * TILE, cuda.blockIdx.x * TILE)
    cuda.syncthreads()
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        total = np.float32(0)
        for i in range(WIDTH):
            for j in range(WIDTH):
                total += weights[i, j] * tile[cuda.threadIdx.y + i, cuda.threadIdx.x + j]
        out[y, x] = total


@cuda.jit
def conv2d_constant(image, out):
    """The same with the filter BLUR in constant memory, which gives one word to a whole warp at once."""
    weights = cuda.const.array_like(BLUR)
    tile = cuda.shared.array((HALO, HALO), np.float32)
    load_tile(image, tile, cuda.blockIdx.y * TILE, cuda.blockIdx.x * TILE)
    cuda.syncthreads()
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        total = np.float32(0)
        for i in range(WIDTH):
            for j in range(WIDTH):
                total += weights[i, j] * tile[cuda.threadIdx.y + i, cuda.threadIdx.x + j]
        out[y, x] = total


@cuda.jit
def im2col(image, columns, size):
    """image (C, H, W) to columns (C * size * size, H' * W'), stride 1, no padding: convolution becomes one GEMM.

    3-D grid: x over output pixels, y over filter positions, z over channels.
    """
    pixel, position, channel = cuda.grid(3)
    width = image.shape[2] - size + 1
    if pixel < columns.shape[1] and position < size * size and channel < image.shape[0]:
        row = pixel // width + position // size
        column = pixel % width + position % size
        columns[channel * size * size + position, pixel] = image[channel, row, column]
