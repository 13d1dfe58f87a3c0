"""01.3 `transpose`: rows in, rows out, and the turn in shared memory.

Floor 4, room `exercises`. What is counted: the sectors of the worst request, and bank conflicts.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.judge import all_of
from lockstep.exercises.lab01.launching import (
    Launched,
    at_most,
    exceeds,
    launch_case,
    leaves_like,
    same_output,
    unwritten,
)
from lockstep.exercises.observe import Observation
from lockstep.exercises.symptoms import raises
from lockstep.simt import cuda

SIDE = 32
WIDER = 33
SECTORS, WAYS = "sectors of the worst request", "ways of the worst bank conflict"


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


@cuda.jit
def writes_columns(source, out):
    x, y = cuda.grid(2)
    if y < source.shape[0] and x < source.shape[1]:
        out[x, y] = source[y, x]


@cuda.jit
def tile_for_nothing(source, out):
    tile = cuda.shared.array((SIDE, WIDER), np.float32)
    x, y = cuda.grid(2)
    if y < source.shape[0] and x < source.shape[1]:
        tile[cuda.threadIdx.y, cuda.threadIdx.x] = source[y, x]
    cuda.syncthreads()
    if y < source.shape[0] and x < source.shape[1]:
        out[x, y] = tile[cuda.threadIdx.y, cuda.threadIdx.x]


@cuda.jit
def no_padding(source, out):
    tile = cuda.shared.array((SIDE, SIDE), np.float32)
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
def no_barrier(source, out):
    tile = cuda.shared.array((SIDE, WIDER), np.float32)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    x, y = cuda.grid(2)
    if y < source.shape[0] and x < source.shape[1]:
        tile[ty, tx] = source[y, x]
    row = cuda.blockIdx.x * SIDE + ty
    column = cuda.blockIdx.y * SIDE + tx
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = tile[tx, ty]


@cuda.jit
def barrier_in_the_guard(source, out):
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
def block_stays_in_place(source, out):
    tile = cuda.shared.array((SIDE, WIDER), np.float32)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    x, y = cuda.grid(2)
    if y < source.shape[0] and x < source.shape[1]:
        tile[ty, tx] = source[y, x]
    else:
        tile[ty, tx] = np.float32(0)
    cuda.syncthreads()
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = tile[tx, ty]


@cuda.jit
def tile_is_not_turned(source, out):
    tile = cuda.shared.array((SIDE, WIDER), np.float32)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    x, y = cuda.grid(2)
    if y < source.shape[0] and x < source.shape[1]:
        tile[ty, tx] = source[y, x]
    else:
        tile[ty, tx] = np.float32(0)
    cuda.syncthreads()
    row = cuda.blockIdx.x * SIDE + ty
    column = cuda.blockIdx.y * SIDE + tx
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = tile[ty, tx]


@cuda.jit
def no_guard(source, out):
    tile = cuda.shared.array((SIDE, WIDER), np.float32)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    x, y = cuda.grid(2)
    tile[ty, tx] = source[y, x]
    cuda.syncthreads()
    out[cuda.blockIdx.x * SIDE + ty, cuda.blockIdx.y * SIDE + tx] = tile[tx, ty]


@cuda.jit
def second_guard_by_the_source(source, out):
    tile = cuda.shared.array((SIDE, WIDER), np.float32)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    x, y = cuda.grid(2)
    if y < source.shape[0] and x < source.shape[1]:
        tile[ty, tx] = source[y, x]
    cuda.syncthreads()
    if y < source.shape[0] and x < source.shape[1]:
        out[cuda.blockIdx.x * SIDE + ty, cuda.blockIdx.y * SIDE + tx] = tile[tx, ty]


@cuda.jit
def guards_the_write_by_the_source(source, out):
    tile = cuda.shared.array((SIDE, WIDER), np.float32)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    x, y = cuda.grid(2)
    if y < source.shape[0] and x < source.shape[1]:
        tile[ty, tx] = source[y, x]
    cuda.syncthreads()
    row = cuda.blockIdx.x * SIDE + ty
    column = cuda.blockIdx.y * SIDE + tx
    if row < source.shape[0] and column < source.shape[1]:
        out[row, column] = tile[tx, ty]


def no_tile(seen: Observation) -> bool:
    """Whether the kernel does without a barrier, so without a tile that threads share."""
    return seen.error is None and seen.counts["barriers a block"] == 0


def transpose_cases(rng: np.random.Generator) -> Iterator[Case]:
    wide, high = int(rng.integers(35, 60)), int(rng.integers(33, 45))
    for shape in ((32, 32), (64, 96), (high, wide)):  # the second: what goes wrong with whole tiles alone
        source = rng.standard_normal(shape).astype(np.float32)
        grid = -(-shape[1] // SIDE), -(-shape[0] // SIDE)
        yield launch_case(f"{shape[0]} x {shape[1]}", grid, (SIDE, SIDE), source, unwritten(shape[::-1]))


TRANSPOSE = Exercise(
    id="01.3",
    title="A transpose that stays coalesced",
    function="transpose",
    points=3,
    core=False,
    asks=(
        "A kernel. Write the transpose of `source` (height, width) into `out` (width, height), float32, with blocks of "
        "32 x 32 threads: each warp reads along a row and writes along a row, and no request to shared memory has a "
        "bank conflict."
    ),
    reference=transpose,
    also_right=(turns_while_loading, skewed_instead_of_padded),
    stub=transpose_stub,
    cases=transpose_cases,
    observe=Launched(),
    judge=all_of(
        same_output(),
        at_most(
            SECTORS,
            1.0,
            "The result is right, but a request of a warp moves {got} sectors where {want} would do: its lanes walk down "
            "a column of global memory, so nothing is coalesced.",
            more=2.0,
        ),
        at_most(
            WAYS,
            1.0,
            "The result is right and coalesced, but a request to shared memory takes {got} passes: so many lanes want "
            "different words of one bank.",
        ),
    ),
    hints=(
        "A tile of 32 x 32 numbers goes into shared memory as it is, row by row. The turn is in how it comes out.",
        "The block at (bx, by) of the grid reads the tile at row 32 by, column 32 bx, and writes the one at row 32 bx, "
        "column 32 by. Within a tile, threads with neighbouring `threadIdx.x` write neighbouring columns.",
        "A column of a 32 x 32 tile lies in a single bank, since 32 words is once around all banks. With one column more "
        "the next row begins one bank further: `cuda.shared.array((32, 33), np.float32)`.",
    ),
    mistakes=(
        Mistake(
            "walks down columns",
            writes_columns,
            "The lanes of a warp have neighbouring x, and in one of the two arrays x is the row: 32 lanes touch 32 rows, "
            "each in a sector of its own. Turn the tile in shared memory, and read and write along rows.",
            symptom=lambda case, seen, expected: no_tile(seen) and exceeds(SECTORS, 1.0, 2.0)(case, seen, expected),
        ),
        Mistake(
            "shared memory for nothing",
            tile_for_nothing,
            "The tile does not help: each thread gets back the number that it put there, and still writes down a column. "
            "Let it take another thread's number, so that neighbours write neighbours.",
            symptom=lambda case, seen, expected: not no_tile(seen) and exceeds(SECTORS, 1.0, 2.0)(case, seen, expected),
        ),
        Mistake(
            "32 x 32 tile without padding",
            no_padding,
            "A column of a 32 x 32 tile lies in one bank, since a row is exactly 32 words: its 32 words are served one "
            "after the other. Make the rows of the tile one word longer, which is the second number of its shape.",
            symptom=exceeds(WAYS, 8.0),
        ),
        Mistake(
            "missing barrier",
            no_barrier,
            "A thread takes from the tile what another one has put there, and nothing makes it wait. Between the writes to "
            "the tile and the reads belongs a barrier, cuda.syncthreads().",
            symptom=raises("RaceError", "of block"),
        ),
        Mistake(
            "barrier inside a branch",
            barrier_in_the_guard,
            "At the edge of the matrix some threads never reach the barrier, since it stands inside the guard or behind a "
            "`return`, and the others wait. Every thread of the block has to pass every barrier.",
            symptom=raises("BarrierError"),
        ),
        Mistake(
            "block stays in place",
            block_stays_in_place,
            "Each tile is turned, but is written where it was read. The tile in column bx and row by of the tiles belongs "
            "to row bx and column by: exchange the two in what you write.",
            symptom=leaves_like(block_stays_in_place),
        ),
        Mistake(
            "tile is not turned",
            tile_is_not_turned,
            "The tiles are in their new places, but none of them is turned: take tile[tx, ty] where tile[ty, tx] was put.",
            symptom=leaves_like(tile_is_not_turned),
        ),
        Mistake(
            "no guard",
            no_guard,
            "A thread past the edge touches the arrays. The grid is made of whole tiles: guard the read by the shape of "
            "`source`, the write by that of `out`.",
            symptom=raises("OutOfBounds"),
        ),
        Mistake(
            "second guard by the source",
            second_guard_by_the_source,
            "The second guard asks whether this thread had something to read. What counts now is whether the place that it "
            "writes to exists: another row and column, and the shape of `out`.",
            symptom=raises("OutOfBounds", " touches out["),
        ),
        Mistake(
            "write guarded by the shape of the source",
            guards_the_write_by_the_source,
            "The row and column that you write are compared with the shape of `source`. They belong to `out`, which is as "
            "wide as `source` is high.",
            symptom=leaves_like(guards_the_write_by_the_source),
        ),
    ),
)
