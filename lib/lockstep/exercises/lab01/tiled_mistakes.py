"""What goes wrong in 01.5, `conv2d_tiled`.

Floor 4, room `exercises`, under `tiled`.
"""

from __future__ import annotations

import re

import numpy as np

from lockstep.exercises.exercise import Mistake
from lockstep.exercises.lab01.launching import exceeds
from lockstep.exercises.observe import Observation
from lockstep.exercises.symptoms import raises
from lockstep.simt import cuda

TILE = 16
RADIUS = 2
WIDTH = 2 * RADIUS + 1
HALO = TILE + 2 * RADIUS
READS, IDLE = "reads of global memory a thread", "share of idle lanes"


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


@cuda.jit
def no_barrier(image, weights, out):
    tile = cuda.shared.array((HALO, HALO), np.float32)
    load(image, tile, RADIUS)
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = weighted(weights, tile, False)


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
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = weighted(weights, tile, False)


@cuda.jit
def no_halo_before(image, weights, out):
    tile = cuda.shared.array((HALO, HALO), np.float32)
    load(image, tile, 0)
    cuda.syncthreads()
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = weighted(weights, tile, False)


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
def swaps_x_and_y_while_loading(image, weights, out):
    tile = cuda.shared.array((HALO, HALO), np.float32)
    for i in range(cuda.threadIdx.y, HALO, TILE):
        for j in range(cuda.threadIdx.x, HALO, TILE):
            row = cuda.blockIdx.x * TILE + i - RADIUS
            column = cuda.blockIdx.y * TILE + j - RADIUS
            inside = row >= 0 and row < image.shape[0] and column >= 0 and column < image.shape[1]
            tile[i, j] = image[row, column] if inside else np.float32(0)
    cuda.syncthreads()
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = weighted(weights, tile, False)


@cuda.jit
def loads_without_asking(image, weights, out):
    tile = cuda.shared.array((HALO, HALO), np.float32)
    for i in range(cuda.threadIdx.y, HALO, TILE):
        for j in range(cuda.threadIdx.x, HALO, TILE):
            tile[i, j] = image[cuda.blockIdx.y * TILE + i - RADIUS, cuda.blockIdx.x * TILE + j - RADIUS]
    cuda.syncthreads()
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = weighted(weights, tile, False)


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
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = weighted(weights, tile, False)


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


def _leaves(seen: Observation) -> str:
    """The array that a thread leaves, "tile" for one in shared memory under any name; "" where none does.

    "before the tile" for an index below 0 there.
    """
    if seen.error is None or seen.error.type != "OutOfBounds":
        return ""
    named = next((name for name in ("image", "out", "weights") if f" touches {name}[" in seen.error.message), "")
    below = re.search(r" touches \w+\[[^\]]*-", seen.error.message) is not None
    return named or ("before the tile" if below else "tile")


TILED_MISTAKES = (
    Mistake(
        "missing barrier",
        no_barrier,
        "A thread adds up what its neighbours have loaded, and nothing makes it wait for them. Between loading and adding "
        "up belongs a barrier, cuda.syncthreads().",
        symptom=raises("RaceError", "of block"),
    ),
    Mistake(
        "leaves before the barrier",
        leaves_before_the_barrier,
        "Threads past the edge return before the barrier, and the pixels that they should have loaded are missing. They "
        "have no pixel to write, but they have some to load: guard the write only.",
        symptom=raises("BarrierError", "return"),
    ),
    Mistake(
        "barrier inside a branch",
        barrier_in_the_guard,
        "The barrier stands inside a branch that some threads of the block do not take, so the others wait for them. Every "
        "thread of the block has to pass every barrier: move it out of the `if`.",
        symptom=raises("BarrierError"),
    ),
    Mistake(
        "halo off by one",
        halo_off_by_one,
        "Your tile begins one pixel too far to the right and below. A filter of 5 reaches 2 pixels to each side, so the "
        "tile begins RADIUS pixels before the block's first one, in both directions.",
    ),
    Mistake(
        "no halo before the block",
        no_halo_before,
        "Your tile begins at the block's own first pixel, so what lies to the left and above is missing, and the picture "
        "moves. The tile begins RADIUS pixels earlier, in both directions.",
    ),
    Mistake(
        "leaves cells of the tile empty",
        own_pixel_only,
        "Some of the tile's 400 cells are never written, and shared memory is not 0 by itself. Two causes are common: 256 "
        "threads that load one pixel each, where some have to load two or four; and cells outside the image, which need "
        "a 0 as well.",
        symptom=raises("UninitializedRead"),
    ),
    Mistake(
        "tile without a halo",
        tile_without_halo,
        "The tile is as large as the block, and the filter reaches beyond it. The block needs RADIUS more pixels on every "
        "side: HALO x HALO.",
        symptom=lambda case, seen, expected: _leaves(seen) == "tile",
    ),
    Mistake(
        "counts from the pixel",
        counts_from_the_pixel,
        "You subtract the radius once more. Cell [0, 0] of the tile lies RADIUS before the block's first pixel already, so "
        "under weight [i, j] lies the cell that is i and j further than the thread's own index.",
        symptom=lambda case, seen, expected: _leaves(seen) == "before the tile",
    ),
    Mistake(
        "swaps x and y while loading",
        swaps_x_and_y_while_loading,
        "Blocks load each other's tiles: rows go with y, so the first row comes from blockIdx.y and the first column from "
        "blockIdx.x.",
    ),
    Mistake(
        "loads without asking",
        loads_without_asking,
        "The tile of a block at the border reaches out of the image, and you load there. A negative index is not the last "
        "row on a GPU, it is somebody else's memory: put a 0 into the tile instead.",
        symptom=lambda case, seen, expected: _leaves(seen) == "image",
    ),
    Mistake(
        "no guard",
        no_guard,
        "A thread past the edge writes. All threads load and wait, but only those with a pixel of their own write.",
        symptom=lambda case, seen, expected: _leaves(seen) == "out",
    ),
    Mistake(
        "reads global memory again and again",
        from_global_memory,
        "You still read every pixel up to 25 times from global memory. Add up from the tile.",
        symptom=exceeds(READS, 1.5),
    ),
    Mistake(
        "one thread loads everything",
        every_thread_loads_all,
        "One thread loads all 400 cells while 255 wait, and no two of its reads share a request. Share the work out: each "
        "thread takes every 16th cell in both directions.",
        symptom=exceeds(IDLE, 1.0, 0.25),
    ),
    Mistake(
        "flips the filter",
        flips_the_filter,
        "Your filter is upside down and left to right. A CNN does not flip: weight [i, j] belongs to the cell i below and j "
        "to the right of the first one.",
    ),
)
