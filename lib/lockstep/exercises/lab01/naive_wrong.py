"""01.4 `conv2d_naive`: wrong solutions that students write; their sentences are in `naive_mistakes.py`.

Floor 4, room `exercises`.
"""

from __future__ import annotations

import numpy as np

from lockstep.simt import cuda


@cuda.jit(device=True)
def weighted_sum(image, weights, x, y, up, left):
    """The sum for pixel (x, y) with `up` and `left` for the radius of the filter."""
    total = np.float32(0)
    for i in range(weights.shape[0]):
        for j in range(weights.shape[1]):
            row, column = y + i - up, x + j - left
            if row >= 0 and row < image.shape[0] and column >= 0 and column < image.shape[1]:
                total += weights[i, j] * image[row, column]
    return total


@cuda.jit
def flips_the_filter(image, weights, out):
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        total = np.float32(0)
        for i in range(weights.shape[0]):
            for j in range(weights.shape[1]):
                row = y - i + weights.shape[0] // 2
                column = x - j + weights.shape[1] // 2
                if row >= 0 and row < image.shape[0] and column >= 0 and column < image.shape[1]:
                    total += weights[i, j] * image[row, column]
        out[y, x] = total


@cuda.jit
def no_guard(image, weights, out):
    x, y = cuda.grid(2)
    total = np.float32(0)
    for i in range(weights.shape[0]):
        for j in range(weights.shape[1]):
            row = y + i - weights.shape[0] // 2
            column = x + j - weights.shape[1] // 2
            if row >= 0 and row < image.shape[0] and column >= 0 and column < image.shape[1]:
                total += weights[i, j] * image[row, column]
    out[y, x] = total


@cuda.jit
def reads_past_the_border(image, weights, out):
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        total = np.float32(0)
        for i in range(weights.shape[0]):
            for j in range(weights.shape[1]):
                total += weights[i, j] * image[y + i - weights.shape[0] // 2, x + j - weights.shape[1] // 2]
        out[y, x] = total


@cuda.jit
def filter_begins_at_the_pixel(image, weights, out):
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        total = np.float32(0)
        for i in range(weights.shape[0]):
            for j in range(weights.shape[1]):
                if y + i < image.shape[0] and x + j < image.shape[1]:
                    total += weights[i, j] * image[y + i, x + j]
        out[y, x] = total


@cuda.jit
def leaves_the_border_out(image, weights, out):
    x, y = cuda.grid(2)
    up = weights.shape[0] // 2
    left = weights.shape[1] // 2
    if y >= up and y < out.shape[0] - up and x >= left and x < out.shape[1] - left:
        total = np.float32(0)
        for i in range(weights.shape[0]):
            for j in range(weights.shape[1]):
                total += weights[i, j] * image[y + i - up, x + j - left]
        out[y, x] = total


@cuda.jit
def repeats_the_border(image, weights, out):
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        total = np.float32(0)
        for i in range(weights.shape[0]):
            for j in range(weights.shape[1]):
                row = min(max(y + i - weights.shape[0] // 2, 0), image.shape[0] - 1)
                column = min(max(x + j - weights.shape[1] // 2, 0), image.shape[1] - 1)
                total += weights[i, j] * image[row, column]
        out[y, x] = total


@cuda.jit
def adds_to_what_was_there(image, weights, out):
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        for i in range(weights.shape[0]):
            for j in range(weights.shape[1]):
                row = y + i - weights.shape[0] // 2
                column = x + j - weights.shape[1] // 2
                if row >= 0 and row < image.shape[0] and column >= 0 and column < image.shape[1]:
                    out[y, x] += weights[i, j] * image[row, column]


@cuda.jit
def sums_up_in_global_memory(image, weights, out):
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = 0
        for i in range(weights.shape[0]):
            for j in range(weights.shape[1]):
                row = y + i - weights.shape[0] // 2
                column = x + j - weights.shape[1] // 2
                if row >= 0 and row < image.shape[0] and column >= 0 and column < image.shape[1]:
                    out[y, x] += weights[i, j] * image[row, column]


@cuda.jit
def one_radius_for_both(image, weights, out):
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = weighted_sum(image, weights, x, y, weights.shape[1] // 2, weights.shape[1] // 2)


@cuda.jit
def swaps_x_and_y(image, weights, out):
    y, x = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = weighted_sum(image, weights, x, y, weights.shape[0] // 2, weights.shape[1] // 2)


@cuda.jit
def leaves_out_the_last_offset(image, weights, out):
    x, y = cuda.grid(2)
    up, left = weights.shape[0] // 2, weights.shape[1] // 2
    if y < out.shape[0] and x < out.shape[1]:
        total = np.float32(0)
        for i in range(-up, up):
            for j in range(-left, left):
                if y + i >= 0 and y + i < image.shape[0] and x + j >= 0 and x + j < image.shape[1]:
                    total += weights[i + up, j + left] * image[y + i, x + j]
        out[y, x] = total


@cuda.jit
def weights_column_first(image, weights, out):
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        total = np.float32(0)
        for i in range(weights.shape[0]):
            for j in range(weights.shape[1]):
                row = y + i - weights.shape[0] // 2
                column = x + j - weights.shape[1] // 2
                if row >= 0 and row < image.shape[0] and column >= 0 and column < image.shape[1]:
                    total += weights[j, i] * image[row, column]
        out[y, x] = total


@cuda.jit
def offsets_for_indices_of_weights(image, weights, out):
    x, y = cuda.grid(2)
    up, left = weights.shape[0] // 2, weights.shape[1] // 2
    if y < out.shape[0] and x < out.shape[1]:
        total = np.float32(0)
        for i in range(-up, up + 1):
            for j in range(-left, left + 1):
                if y + i >= 0 and y + i < image.shape[0] and x + j >= 0 and x + j < image.shape[1]:
                    total += weights[i, j] * image[y + i, x + j]
        out[y, x] = total


@cuda.jit
def radius_of_the_rows_for_both(image, weights, out):
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = weighted_sum(image, weights, x, y, weights.shape[0] // 2, weights.shape[0] // 2)
