"""01.4 `conv2d_naive`: right ways, and the skeleton.

Floor 4, room `exercises`; the exercise is in `naive.py`.
"""

from __future__ import annotations

import numpy as np

from lockstep.simt import cuda


@cuda.jit
def conv2d_naive(image, weights, out):
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


@cuda.jit
def by_offsets_from_the_middle(image, weights, out):
    x, y = cuda.grid(2)
    height, width = image.shape
    if x >= width or y >= height:
        return
    up, left = weights.shape[0] // 2, weights.shape[1] // 2
    total = 0.0
    for dy in range(-up, up + 1):
        if 0 <= y + dy and y + dy < height:
            for dx in range(-left, left + 1):
                inside = 0 <= x + dx and x + dx < width
                total += weights[up + dy, left + dx] * image[y + dy, x + dx] if inside else 0.0
    out[y, x] = total


@cuda.jit
def by_cutting_the_filter(image, weights, out):
    x, y = cuda.grid(2)
    if x < out.shape[1]:
        if y < out.shape[0]:
            top = y - weights.shape[0] // 2
            left = x - weights.shape[1] // 2
            total = np.float32(0)
            for row in range(max(0, top), min(image.shape[0], top + weights.shape[0])):
                for column in range(max(0, left), min(image.shape[1], left + weights.shape[1])):
                    total += image[row, column] * weights[row - top, column - left]
            out[y, x] = total


@cuda.jit
def conv2d_naive_stub(image, weights, out):
    raise NotImplementedError("the weighted sum of the pixels around this thread's")
