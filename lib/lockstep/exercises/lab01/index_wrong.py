"""01.1 `global_index`: wrong solutions that students write; their sentences are in `index_mistakes.py`.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from lockstep.simt import cuda


@cuda.jit
def swaps_x_and_y(out):
    y = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    x = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = y * out.shape[1] + x


@cuda.jit
def x_is_the_first_index(out):
    x = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    y = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    if y < out.shape[0] and x < out.shape[1]:
        out[x, y] = y * out.shape[1] + x


@cuda.jit
def no_guard(out):
    x = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    y = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    out[y, x] = y * out.shape[1] + x


@cuda.jit
def guards_one_axis(out):
    x = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    y = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    if x < out.shape[1]:
        out[y, x] = y * out.shape[1] + x


@cuda.jit
def guards_by_the_other_side(out):
    x = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    y = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    if x < out.shape[0] and y < out.shape[1]:
        out[y, x] = y * out.shape[1] + x


@cuda.jit
def forgets_the_block(out):
    x = cuda.threadIdx.x
    y = cuda.threadIdx.y
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = y * out.shape[1] + x


@cuda.jit
def grid_for_block(out):
    x = cuda.blockIdx.x * cuda.gridDim.x + cuda.threadIdx.x
    y = cuda.blockIdx.y * cuda.gridDim.y + cuda.threadIdx.y
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = y * out.shape[1] + x


@cuda.jit
def thread_times_block(out):
    x = cuda.threadIdx.x * cuda.blockDim.x + cuda.blockIdx.x
    y = cuda.threadIdx.y * cuda.blockDim.y + cuda.blockIdx.y
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = y * out.shape[1] + x


@cuda.jit
def rows_as_long_as_the_image_is_high(out):
    x = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    y = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = y * out.shape[0] + x


@cuda.jit
def width_first(out):
    x = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    y = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    width, height = out.shape
    if x < width and y < height:
        out[y, x] = y * width + x


@cuda.jit
def rows_as_long_as_the_launch(out):
    x = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    y = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = y * cuda.gridDim.x * cuda.blockDim.x + x


@cuda.jit
def counts_down_the_columns(out):
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = x * out.shape[0] + y


@cuda.jit
def clamps(out):
    x, y = cuda.grid(2)
    x = min(x, out.shape[1] - 1)
    y = min(y, out.shape[0] - 1)
    out[y, x] = y * out.shape[1] + x


@cuda.jit
def loops_over_the_image(out):
    for y in range(out.shape[0]):
        for x in range(out.shape[1]):
            out[y, x] = y * out.shape[1] + x


@cuda.jit
def two_pairs_of_brackets(out):
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        out[y][x] = y * out.shape[1] + x


@cuda.jit
def numbers_the_launch(out):
    x, y = cuda.grid(2)
    number = y * cuda.gridDim.x * cuda.blockDim.x + x
    if number < out.size:
        out[number // out.shape[1], number % out.shape[1]] = number


@cuda.jit
def one_thread_a_row(out):
    x, y = cuda.grid(2)
    if x == 0 and y < out.shape[0]:
        for column in range(out.shape[1]):
            out[y, column] = y * out.shape[1] + column
