"""01.3 `transpose`: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; the exercise is in `transposing.py`.
"""

from __future__ import annotations

import numpy as np

from lockstep.exercises.exercise import Mistake
from lockstep.exercises.lab01.launching import exceeds, leaves_like
from lockstep.exercises.lab01.transposing_right import SIDE, WIDER
from lockstep.exercises.observe import Observation
from lockstep.exercises.symptoms import raises
from lockstep.simt import cuda

SECTORS, WAYS = "sectors of the worst request", "ways of the worst bank conflict"


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


MISTAKES = (
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
)
