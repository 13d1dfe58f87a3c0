"""What somebody who solved lab 01 for the first time wrote on the way, and the words that the verdict must hold.

Some were wrong and passed; the others once got a wrong cause, or none. `FOUND` lists (exercise, function, words); a word
with a leading "-" must not be there. `RIGHT` failed and is right.
"""

import math
from fractions import Fraction

import numpy as np

from lockstep.simt import cuda

TILE, RADIUS, WIDTH, HALO, THREADS = 16, 2, 5, 20, 128


# 01.1


@cuda.jit
def row_per_thread(out):
    x, y = cuda.grid(2)
    if x == 0 and y < out.shape[0]:
        for c in range(out.shape[1]):
            out[y, c] = y * out.shape[1] + c


@cuda.jit
def flat_number_of_the_launch(out):
    x, y = cuda.grid(2)
    n = y * (cuda.gridDim.x * cuda.blockDim.x) + x
    if n < out.size:
        out[n // out.shape[1], n % out.shape[1]] = n


@cuda.jit
def all_threads_write_everything(out):
    for y in range(out.shape[0]):
        for x in range(out.shape[1]):
            out[y, x] = y * out.shape[1] + x


@cuda.jit
def width_height_swapped(out):
    x = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    y = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    width, height = out.shape
    if x < width and y < height:
        out[y, x] = y * width + x


@cuda.jit
def row_length_of_the_launch(out):
    x = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    y = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    if x < out.shape[1] and y < out.shape[0]:
        out[y, x] = y * cuda.blockDim.x * cuda.gridDim.x + x


@cuda.jit
def clamps_instead_of_guarding(out):
    x, y = cuda.grid(2)
    x = min(x, out.shape[1] - 1)
    y = min(y, out.shape[0] - 1)
    out[y, x] = y * out.shape[1] + x


@cuda.jit
def thread_0_of_each_row(out):
    if cuda.grid(1) == 0:
        for y in range(out.shape[0]):
            for x in range(out.shape[1]):
                out[y, x] = y * out.shape[1] + x


@cuda.jit
def out_y_x_brackets(out):
    x, y = cuda.grid(2)
    if y < out.shape[0]:
        if x < out.shape[1]:
            out[y][x] = y * out.shape[1] + x


# 01.2


def returns_only_the_grid(shape, block):
    return (-(-shape[1] // block[0]), -(-shape[0] // block[1]))


def block_names_swapped(shape, block):
    h, w = shape
    by, bx = block
    gx = -(-w // bx)
    gy = -(-h // by)
    return (gx, gy), gx * gy * bx * by - h * w


def rounds(shape, block):
    h, w = shape
    bx, by = block
    gx = round(w / bx)
    gy = round(h / by)
    return (gx, gy), gx * gy * bx * by - h * w


def idle_without_corner(shape, block):
    h, w = shape
    bx, by = block
    gx = -(-w // bx)
    gy = -(-h // by)
    return (gx, gy), (gx * bx - w) * h + (gy * by - h) * w


def blocks_minus_pixels(shape, block):
    h, w = shape
    bx, by = block
    gx = -(-w // bx)
    gy = -(-h // by)
    return (gx, gy), gx * gy - h * w


def flat_three(shape, block):
    gx, gy = (-(-shape[1] // block[0]), -(-shape[0] // block[1]))
    return gx, gy, gx * gy * block[0] * block[1] - shape[0] * shape[1]


def share(shape, block):
    gx, gy = (-(-shape[1] // block[0]), -(-shape[0] // block[1]))
    n = gx * gy * block[0] * block[1]
    return (gx, gy), (n - shape[0] * shape[1]) / n


def numpy_grid(shape, block):
    g = (np.array(shape)[::-1] + np.array(block) - 1) // np.array(block)
    return g, np.prod(g * np.array(block)) - np.prod(shape)


# 01.3


@cuda.jit
def blocks_not_exchanged(source, out):
    tile = cuda.shared.array((32, 33), np.float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    if x < source.shape[1] and y < source.shape[0]:
        tile[ty, tx] = source[y, x]
    cuda.syncthreads()
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = tile[tx, ty]


@cuda.jit
def tile_not_turned(source, out):
    tile = cuda.shared.array((32, 33), np.float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    if x < source.shape[1] and y < source.shape[0]:
        tile[ty, tx] = source[y, x]
    cuda.syncthreads()
    ox = cuda.blockIdx.y * 32 + tx
    oy = cuda.blockIdx.x * 32 + ty
    if ox < out.shape[1] and oy < out.shape[0]:
        out[oy, ox] = tile[ty, tx]


@cuda.jit
def write_guard_with_source(source, out):
    tile = cuda.shared.array((32, 33), np.float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    if x < source.shape[1] and y < source.shape[0]:
        tile[ty, tx] = source[y, x]
    cuda.syncthreads()
    ox = cuda.blockIdx.y * 32 + tx
    oy = cuda.blockIdx.x * 32 + ty
    if ox < source.shape[1] and oy < source.shape[0]:
        out[oy, ox] = tile[tx, ty]


# 01.4


@cuda.jit
def weights_j_i(image, weights, out):
    x, y = cuda.grid(2)
    if x < out.shape[1] and y < out.shape[0]:
        s = 0.0
        for i in range(weights.shape[0]):
            for j in range(weights.shape[1]):
                yy = y + i - weights.shape[0] // 2
                xx = x + j - weights.shape[1] // 2
                if 0 <= yy < image.shape[0] and 0 <= xx < image.shape[1]:
                    s += image[yy, xx] * weights[j, i]
        out[y, x] = s


@cuda.jit
def negative_index_into_weights(image, weights, out):
    x, y = cuda.grid(2)
    if x < out.shape[1] and y < out.shape[0]:
        s = 0.0
        for i in range(-(weights.shape[0] // 2), weights.shape[0] // 2 + 1):
            for j in range(-(weights.shape[1] // 2), weights.shape[1] // 2 + 1):
                if 0 <= y + i < image.shape[0] and 0 <= x + j < image.shape[1]:
                    s += image[y + i, x + j] * weights[i, j]
        out[y, x] = s


@cuda.jit
def one_radius(image, weights, out):
    x, y = cuda.grid(2)
    r = weights.shape[0] // 2
    if x < out.shape[1] and y < out.shape[0]:
        s = np.float32(0)
        for i in range(weights.shape[0]):
            for j in range(weights.shape[1]):
                yy = y + i - r
                xx = x + j - r
                if 0 <= yy and yy < image.shape[0] and 0 <= xx and xx < image.shape[1]:
                    s += image[yy, xx] * weights[i, j]
        out[y, x] = s


@cuda.jit
def range_minus_r_r(image, weights, out):
    x, y = cuda.grid(2)
    if x < out.shape[1] and y < out.shape[0]:
        ry, rx = weights.shape[0] // 2, weights.shape[1] // 2
        s = 0.0
        for i in range(-ry, ry):
            for j in range(-rx, rx):
                if 0 <= y + i < image.shape[0] and 0 <= x + j < image.shape[1]:
                    s += image[y + i, x + j] * weights[i + ry, j + rx]
        out[y, x] = s


@cuda.jit
def sets_out_to_0_and_adds(image, weights, out):
    x, y = cuda.grid(2)
    if x < out.shape[1] and y < out.shape[0]:
        out[y, x] = 0
        i = 0
        while i < weights.shape[0]:
            j = 0
            while j < weights.shape[1]:
                yy = y + i - weights.shape[0] // 2
                xx = x + j - weights.shape[1] // 2
                out[y, x] += (
                    image[yy, xx] * weights[i, j] if 0 <= yy < image.shape[0] and 0 <= xx < image.shape[1] else 0
                )
                j += 1
            i += 1


# 01.5


@cuda.jit
def tile_without_halo_rest_from_global(image, weights, out):
    tile = cuda.shared.array((HALO, HALO), np.float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    x, y = cuda.grid(2)
    if x < out.shape[1] and y < out.shape[0]:
        tile[ty, tx] = image[y, x]
    else:
        tile[ty, tx] = 0
    cuda.syncthreads()
    if x < out.shape[1] and y < out.shape[0]:
        s = np.float32(0)
        for i in range(WIDTH):
            for j in range(WIDTH):
                a = ty + i - RADIUS
                b = tx + j - RADIUS
                yy = y + i - RADIUS
                xx = x + j - RADIUS
                if 0 <= a < TILE and 0 <= b < TILE:
                    s += tile[a, b] * weights[i, j]
                elif 0 <= yy < image.shape[0] and 0 <= xx < image.shape[1]:
                    s += image[yy, xx] * weights[i, j]
        out[y, x] = s


@cuda.jit
def loads_down_columns(image, weights, out):
    tile = cuda.shared.array((HALO, HALO), np.float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    x0 = cuda.blockIdx.x * TILE - RADIUS
    y0 = cuda.blockIdx.y * TILE - RADIUS
    for i in range(tx, HALO, TILE):
        for j in range(ty, HALO, TILE):
            yy = y0 + i
            xx = x0 + j
            if 0 <= yy < image.shape[0] and 0 <= xx < image.shape[1]:
                tile[i, j] = image[yy, xx]
            else:
                tile[i, j] = 0
    cuda.syncthreads()
    x, y = cuda.grid(2)
    if x < out.shape[1] and y < out.shape[0]:
        s = np.float32(0)
        for i in range(WIDTH):
            for j in range(WIDTH):
                s += tile[ty + i, tx + j] * weights[i, j]
        out[y, x] = s


@cuda.jit
def tile_plus_radius(image, weights, out):
    tile = cuda.shared.array((HALO, HALO), np.float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    x0 = cuda.blockIdx.x * TILE - RADIUS
    y0 = cuda.blockIdx.y * TILE - RADIUS
    for i in range(ty, HALO, TILE):
        for j in range(tx, HALO, TILE):
            yy = y0 + i
            xx = x0 + j
            if 0 <= yy < image.shape[0] and 0 <= xx < image.shape[1]:
                tile[i, j] = image[yy, xx]
            else:
                tile[i, j] = 0
    cuda.syncthreads()
    x, y = cuda.grid(2)
    if x < out.shape[1] and y < out.shape[0]:
        s = np.float32(0)
        for i in range(WIDTH):
            for j in range(WIDTH):
                s += tile[ty + i + RADIUS, tx + j + RADIUS] * weights[i, j]
        out[y, x] = s


@cuda.jit
def every_thread_loads_all(image, weights, out):
    tile = cuda.shared.array((HALO, HALO), np.float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    x0 = cuda.blockIdx.x * TILE - RADIUS
    y0 = cuda.blockIdx.y * TILE - RADIUS
    for i in range(HALO):
        for j in range(HALO):
            yy = y0 + i
            xx = x0 + j
            if 0 <= yy < image.shape[0] and 0 <= xx < image.shape[1]:
                tile[i, j] = image[yy, xx]
            else:
                tile[i, j] = 0
    cuda.syncthreads()
    x, y = cuda.grid(2)
    if x < out.shape[1] and y < out.shape[0]:
        s = np.float32(0)
        for i in range(WIDTH):
            for j in range(WIDTH):
                s += tile[ty + i, tx + j] * weights[i, j]
        out[y, x] = s


@cuda.jit
def loop_without_step(image, weights, out):
    tile = cuda.shared.array((HALO, HALO), np.float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    x0 = cuda.blockIdx.x * TILE - RADIUS
    y0 = cuda.blockIdx.y * TILE - RADIUS
    for i in range(ty, HALO):
        for j in range(tx, HALO):
            yy = y0 + i
            xx = x0 + j
            if 0 <= yy < image.shape[0] and 0 <= xx < image.shape[1]:
                tile[i, j] = image[yy, xx]
            else:
                tile[i, j] = 0
    cuda.syncthreads()
    x, y = cuda.grid(2)
    if x < out.shape[1] and y < out.shape[0]:
        s = np.float32(0)
        for i in range(WIDTH):
            for j in range(WIDTH):
                s += tile[ty + i, tx + j] * weights[i, j]
        out[y, x] = s


@cuda.jit
def barrier_in_the_loading_loop(image, weights, out):
    tile = cuda.shared.array((HALO, HALO), np.float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    x0 = cuda.blockIdx.x * TILE - RADIUS
    y0 = cuda.blockIdx.y * TILE - RADIUS
    for i in range(ty, HALO, TILE):
        for j in range(tx, HALO, TILE):
            yy = y0 + i
            xx = x0 + j
            if 0 <= yy < image.shape[0] and 0 <= xx < image.shape[1]:
                tile[i, j] = image[yy, xx]
            else:
                tile[i, j] = 0
            cuda.syncthreads()
    x, y = cuda.grid(2)
    if x < out.shape[1] and y < out.shape[0]:
        s = np.float32(0)
        for i in range(WIDTH):
            for j in range(WIDTH):
                s += tile[ty + i, tx + j] * weights[i, j]
        out[y, x] = s


@cuda.jit
def adds_into_out(image, weights, out):
    tile = cuda.shared.array((HALO, HALO), np.float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    x0 = cuda.blockIdx.x * TILE - RADIUS
    y0 = cuda.blockIdx.y * TILE - RADIUS
    for i in range(ty, HALO, TILE):
        for j in range(tx, HALO, TILE):
            yy = y0 + i
            xx = x0 + j
            if 0 <= yy < image.shape[0] and 0 <= xx < image.shape[1]:
                tile[i, j] = image[yy, xx]
            else:
                tile[i, j] = 0
    cuda.syncthreads()
    x, y = cuda.grid(2)
    if x < out.shape[1] and y < out.shape[0]:
        out[y, x] = 0
        for i in range(WIDTH):
            for j in range(WIDTH):
                out[y, x] += tile[ty + i, tx + j] * weights[i, j]


@cuda.jit
def blocks_step_by_halo(image, weights, out):
    tile = cuda.shared.array((HALO, HALO), np.float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    x0 = cuda.blockIdx.x * HALO - RADIUS
    y0 = cuda.blockIdx.y * HALO - RADIUS
    for i in range(ty, HALO, TILE):
        for j in range(tx, HALO, TILE):
            yy = y0 + i
            xx = x0 + j
            if 0 <= yy < image.shape[0] and 0 <= xx < image.shape[1]:
                tile[i, j] = image[yy, xx]
            else:
                tile[i, j] = 0
    cuda.syncthreads()
    x, y = cuda.grid(2)
    if x < out.shape[1] and y < out.shape[0]:
        s = np.float32(0)
        for i in range(WIDTH):
            for j in range(WIDTH):
                s += tile[ty + i, tx + j] * weights[i, j]
        out[y, x] = s


@cuda.jit
def repeats_border(image, weights, out):
    tile = cuda.shared.array((HALO, HALO), np.float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    x0 = cuda.blockIdx.x * TILE - RADIUS
    y0 = cuda.blockIdx.y * TILE - RADIUS
    for i in range(ty, HALO, TILE):
        for j in range(tx, HALO, TILE):
            yy = y0 + i
            xx = x0 + j
            tile[i, j] = image[min(max(yy, 0), image.shape[0] - 1), min(max(xx, 0), image.shape[1] - 1)]
    cuda.syncthreads()
    x, y = cuda.grid(2)
    if x < out.shape[1] and y < out.shape[0]:
        s = np.float32(0)
        for i in range(WIDTH):
            for j in range(WIDTH):
                s += tile[ty + i, tx + j] * weights[i, j]
        out[y, x] = s


# 01.6


@cuda.jit
def everyone_adds_all_from_shared(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    if i < source.size:
        shared[t] = source[i]
    else:
        shared[t] = 0
    cuda.syncthreads()
    s = 0
    for k in range(THREADS):
        s += shared[k]
    if t == 0:
        out[cuda.blockIdx.x] = s


@cuda.jit
def everyone_reads_all_from_global(source, out):
    t = cuda.threadIdx.x
    s = 0
    for k in range(THREADS):
        i = cuda.blockIdx.x * THREADS + k
        if i < source.size:
            s += source[i]
    if t == 0:
        out[cuda.blockIdx.x] = s


@cuda.jit
def twenty_barriers_a_level(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    if i < source.size:
        shared[t] = source[i]
    else:
        shared[t] = 0
    cuda.syncthreads()
    n = THREADS // 2
    while n > 0:
        for _ in range(20):
            cuda.syncthreads()
        if t < n:
            shared[t] += shared[t + n]
        cuda.syncthreads()
        n //= 2
    if t == 0:
        out[cuda.blockIdx.x] = shared[0]


@cuda.jit
def t_gets_2t_and_2t_plus_1(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    if i < source.size:
        shared[t] = source[i]
    else:
        shared[t] = 0
    cuda.syncthreads()
    n = THREADS // 2
    while n > 0:
        if t < n:
            shared[t] = shared[2 * t] + shared[2 * t + 1]
        cuda.syncthreads()
        n //= 2
    if t == 0:
        out[cuda.blockIdx.x] = shared[0]


@cuda.jit
def t_plus_1_at_each_level(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    if i < source.size:
        shared[t] = source[i]
    else:
        shared[t] = 0
    cuda.syncthreads()
    n = THREADS
    while n > 1:
        if t * 2 < n:
            shared[t] = shared[t] + shared[t + 1]
        cuda.syncthreads()
        n //= 2
    if t == 0:
        out[cuda.blockIdx.x] = shared[0]


@cuda.jit
def out_0(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    if i < source.size:
        shared[t] = source[i]
    else:
        shared[t] = 0
    cuda.syncthreads()
    n = THREADS // 2
    while n > 0:
        if t < n:
            shared[t] += shared[t + n]
        cuda.syncthreads()
        n //= 2
    if t == 0:
        out[0] = shared[0]


@cuda.jit
def atomics_on_out_not_zeroed(source, out):
    i = cuda.grid(1)
    if i < source.size:
        cuda.atomic.add(out, cuda.blockIdx.x, source[i])


@cuda.jit
def no_barrier_after_loading(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    if i < source.size:
        shared[t] = source[i]
    else:
        shared[t] = 0
    n = THREADS // 2
    while n > 0:
        if t < n:
            shared[t] += shared[t + n]
        cuda.syncthreads()
        n //= 2
    if t == 0:
        out[cuda.blockIdx.x] = shared[0]


@cuda.jit
def last_warp_without_barriers(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    if i < source.size:
        shared[t] = source[i]
    else:
        shared[t] = 0
    cuda.syncthreads()
    if t < 64:
        shared[t] += shared[t + 64]
    cuda.syncthreads()
    if t < 32:
        n = 32
        while n > 0:
            shared[t] += shared[t + n]
            n //= 2
    if t == 0:
        out[cuda.blockIdx.x] = shared[0]


@cuda.jit
def no_if(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    if i < source.size:
        shared[t] = source[i]
    else:
        shared[t] = 0
    cuda.syncthreads()
    n = THREADS // 2
    while n > 0:
        shared[t] += shared[t + n]
        cuda.syncthreads()
        n //= 2
    if t == 0:
        out[cuda.blockIdx.x] = shared[0]


@cuda.jit
def starts_at_128(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    if i < source.size:
        shared[t] = source[i]
    else:
        shared[t] = 0
    cuda.syncthreads()
    n = THREADS
    while n > 0:
        if t < n:
            shared[t] += shared[t + n]
        cuda.syncthreads()
        n //= 2
    if t == 0:
        out[cuda.blockIdx.x] = shared[0]


@cuda.jit
def guard_out_size(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    if i < out.size:
        shared[t] = source[i]
    else:
        shared[t] = 0
    cuda.syncthreads()
    n = THREADS // 2
    while n > 0:
        if t < n:
            shared[t] += shared[t + n]
        cuda.syncthreads()
        n //= 2
    if t == 0:
        out[cuda.blockIdx.x] = shared[0]


@cuda.jit
def i_is_thread_only(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    t = cuda.threadIdx.x
    i = t
    if i < source.size:
        shared[t] = source[i]
    else:
        shared[t] = 0
    cuda.syncthreads()
    n = THREADS // 2
    while n > 0:
        if t < n:
            shared[t] += shared[t + n]
        cuda.syncthreads()
        n //= 2
    if t == 0:
        out[cuda.blockIdx.x] = shared[0]


@cuda.jit
def strided_blocks(source, out):
    shared = cuda.shared.array(THREADS, np.int32)
    t = cuda.threadIdx.x
    i = cuda.blockIdx.x + t * cuda.gridDim.x
    if i < source.size:
        shared[t] = source[i]
    else:
        shared[t] = 0
    cuda.syncthreads()
    n = THREADS // 2
    while n > 0:
        if t < n:
            shared[t] += shared[t + n]
        cuda.syncthreads()
        n //= 2
    if t == 0:
        out[cuda.blockIdx.x] = shared[0]


# 01.7


def rounds_256_down(sm, threads, registers, shared_bytes):
    warps = -(-threads // 32)
    per = registers * 32 // 256 * 256 * warps
    b = min(sm.warps // warps, sm.blocks, sm.registers // per, sm.shared // (shared_bytes + 1024))
    return b, b * warps / sm.warps


def no_floor(sm, threads, registers, shared_bytes):
    warps = -(-threads // 32)
    per = -(-registers * 32 // 256) * 256 * warps
    b = min(sm.warps / warps, sm.blocks, sm.registers / per, sm.shared / (shared_bytes + 1024))
    return b, b * warps / sm.warps


def divides_by_zero(sm, threads, registers, shared_bytes):
    warps = threads // 32
    b = min(sm.warps // warps, sm.blocks, sm.registers // (registers * threads), sm.shared // shared_bytes)
    return b, b * warps / sm.warps


def fraction(sm, threads, registers, shared_bytes):
    warps = math.ceil(threads / 32)
    warp_regs = math.ceil(registers * 32 / 256) * 256
    by_reg = (sm.registers // warp_regs) // warps
    b = min(sm.warps // warps, sm.blocks, by_reg, sm.shared // (shared_bytes + 1024))
    return [b, Fraction(b * warps, sm.warps)]


FOUND = [
    ("01.1", row_per_thread, ["stands elsewhere", "let it write its own"]),
    ("01.1", flat_number_of_the_launch, ["stands elsewhere", "along the whole launch"]),
    ("01.1", all_threads_write_everything, ["loop over the image", "-Every block starts"]),
    ("01.1", width_height_swapped, ["height, width = out.shape"]),
    ("01.1", row_length_of_the_launch, ["as long as the launch"]),
    ("01.1", clamps_instead_of_guarding, ["sent back to the last pixel"]),
    ("01.1", thread_0_of_each_row, ["let it write its own"]),
    ("01.1", out_y_x_brackets, ["write out[y, x], not out[y][x]"]),
    ("01.2", returns_only_the_grid, ["the grid alone", "-np.ceil"]),
    ("01.2", block_names_swapped, ["names x first"]),
    ("01.2", rounds, ["Rounding to the nearest"]),
    ("01.2", idle_without_corner, ["the corner where both stick out"]),
    ("01.2", blocks_minus_pixels, ["subtract pixels from blocks"]),
    ("01.2", flat_three, ["a pair and a number"]),
    ("01.2", share, ["Their number is asked for"]),
    ("01.3", blocks_not_exchanged, ["written where it was read"]),
    ("01.3", tile_not_turned, ["none of them is turned"]),
    ("01.3", write_guard_with_source, ["as wide as `source` is high"]),
    ("01.4", weights_j_i, ["You leave the filter", "-Near the border"]),
    ("01.4", negative_index_into_weights, ["count from the middle", "-Near the border"]),
    ("01.4", one_radius, ["half of one side"]),
    ("01.4", range_minus_r_r, ["ends before r"]),
    ("01.4", sets_out_to_0_and_adds, ["written 4 times", "Collect the sum"]),
    ("01.5", tile_without_halo_rest_from_global, ["bytes of global memory move", "HALO x HALO"]),
    ("01.5", loads_down_columns, ["you give x to the rows"]),
    ("01.5", tile_plus_radius, ["has room for the halo", "-as large as the block"]),
    ("01.5", every_thread_loads_all, ["Several threads load the same cell", "-belongs a barrier"]),
    ("01.5", loop_without_step, ["in steps of TILE", "-belongs a barrier"]),
    ("01.5", barrier_in_the_loading_loop, ["behind the loop", "-out of the `if`"]),
    ("01.5", adds_into_out, ["Collect the sum in a variable", "-from the tile"]),
    ("01.5", blocks_step_by_halo, ["HALO pixels apart"]),
    ("01.5", repeats_border, ["nearest pixel of the border"]),
    ("01.6", everyone_adds_all_from_shared, ["instructions", "128 times the work"]),
    ("01.6", everyone_reads_all_from_global, ["128 numbers from global memory", "one number into shared memory"]),
    ("01.6", twenty_barriers_a_level, ["Seven levels need a barrier each"]),
    ("01.6", t_gets_2t_and_2t_plus_1, ["at the same level", "-beyond the first half"]),
    ("01.6", t_plus_1_at_each_level, ["at the same level", "-beyond the first half"]),
    ("01.6", out_0, ["a cell of its own", "-All threads of the block"]),
    ("01.6", atomics_on_out_not_zeroed, ["nobody has set to 0", "-one by one"]),
    ("01.6", no_barrier_after_loading, ["Between loading and the first level"]),
    ("01.6", last_warp_without_barriers, ["cuda.syncwarp()"]),
    ("01.6", no_if, ["Only threads below `stride` add"]),
    ("01.6", starts_at_128, ["stride 64"]),
    ("01.6", guard_out_size, ["source.size"]),
    ("01.6", i_is_thread_only, ["first 128 numbers"]),
    ("01.6", strided_blocks, ["in turns"]),
    ("01.7", rounds_256_down, ["the last unit in full"]),
    ("01.7", no_floor, ["no part of a block"]),
    ("01.7", divides_by_zero, ["no shared memory at all"]),
]

RIGHT = [("01.2", numpy_grid), ("01.7", fraction)]
