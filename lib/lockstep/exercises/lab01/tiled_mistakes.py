"""What goes wrong in 01.5, `conv2d_tiled`, with the sentences that students get.

Floor 4, room `exercises`, under `tiled`; the kernels are in `tiled_wrong` and `tiled_loading`.
"""

from __future__ import annotations

import re

from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.lab01 import tiled_loading as loading
from lockstep.exercises.lab01 import tiled_wrong as wrong
from lockstep.exercises.lab01.launching import IDLE, WRITES, exceeds, leaves_like, outside, touched
from lockstep.exercises.lab01.tiled_wrong import HALO
from lockstep.exercises.observe import Observation
from lockstep.exercises.symptoms import raises

READS, SECTORS, MOVED = "reads of global memory a thread", "sectors of the worst request", "bytes moved"
MORE_BYTES = 1.4  # times the reference; right ones move at most 1.1 times as many, and a halo that is not shared 1.6
PARAMETERS = ("image", "weights", "out")


def leaves_a_small_tile(case: Case, seen: Observation, expected: Observation) -> bool:
    """An index past the end of a tile, under any name, that is too small for block and halo."""
    found = touched(seen)
    small = found is not None and (min(found.shape) < HALO if len(found.shape) == 2 else found.shape[0] < HALO * HALO)
    return small and found.array not in PARAMETERS and min(found.index) >= 0


def leaves_the_tile(case: Case, seen: Observation, expected: Observation) -> bool:
    """An index past the end of a tile that is large enough."""
    found = touched(seen)
    return found is not None and found.array not in PARAMETERS and min(found.index) >= 0


def before_the_tile(case: Case, seen: Observation, expected: Observation) -> bool:
    """An index below 0 into the tile."""
    found = touched(seen)
    return found is not None and found.array not in PARAMETERS and min(found.index) < 0


def in_a_loop(case: Case, seen: Observation, expected: Observation) -> bool:
    """A barrier that some threads miss since their `for` or `while` has ended."""
    error = seen.error
    around = (
        re.search("the branch or loop at line (\\d+)", error.message)
        if raises("BarrierError")(case, seen, expected)
        else None
    )
    codes = dict(getattr(error, "quoted", ()))
    return around is not None and codes.get(int(around[1]), "").startswith(("for ", "while "))


TILED_MISTAKES = (
    Mistake(
        "missing barrier",
        wrong.no_barrier,
        "A thread adds up what its neighbours have loaded, and nothing makes it wait for them. Between loading and adding "
        "up belongs a barrier, cuda.syncthreads().",
        symptom=raises("RaceError", "and one writes"),
    ),
    Mistake(
        "loads cells twice",
        loading.steps_of_one,
        "Several threads load the same cell. Each of the two loops begins at the thread's own index and goes on in steps of "
        "TILE, so that a cell belongs to a single thread: `range(start, HALO, TILE)`.",
        symptom=raises("RaceError", "both write"),
    ),
    Mistake(
        "leaves before the barrier",
        wrong.leaves_before_the_barrier,
        "Threads past the edge return before the barrier, and the pixels that they should have loaded are missing. They "
        "have no pixel to write, but they have some to load: guard the write only.",
        symptom=raises("BarrierError", "return"),
    ),
    Mistake(
        "barrier inside the loop",
        loading.barrier_in_the_loop,
        "The barrier stands inside the loop that loads, and not all threads go through it equally often. Move it behind the "
        "loop: all load, then all wait once.",
        symptom=in_a_loop,
    ),
    Mistake(
        "barrier inside a branch",
        wrong.barrier_in_the_guard,
        "The barrier stands inside a branch that some threads of the block do not take, so the others wait for them. Every "
        "thread of the block has to pass every barrier: move it out of the `if`.",
        symptom=raises("BarrierError"),
    ),
    Mistake(
        "halo off by one",
        wrong.halo_off_by_one,
        "Your tile begins one pixel too far to the right and below. A filter of 5 reaches 2 pixels to each side, so the "
        "tile begins RADIUS pixels before the block's first one, in both directions.",
    ),
    Mistake(
        "no halo before the block",
        wrong.no_halo_before,
        "Your tile begins at the block's own first pixel, so what lies to the left and above is missing, and the picture "
        "moves. The tile begins RADIUS pixels earlier, in both directions.",
    ),
    Mistake(
        "leaves cells of the tile empty",
        loading.own_pixel_only,
        "Some of the tile's 400 cells are never written, and shared memory is not 0 by itself. Two causes are common: 256 "
        "threads that load one pixel each, where some have to load two or four; and cells outside the image, which need "
        "a 0 as well.",
        symptom=raises("UninitializedRead"),
    ),
    Mistake(
        "tile without a halo",
        loading.tile_without_halo,
        "The tile is as large as the block, and the filter reaches beyond it. The block needs RADIUS more pixels on every "
        "side: HALO x HALO.",
        symptom=leaves_a_small_tile,
    ),
    Mistake(
        "adds the radius",
        wrong.adds_the_radius,
        "Your tile has room for the halo, and you go past its end. Cell [0, 0] lies RADIUS before the block's first pixel "
        "already, so nothing is added: under weight [i, j] lies the cell that is i and j further than the thread's own index.",
        symptom=leaves_the_tile,
    ),
    Mistake(
        "counts from the pixel",
        wrong.counts_from_the_pixel,
        "You subtract the radius once more. Cell [0, 0] of the tile lies RADIUS before the block's first pixel already, so "
        "under weight [i, j] lies the cell that is i and j further than the thread's own index.",
        symptom=before_the_tile,
    ),
    Mistake(
        "swaps x and y while loading",
        loading.swaps_x_and_y_while_loading,
        "Blocks load each other's tiles: rows go with y, so the first row comes from blockIdx.y and the first column from "
        "blockIdx.x.",
    ),
    Mistake(
        "loads without asking",
        loading.loads_without_asking,
        "The tile of a block at the border reaches out of the image, and you load there. A negative index is not the last "
        "row on a GPU, it is somebody else's memory: put a 0 into the tile instead.",
        symptom=outside("image"),
    ),
    Mistake(
        "no guard",
        wrong.no_guard,
        "A thread past the edge writes. All threads load and wait, but only those with a pixel of their own write.",
        symptom=outside("out"),
    ),
    Mistake(
        "sums up in global memory",
        wrong.sums_up_in_global_memory,
        "Every `out[y, x] +=` reads and writes global memory. Collect the sum in a variable, `total = np.float32(0)`, and "
        "write it once.",
        symptom=exceeds(WRITES, 1.0),
    ),
    Mistake(
        "reads global memory again and again",
        wrong.from_global_memory,
        "You still read every pixel up to 25 times from global memory. Add up from the tile.",
        symptom=exceeds(READS, 1.5),
    ),
    Mistake(
        "halo from global memory",
        loading.halo_from_global_memory,
        "Pixels around the block come from global memory, each as often as it is needed. They belong into the tile as well: "
        "HALO x HALO cells, loaded once.",
        symptom=exceeds(MOVED, MORE_BYTES),
    ),
    Mistake(
        "down the columns",
        loading.loads_down_columns,
        "Neighbouring lanes have neighbouring threadIdx.x, and you give x to the rows. Rows go with y: let x be the last "
        "index wherever a thread reads or writes global memory.",
        symptom=exceeds(SECTORS, 1.0, 4.0),
    ),
    Mistake(
        "blocks a halo apart",
        loading.blocks_a_halo_apart,
        "Your tiles begin HALO pixels apart. Blocks stand TILE pixels apart, and their tiles overlap: the first row is "
        "blockIdx.y * TILE - RADIUS.",
        symptom=leaves_like(loading.blocks_a_halo_apart),
    ),
    Mistake(
        "repeats the border",
        loading.repeats_the_border,
        "Outside the image you load the nearest pixel of the border. Here such cells are 0.",
        symptom=leaves_like(loading.repeats_the_border),
    ),
    Mistake(
        "one thread loads everything",
        loading.every_thread_loads_all,
        "One thread loads all 400 cells while 255 wait, and no two of its reads share a request. Share the work out: each "
        "thread takes every 16th cell in both directions.",
        symptom=exceeds(IDLE, 1.0, 0.25),
    ),
    Mistake(
        "flips the filter",
        wrong.flips_the_filter,
        "Your filter is upside down and left to right. A CNN does not flip: weight [i, j] belongs to the cell i below and j "
        "to the right of the first one.",
    ),
)
