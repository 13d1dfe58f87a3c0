"""01.2 `launch_shape`: how many blocks cover an image, and how many of their threads have nothing to do.

Floor 4, room `exercises`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.judge import Finding, all_of, same_value
from lockstep.exercises.observe import Call, Observation
from lockstep.exercises.plain import short


def launch_shape(shape, block):
    height, width = shape
    across = (width + block[0] - 1) // block[0]
    down = (height + block[1] - 1) // block[1]
    idle = across * block[0] * down * block[1] - height * width
    return (across, down), idle


def by_negative_floor(shape, block):
    grid = tuple(-(-size // threads) for size, threads in zip(shape[::-1], block, strict=True))
    return grid, math.prod(grid) * math.prod(block) - math.prod(shape)


def by_counting_strips(shape, block):
    (bx, by), (h, w) = block, shape
    gx, gy = math.ceil(w / bx), math.ceil(h / by)
    right, below = gx * bx - w, gy * by - h
    return [gx, gy], right * h + below * w + right * below


def launch_shape_stub(shape, block):
    raise NotImplementedError("the grid, x first, and how many threads have no pixel")


def _with(grid, shape, block):
    return grid, grid[0] * grid[1] * block[0] * block[1] - shape[0] * shape[1]


def floor_for_ceil(shape, block):
    return _with((shape[1] // block[0], shape[0] // block[1]), shape, block)


def always_one_more(shape, block):
    return _with((shape[1] // block[0] + 1, shape[0] // block[1] + 1), shape, block)


def rounds_to_the_nearest(shape, block):
    return _with((round(shape[1] / block[0]), round(shape[0] / block[1])), shape, block)


def rows_along_x(shape, block):
    return _with((-(-shape[0] // block[0]), -(-shape[1] // block[1])), shape, block)


def grid_row_first(shape, block):
    (across, down), idle = launch_shape(shape, block)
    return (down, across), idle


def counts_threads_as_the_grid(shape, block):
    (across, down), idle = launch_shape(shape, block)
    return (across * block[0], down * block[1]), idle


def idle_along_the_edges(shape, block):
    (across, down), _ = launch_shape(shape, block)
    return (across, down), (across * block[0] - shape[1]) + (down * block[1] - shape[0])


def idle_of_one_block(shape, block):
    (across, down), _ = launch_shape(shape, block)
    return (across, down), (across * block[0] - shape[1]) * (down * block[1] - shape[0])


def all_threads(shape, block):
    (across, down), _ = launch_shape(shape, block)
    return (across, down), across * down * block[0] * block[1]


def divides_without_rounding(shape, block):
    return (shape[1] / block[0], shape[0] / block[1]), 0.0


def numpys_ceil(shape, block):
    grid = np.ceil(shape[1] / block[0]), np.ceil(shape[0] / block[1])
    return grid, grid[0] * grid[1] * block[0] * block[1] - shape[0] * shape[1]


def grid_alone(shape, block):
    return launch_shape(shape, block)[0]


def three_numbers(shape, block):
    (across, down), idle = launch_shape(shape, block)
    return across, down, idle


def block_row_first(shape, block):
    return launch_shape(shape, block[::-1])


def strips_without_the_corner(shape, block):
    (across, down), _ = launch_shape(shape, block)
    right, below = across * block[0] - shape[1], down * block[1] - shape[0]
    return (across, down), right * shape[0] + below * shape[1]


def blocks_minus_pixels(shape, block):
    (across, down), _ = launch_shape(shape, block)
    return (across, down), across * down - shape[0] * shape[1]


def share_for_number(shape, block):
    (across, down), idle = launch_shape(shape, block)
    return (across, down), idle / (across * down * block[0] * block[1])


def is_share(case: Case, seen: Observation, expected: Observation) -> bool:
    """The second value is not the number of idle threads but their share."""
    value = seen.value[1] if isinstance(seen.value, (tuple, list)) and len(seen.value) == 2 else None
    grid, idle = expected.value
    all_threads = math.prod(grid) * math.prod(case.args[1])
    return isinstance(value, (float, np.ndarray)) and np.ndim(value) == 0 and math.isclose(value, idle / all_threads)


def is_grid_alone(case: Case, seen: Observation, expected: Observation) -> bool:
    """Two numbers came, which are no pair and a number."""
    pair = seen.value if isinstance(seen.value, (tuple, list, np.ndarray)) and np.ndim(seen.value) == 1 else ()
    return len(pair) == 2 and all(np.ndim(one) == 0 and not isinstance(one, str) for one in pair)


def arrays_as_tuples(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """What `same_value` finds; an array of integers does for a launch as well as a tuple."""
    value = seen.value
    if isinstance(value, (tuple, list)) and value and isinstance(value[0], np.ndarray) and value[0].ndim == 1:
        value = (tuple(value[0].tolist()), *value[1:])
    return same_value()(case, replace(seen, value=value), expected)


def whole_blocks(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """A launch refuses a grid of floats, even of 3.0."""
    grid = seen.value[0] if isinstance(seen.value, (tuple, list)) and seen.value else ()
    grid = list(grid) if isinstance(grid, np.ndarray) and grid.ndim == 1 else grid
    for size in grid if isinstance(grid, (tuple, list)) else ():
        if isinstance(size, float) or (isinstance(size, (np.ndarray, np.generic)) and size.dtype.kind == "f"):
            want = short(expected.value)
            return Finding(
                f"The grid holds {short(size)}, which is no integer.", want, short(seen.value), ("floats", grid)
            )
    return None


def shape_cases(rng: np.random.Generator) -> Iterator[Case]:
    odd = int(rng.integers(3, 15)), int(rng.integers(17, 31))
    shapes = ((4, 6), (3, 2)), ((5, 7), (3, 2)), ((1, 1), (32, 8)), (odd, (16, 16)), ((64, 96), (32, 8))
    for shape, block in (*shapes, ((1, 1_000_001), (256, 1)), ((427, 640), (32, 8))):
        yield Case(f"shape={shape}, block={block}", (shape, block))


LAUNCH_SHAPE = Exercise(
    id="01.2",
    title="A grid that covers it",
    function="launch_shape",
    points=1,
    asks=(
        "Return `(grid, idle)`: the smallest grid of blocks of `block` = (x, y) threads that covers an image of `shape` = "
        "(height, width), as a pair (x, y) of integers, and the number of its threads that have no pixel."
    ),
    reference=launch_shape,
    also_right=(by_negative_floor, by_counting_strips),
    stub=launch_shape_stub,
    cases=shape_cases,
    observe=Call(),
    judge=all_of(whole_blocks, arrays_as_tuples),
    hints=(
        "How many blocks of 3 threads cover 7 pixels? The last one may stick out.",
        "A shape names rows first; grid and block name x first, and x runs along a row. Divide and round up, with "
        "integers: `(n + b - 1) // b`, or `math.ceil(n / b)`.",
        "All threads of the grid are gx * gy * bx * by; height * width of them have a pixel.",
    ),
    mistakes=(
        Mistake(
            "floor for ceil",
            floor_for_ceil,
            "You round down, so the pixels after the last whole block get no thread, and nothing tells you. Round up, and "
            "let the guard stop those that stick out.",
        ),
        Mistake(
            "always one block more",
            always_one_more,
            "Where blocks fit exactly you launch a row of blocks without a single pixel. Round up; do not add one.",
        ),
        Mistake(
            "rounds to the nearest",
            rounds_to_the_nearest,
            "Rounding to the nearest leaves pixels without a thread whenever less than half a block is left over. Round "
            "up.",
        ),
        Mistake(
            "height along x",
            rows_along_x,
            "Height and width are exchanged: shape is (height, width), and x, which comes first in block and grid, runs "
            "along the width.",
        ),
        Mistake(
            "grid row first",
            grid_row_first,
            "The two numbers of the grid are exchanged: a grid names x first, the number of blocks side by side.",
        ),
        Mistake(
            "counts threads",
            counts_threads_as_the_grid,
            "That is how many threads there are along x and y. A grid is counted in blocks.",
        ),
        Mistake(
            "adds the overhang of both sides",
            idle_along_the_edges,
            "You count the threads that stick out along one row and one column. Every row of threads sticks out that far: "
            "take all threads of the grid and subtract the pixels.",
        ),
        Mistake(
            "counts the corner only",
            idle_of_one_block,
            "You count the corner that sticks out on both sides. The strips along the right and the lower edge have no "
            "pixels either.",
        ),
        Mistake(
            "counts every thread",
            all_threads,
            "That is how many threads the grid has. Those with a pixel are not idle.",
        ),
        Mistake(
            "does not round",
            divides_without_rounding,
            "There is no part of a block: a grid is made of integers. Round up.",
        ),
        Mistake(
            "the grid alone",
            grid_alone,
            "Two things are to be returned, and you return the grid alone: `return (across, down), idle`.",
            symptom=is_grid_alone,
        ),
        Mistake(
            "three numbers",
            three_numbers,
            "The grid is a pair of its own, so what is returned is a pair and a number: `return (across, down), idle`.",
        ),
        Mistake(
            "y of the block first",
            block_row_first,
            "The two numbers of the block are exchanged: `block` names x first, as the grid does; only `shape` names rows "
            "first.",
        ),
        Mistake(
            "the corner forgotten",
            strips_without_the_corner,
            "You count the strips beside and below the image, and not the corner where both stick out. It is easier the "
            "other way: all threads of the grid less the pixels.",
        ),
        Mistake(
            "blocks less pixels",
            blocks_minus_pixels,
            "You subtract pixels from blocks. Each block has block[0] * block[1] threads: count those.",
        ),
        Mistake(
            "a share",
            share_for_number,
            "That is the share of idle threads. Their number is asked for.",
            symptom=is_share,
        ),
        Mistake(
            "a grid of floats",
            numpys_ceil,
            "np.ceil rounds up and still gives a float, which a launch refuses. math.ceil gives an integer, and so does //.",
        ),
    ),
)
