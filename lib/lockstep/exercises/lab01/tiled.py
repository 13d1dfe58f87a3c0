"""01.5 `conv2d_tiled`: a block loads its tile and the halo around it once, into shared memory.

Floor 4, room `exercises`. What is counted: reads of global memory a thread, writes to a pixel, sectors of the worst
request, bytes moved, idle lanes. The mistakes are in `tiled_mistakes`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import all_of
from lockstep.exercises.lab01.launching import IDLE, WRITES, Launched, at_most, launch_case, same_output, unwritten
from lockstep.exercises.lab01.tiled_mistakes import MORE_BYTES, MOVED, READS, SECTORS, TILED_MISTAKES
from lockstep.exercises.lab01.tiled_wrong import HALO, RADIUS, TILE, WIDTH
from lockstep.simt import cuda


@cuda.jit
def conv2d_tiled(image, weights, out):
    cells = cuda.shared.array((HALO, HALO), np.float32)
    for i in range(cuda.threadIdx.y, HALO, TILE):
        for j in range(cuda.threadIdx.x, HALO, TILE):
            row = cuda.blockIdx.y * TILE + i - RADIUS
            column = cuda.blockIdx.x * TILE + j - RADIUS
            inside = row >= 0 and row < image.shape[0] and column >= 0 and column < image.shape[1]
            cells[i, j] = image[row, column] if inside else np.float32(0)
    cuda.syncthreads()
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        total = np.float32(0)
        for i in range(WIDTH):
            for j in range(WIDTH):
                total += weights[i, j] * cells[cuda.threadIdx.y + i, cuda.threadIdx.x + j]
        out[y, x] = total


@cuda.jit
def by_numbering_the_cells(image, weights, out):
    tile = cuda.shared.array(400, np.float32)
    thread = cuda.threadIdx.y * 16 + cuda.threadIdx.x
    for cell in range(thread, 400, 256):
        row = cuda.blockIdx.y * 16 + cell // 20 - 2
        column = cuda.blockIdx.x * 16 + cell % 20 - 2
        tile[cell] = 0
        if 0 <= row and row < image.shape[0]:
            if 0 <= column and column < image.shape[1]:
                tile[cell] = image[row, column]
    cuda.syncthreads()
    x, y = cuda.grid(2)
    if x >= out.shape[1] or y >= out.shape[0]:
        return
    total = 0.0
    for k in range(25):
        total += tile[(cuda.threadIdx.y + k // 5) * 20 + cuda.threadIdx.x + k % 5] * weights[k // 5, k % 5]
    out[y, x] = total


@cuda.jit
def with_the_filter_in_shared_memory(image, weights, out):
    tile = cuda.shared.array((20, 48), np.float32)
    own = cuda.shared.array((5, 5), np.float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    x, y = cuda.grid(2)
    if tx < 5 and ty < 5:
        own[ty, tx] = weights[ty, tx]
    for down in range(2):
        for right in range(2):
            i = ty + 16 * down
            j = tx + 16 * right
            if i < 20 and j < 20:
                row = y + 16 * down - 2
                column = x + 16 * right - 2
                if row < 0 or row >= image.shape[0] or column < 0 or column >= image.shape[1]:
                    tile[i, j] = 0.0
                else:
                    tile[i, j] = image[row, column]
    cuda.syncthreads()
    total = np.float32(0)
    for i in range(5):
        for j in range(5):
            total += own[i, j] * tile[ty + i, tx + j]
    if x < out.shape[1] and y < out.shape[0]:
        out[y, x] = total


@cuda.jit
def conv2d_tiled_stub(image, weights, out):
    tile = cuda.shared.array((HALO, HALO), np.float32)  # noqa: F841
    raise NotImplementedError("load the tile and its halo, wait, then add up")


def tiled_cases(rng: np.random.Generator) -> Iterator[Case]:
    high, wide = int(rng.integers(18, 26)), int(rng.integers(19, 31))
    for shape in ((TILE, TILE), (TILE, 2 * TILE), (high, wide), (3 * TILE, 3 * TILE)):  # the last: a block amid others
        image, weights = (rng.standard_normal(one).astype(np.float32) for one in (shape, (WIDTH, WIDTH)))
        grid = -(-shape[1] // TILE), -(-shape[0] // TILE)
        name = f"{shape[0]} x {shape[1]} pixels"
        yield launch_case(name, grid, (TILE, TILE), image, weights, unwritten(shape))


CONV2D_TILED = Exercise(
    id="01.5",
    title="A convolution from shared memory",
    function="conv2d_tiled",
    points=4,
    asks=(
        "A kernel. The convolution of exercise 01.4 with a 5 x 5 filter and blocks of 16 x 16 threads: the block loads the "
        "20 x 20 pixels that it needs once into shared memory (0 outside the image), waits, adds up from there, and writes "
        "each pixel of `out` once."
    ),
    reference=conv2d_tiled,
    also_right=(by_numbering_the_cells, with_the_filter_in_shared_memory),
    stub=conv2d_tiled_stub,
    cases=tiled_cases,
    observe=Launched(),
    judge=all_of(
        same_output(),
        at_most(
            WRITES,
            1.0,
            "The result is right, but a pixel of `out` is written {got} times on average where once will do.",
        ),
        at_most(
            READS,
            1.25,
            "The result is right, but a thread reads {got} numbers from global memory on average where {want} are enough: "
            "each pixel should be loaded once by the block.",
        ),
        at_most(
            SECTORS,
            1.0,
            "The result is right, but a request of a warp moves {got} sectors where {want} would do: its lanes go down "
            "columns of an array in global memory.",
            more=4.0,
        ),
        at_most(
            MOVED,
            MORE_BYTES,
            "The result is right, but {got} bytes of global memory move where {want} would do: a part of the image is not "
            "in the tile, and is fetched again and again.",
        ),
        at_most(
            IDLE,
            1.0,
            "The result is right, but {got} of all lanes stand idle where {want} would do: few threads do the loading.",
            more=0.25,
        ),
    ),
    hints=(
        "256 threads have 400 pixels to load. A loop that begins at the thread's own index and goes on in steps of the "
        "block's side covers all of them: `for j in range(cuda.threadIdx.x, HALO, TILE)`.",
        "Cell [i, j] of the tile holds the pixel in row blockIdx.y * TILE + i - RADIUS. Some lie outside the image, and "
        "still need a 0.",
        "All threads pass the barrier, also those without a pixel of their own. Only after it comes the guard, and then "
        "`total += weights[i, j] * tile[cuda.threadIdx.y + i, cuda.threadIdx.x + j]`.",
    ),
    mistakes=TILED_MISTAKES,
)
