# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 01 · One GPU thread
#
# **Time:** 90 minutes, core exercises included; those marked *stretch* come on top, and nothing builds on them.
#
# **You will be able to**
# - write a kernel in which each thread finds its own pixel, for an image of any size;
# - share a tile of an image between the threads of a block, without a race;
# - count what a kernel asks of the memory: sectors, bank conflicts, lanes that stand idle;
# - say what limits a kernel, and see it on a roofline.
#
# **You need:** lab 00, and from lab 03 the roofline, which says what limits a program: a GPU computes at most so many
# FLOP a second (floating-point operations), and moves at most so many bytes a second. No GPU is needed: your kernels
# run in a simulator that can be looked into. Where there is a GPU, the same source runs on it.
#
# The picture is a launch of 72 threads over an image of 55 pixels. A cell is a pixel, and holds the index of the thread
# that writes it. In this lab you write the function that does this.

# %% tags=["parameters"]
RANKS = 1  # a single GPU; the other labs have more
FAST = False  # True: smaller images, for a quick pass
SEED = 0

# %%
import numpy as np
import torch
from matplotlib.figure import Figure

from lockstep import viz
from lockstep.exercises import (
    answer,
    ask,
    check,
    diagnose,
    find,
    hint,
    mine,
    predict,
    progress,
    recall,
    reveal,
    solution,
    submit,
    whose,
)
from lockstep.simt import KernelFault, cuda, known_gpu, milliseconds, profile
from lockstep.simt.kernels import convolution, reduction
from lockstep.simt.occupancy import CAPABILITIES
from lockstep.trace.units import show_bytes, show_number, show_seconds

rng = np.random.default_rng(SEED)
ON_GPU = cuda.__name__.startswith("numba")
DEVICE = known_gpu() or "A100"  # whose published figures the model takes
print("kernels run on the GPU of this machine, and are counted in the simulator" if ON_GPU else
      "no GPU here: kernels run in the simulator, which counts them")  # fmt: skip
viz.threads(
    find("01.1").reference, (3, 2), (4, 3), np.zeros((5, 11), np.int64), title="Blocks and threads (the library's)"
)

# %% [markdown]
# Before you start, three questions from earlier labs. As always, `hint("01.1")` helps a little more each time you call
# it, and after three different attempts `solution("01.1")` shows an answer.

# %%
recall("01")

# %% [markdown]
# ## 1. Many slow cores (5 min)
#
# A CPU core is built for *latency*: it finishes one thing as early as it can. A GPU is built for *throughput*: it
# finishes as many things as it can in a second, and none of them early. The reason is power. The power that a chip
# turns into heat grows with its clock rate times the square of its voltage, and a higher clock needs a higher voltage.
# To keep the sum simple, take power as the *square* of the clock rate alone; the true law is less kind to fast cores.


# %% tags=["stable"]
def budget(cores, clock):
    return f"{cores:2} cores at clock {clock}: power {cores * clock**2:2}, work per second {cores * clock:2}"


print(budget(1, 4))
print(budget(16, 1))

# %% [markdown]
# At equal power, sixteen slow cores do four times the work of one fast core, if there is work for sixteen. In a
# convolution there is: every output pixel can be computed by itself.
#
# A GPU has many *streaming multiprocessors* (SM), 108 on an A100 (NVIDIA 2020), each of which holds up to 2,048 threads
# (NVIDIA, Programming Guide, compute capability 8.0). You write what
# *one* thread does, a **kernel**, and say how many threads there are: a **grid** of **blocks**, each of the same number
# of threads. All threads run the same lines. What tells them apart is their place:
#
# | name | what it holds, in x and y |
# |---|---|
# | `cuda.threadIdx` | the thread's index within its block |
# | `cuda.blockIdx` | the block's index within the grid |
# | `cuda.blockDim` | how many threads a block has |
# | `cuda.gridDim` | how many blocks the grid has |
#
# Here is a whole kernel, in one dimension. `double[5, 8](...)` launches 5 blocks of 8 threads, 40 threads for 37
# numbers. The last three find `i` past the end, and the `if`, called the **guard**, keeps them from writing there.


# %%
@cuda.jit
def double(numbers, out):
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i < out.size:
        out[i] = 2 * numbers[i]


numbers = np.arange(37)
doubled = np.zeros_like(numbers)
double[5, 8](numbers, doubled)
print(doubled[:4], "...", doubled[-2:])
viz.threads(double, 5, 8, numbers, doubled, title="37 numbers, 5 blocks of 8 threads")

# %% [markdown]
# ## 2. Which pixel is mine? (15 min)
#
# Images have two dimensions, and so may blocks and grids. x comes first and runs along a row; y counts rows. An array is
# indexed the other way round, row first: `out[y, x]`, and `out.shape` is (rows, columns).
#
# A kernel speaks a small part of Python: numbers, arrays indexed element by element, `if`, `while`, `for` over a
# `range`, and names of `cuda`, `math` and NumPy's types such as `np.float32`. No lists, no slices, no NumPy functions,
# no `print`. The same holds on a GPU.
#
# ### Exercise 01.1 · `global_index`
#
# Each thread writes the *number* of its pixel, row * width + column, into that pixel. The grid may be larger than the
# image in both directions. A kernel returns nothing: it leaves its results in an array. The checks begin with an image
# of a single row, which is the case of one dimension.


# %% tags=["exercise", "01.1"]
@cuda.jit
def global_index(out):
    """Write row * width + column into the pixel that this thread is responsible for."""
    ### BEGIN SOLUTION
    x = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    y = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = y * out.shape[1] + x
    ### END SOLUTION
    ### BEGIN STUB
    # raise NotImplementedError("write the pixel's number into the pixel that this thread is responsible for")
    ### END STUB


# %% tags=["check", "01.1"]
check("01.1", global_index)

# %% [markdown]
# Your own launch as a picture. Change the grid, the block or the size of the image (at most 400 cells can be drawn), and
# look where the threads go. A block's name stands where it begins to write.

# %%
my_index = mine("01.1")
pixels = np.zeros((6, 14), np.int64)
viz.threads(my_index, (4, 2), (4, 4), pixels, title=f"Who writes which pixel, {whose('01.1')} global_index")

# %% [markdown]
# From now on `cuda.grid(1)` may stand for the long line of `double`, and `cuda.grid(2)` for the pair (x, y).
#
# ### Exercise 01.2 · `launch_shape`
#
# How many blocks does it take? Enough to cover the image, and no more. This one is plain Python, run before a launch:
# `launch_shape(shape, block)` returns the grid as a pair (x, y), and how many threads of it have no pixel, so that only
# the guard stops them.


# %% tags=["exercise", "01.2"]
def launch_shape(shape, block):
    """Return ((blocks along x, blocks along y), threads without a pixel) for an image of shape (height, width)."""
    ### BEGIN SOLUTION
    height, width = shape
    across = (width + block[0] - 1) // block[0]
    down = (height + block[1] - 1) // block[1]
    return (across, down), across * block[0] * down * block[1] - height * width
    ### END SOLUTION
    ### BEGIN STUB
    # raise NotImplementedError("the grid, x first, and how many threads have no pixel")
    ### END STUB


# %% tags=["check", "01.2"]
check("01.2", launch_shape)

# %%
my_shape = mine("01.2")


def grid_for(shape, block):
    """The grid alone, for the launches of this lab."""
    return tuple(my_shape(shape, block)[0])


for shape in ((427, 640), (32, 32), (1, 1_000_001)):
    for block in ((32, 8), (16, 16), (256, 1)):
        grid, idle = my_shape(shape, block)
        share = idle / (grid[0] * grid[1] * block[0] * block[1])
        print(f"image {shape!s:>14}, block {block!s:>9}: grid {grid!s:>12}, {idle:7,} threads idle ({share:.1%})")

# %% [markdown]
# ## 3. Warps run in lockstep (8 min)
#
# Threads are not run one by one. 32 neighbours of a block are a **warp**, and its *lanes* execute the same line
# together. Where an `if` sends lanes of one warp both ways, the warp **diverges**: it runs one side with the other
# lanes switched off, then the other side. Lanes that stand by do nothing, and take as long.
#
# `profile(kernel, grid, block, ...)` runs a launch in the simulator and counts. Two kernels compute the same kind of
# thing; in the first every second *thread* goes another way, in the second every second *warp*.


# %%
@cuda.jit
def threads_differ(out):
    index = cuda.grid(1)
    if index % 2 == 0:
        out[index] = 3 * index
    else:
        out[index] = index + 7


@cuda.jit
def warps_differ(out):
    index = cuda.grid(1)
    if index // 32 % 2 == 0:
        out[index] = 3 * index
    else:
        out[index] = index + 7


for kernel in (threads_differ, warps_differ):
    report = profile(kernel, 8, 128, np.zeros(1024, np.int64))
    print(
        f"{kernel.__name__:15} {report.divergent_branches:3} divergent branches, {report.idle_share:.0%} of lanes idle, "
        f"{report.issued:,} instructions issued"
    )

# %% [markdown]
# Not twice the work, as you may have expected: only the two lines inside the branches are issued for both sides. The
# index and the condition are issued once, and they count as well. The longer the branches, the nearer it comes to twice.
#
# Predict: `double` runs on 1,000,001 numbers in blocks of 256, so 31,256 warps pass its guard. At how many of them do
# the lanes of a warp part?

# %% tags=["predict"]
predict("01.p1", None)

# %%
MANY = 100_001 if FAST else 1_000_001
numbers = np.arange(MANY, dtype=np.int32)
guarded = profile(double, -(-MANY // 256), 256, numbers, np.zeros_like(numbers))
print(guarded)

# %%
reveal("01.p1", guarded.divergent_branches)

# %% [markdown]
# A guard costs next to nothing. Only the warp that straddles the end has lanes on both sides; those before it go in
# together, those behind it leave together. It is not `if` that costs, but lanes of *one warp* that disagree.
#
# The report is worth a minute, you will read more of them. `idle` is the share of lanes that stand by at a line,
# `parted` how often a warp diverged there. `sectors`, what one access of a warp costs, comes next, and `ways` in section 5.
# `atomic` stays empty here: an *atomic* operation, `cuda.atomic.add(array, index, value)`, lets many threads add to one
# cell, one after the other. `0 FLOP a byte` is right too: the numbers are integers, and FLOP counts floating point.

# %% [markdown]
# ## 4. Memory comes in sectors (7 min)
#
# When a warp reads, its 32 lanes hand in 32 addresses as one **request**. Memory answers in **sectors** of 32 bytes,
# whole ones. If the lanes want neighbouring numbers, a request of 32 float32 takes 4 sectors, and every byte of them is
# used: the access is **coalesced**. Two ways to copy a matrix, by rows and by columns:


# %%
@cuda.jit
def copy_by_rows(source, out):
    column, row = cuda.grid(2)
    if row < source.shape[0] and column < source.shape[1]:
        out[row, column] = source[row, column]


@cuda.jit
def copy_by_columns(source, out):
    row, column = cuda.grid(2)
    if row < source.shape[0] and column < source.shape[1]:
        out[row, column] = source[row, column]


matrix = rng.standard_normal((64, 64)).astype(np.float32)
viz.warp(copy_by_rows, (2, 8), (32, 8), matrix, np.zeros_like(matrix), title="Copy by rows: one warp reads")

# %% [markdown]
# Both give the same matrix. In the second, x counts rows, so neighbouring lanes want numbers that lie a whole row apart.
#
# Predict: how many times as many bytes does the second one move?

# %% tags=["predict"]
predict("01.p2", None)

# %%
by_rows, by_columns = (
    profile(kernel, grid, block, matrix, np.zeros_like(matrix))
    for kernel, grid, block in ((copy_by_rows, (2, 8), (32, 8)), (copy_by_columns, (2, 8), (32, 8)))
)
for name, report in (("by rows", by_rows), ("by columns", by_columns)):
    print(
        f"{name:11} {report.sectors_per_request:4.0f} sectors a request, {show_bytes(report.bytes_requested)} requested, "
        f"{show_bytes(report.bytes_moved)} moved"
    )

# %%
reveal("01.p2", by_columns.bytes_moved / by_rows.bytes_moved)

# %%
viz.warp(copy_by_columns, (2, 8), (32, 8), matrix, np.zeros_like(matrix), title="Copy by columns: one warp reads")

# %% [markdown]
# Each lane takes 4 bytes out of a sector of its own. The counters know no caches: on a GPU some of the rest may be used
# by the next request before it is thrown out. The rule is the same: **neighbouring lanes, neighbouring addresses**. x is
# the fastest index of the threads and belongs to the last index of the array.

# %% [markdown]
# ## 5. Shared memory, barriers, banks (20 min)
#
# The threads of a block can share memory that lies in the SM itself, 48 KiB of it without further ado (NVIDIA,
# Programming Guide). It is declared inside the kernel, `cuda.shared.array(64, np.float32)`, and holds nothing in
# particular at the start. Its shape is made of numbers, or of names that hold numbers outside the kernel: compute
# `HALO = TILE + 2` before, not in the brackets. What one thread writes there, another one can read; but warps run in no
# particular order. In the next kernel each thread takes its neighbour's number.


# %%
@cuda.jit
def from_the_neighbour(source, out):
    row = cuda.shared.array(64, np.float32)
    i = cuda.threadIdx.x
    row[i] = source[i]
    out[i] = row[(i + 1) % 64]


try:
    profile(from_the_neighbour, 1, 64, matrix[0], np.zeros(64, np.float32))
except KernelFault as fault:
    print(f"{type(fault).__name__}: {fault}")

# %% [markdown]
# That is a **race**: the answer depends on who comes first, and a GPU would not tell you. A **barrier**,
# `cuda.syncthreads()`, makes every thread of the block wait until all have arrived. *Every* thread: a barrier that only
# part of a block reaches is as bad as none.


# %%
@cuda.jit
def waits_alone(source, out):
    row = cuda.shared.array(64, np.float32)
    i = cuda.threadIdx.x
    row[i] = source[i]
    if i < 40:
        cuda.syncthreads()
        out[i] = row[(i + 1) % 64]


try:
    profile(waits_alone, 1, 64, matrix[0], np.zeros(64, np.float32))
except KernelFault as fault:
    print(f"{type(fault).__name__}: {fault}")

# %% [markdown]
# The simulator looks for such faults in every run, and so do the checks. On a GPU the first kernel gives wrong numbers
# now and then, and the second may hang.
#
# **Loading with a margin.** Here is the pattern that you will need in two dimensions, in one. Each thread adds up its
# number and its two neighbours. A block of 64 threads needs 66 numbers, its own and one on each side, so it loads them
# together: thread 0 takes cells 0 and 64, thread 1 cells 1 and 65, the others one each. That is what
# `range(thread, 66, 64)` says: from the thread's own index on, in steps of the block, as far as there are any. Cell 0
# lies one *before* the block's first number. What lies outside gets a 0, and all threads pass the barrier.


# %%
@cuda.jit
def sum_of_three(source, out):
    row = cuda.shared.array(66, np.float32)
    for cell in range(cuda.threadIdx.x, 66, 64):
        at = cuda.blockIdx.x * 64 + cell - 1
        row[cell] = source[at] if at >= 0 and at < source.size else np.float32(0)
    cuda.syncthreads()
    n = cuda.grid(1)
    if n < out.size:
        three = np.float32(0)  # a variable of the thread, kept in a register: a fast place of its own
        for k in range(3):
            three += row[cuda.threadIdx.x + k]
        out[n] = three


line, summed = matrix.reshape(-1)[:150].copy(), np.zeros(150, np.float32)
sum_of_three[3, 64](line, summed)
print("as NumPy does it:", np.allclose(summed, np.convolve(line, np.ones(3), mode="same"), atol=1e-5))
loaded = profile(sum_of_three, 3, 64, line, summed)
print(f"{loaded.reads_per_thread:.2f} reads of global memory a thread, instead of 3")

# %% [markdown]
# **Banks.** Shared memory is served by 32 *banks*, each of which hands out one word of 4 bytes at a time. Word 0 lies in
# bank 0, word 1 in bank 1, and word 32 in bank 0 again. Lanes that want *different* words of one bank have to take
# turns: a **bank conflict**. If the worst bank of a request has to hand out 8 words, the request takes 8 *passes*, and the
# conflict is 8-way; `bank ways` in a table is the worst of a kernel, and 1 means no conflict. Lanes that want the same
# word share it. The figure shows a warp that reads down a column of a tile of 32 x 32 numbers: `step=3`, the third of
# its different requests, after those that fill the tile.


# %%
@cuda.jit
def down_a_column(source, out):
    tile = cuda.shared.array((32, 32), np.float32)
    lane = cuda.threadIdx.x
    for row in range(32):
        tile[row, lane] = source[row, lane]
    cuda.syncthreads()
    out[lane] = tile[lane, 5]


viz.warp(down_a_column, 1, 32, matrix, np.zeros(32, np.float32), step=3, title="A column of a 32 x 32 tile")

# %% [markdown]
# ### Exercise 01.3 · `transpose` (stretch)
#
# A transpose has to read rows and write columns, so one side is not coalesced, whatever you do in global memory. The
# way out: a block reads a tile of 32 x 32 by rows, puts it into shared memory, waits, and takes it out turned, so that
# it *writes* rows as well. Blocks have 32 x 32 threads; the grid covers `source` (height, width), and `out` has shape
# (width, height). The check counts: no request of more sectors than needed, and no bank conflict.


# %% tags=["exercise", "01.3"]
@cuda.jit
def transpose(source, out):
    """Write the transpose of `source` into `out`, a tile of 32 x 32 for each block."""
    ### BEGIN SOLUTION
    tile = cuda.shared.array((32, 33), np.float32)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    x, y = cuda.grid(2)
    if y < source.shape[0] and x < source.shape[1]:
        tile[ty, tx] = source[y, x]
    cuda.syncthreads()
    row = cuda.blockIdx.x * 32 + ty
    column = cuda.blockIdx.y * 32 + tx
    if row < out.shape[0] and column < out.shape[1]:
        out[row, column] = tile[tx, ty]
    ### END SOLUTION
    ### BEGIN STUB
    # raise NotImplementedError("a tile in shared memory: read rows, turn, write rows")
    ### END STUB


# %% tags=["check", "01.3"]
check("01.3", transpose)

# %% [markdown]
# The next figure shows how a warp of that kernel takes the tile out of shared memory. In a padded tile of float32 every
# lane has a bank of its own; a float64 takes two banks, and so two passes.

# %%
my_transpose = mine("01.3")
turned = np.zeros((64, 64), np.float32)
transpose_title = f"Transpose, {whose('01.3')} kernel"
viz.warp(my_transpose, (2, 2), (32, 32), matrix, turned, step=3, title=transpose_title)

# %% [markdown]
# Pick a warp with the slider: it goes through the requests of four warps of the block, from the read to the write. Guess
# each one before you look; other warps are a change of `numbers` away.

# %% tags=["widget"]
viz.warp_player(my_transpose, (2, 2), (32, 32), matrix, turned, numbers=(0, 1, 15, 31), title=transpose_title)

# %% [markdown]
# ## 6. A convolution (20 min)
#
# The heart of a CNN, for one channel and one filter. Each thread computes one pixel of the output: the weighted sum of
# the pixels around it. The middle of the filter lies on the pixel, nothing is flipped, and what lies outside the image
# counts as 0. So `out` is as large as `image`. In plain Python, for the pixel in row y and column x:
#
# ```
# value = 0
# for i in range(weights.shape[0]):
#     for j in range(weights.shape[1]):
#         at = y + i - weights.shape[0] // 2, x + j - weights.shape[1] // 2
#         if 0 <= at[0] < image.shape[0] and 0 <= at[1] < image.shape[1]:
#             value += weights[i, j] * image[at]
# out[y, x] = value
# ```
#
# ### Exercise 01.4 · `conv2d_naive` (stretch)
#
# The plain version, as a kernel. `weights` has two odd sides, which need not be equal. Nothing is negative by accident on
# a GPU: index -1 is not the last row, it is somebody else's memory. Sum up in a variable of the thread, beginning with
# `np.float32(0)`, and write each pixel once: every `out[y, x] +=` would read and write global memory.


# %% tags=["exercise", "01.4"]
@cuda.jit
def conv2d_naive(image, weights, out):
    """One pixel of the convolution for each thread; `out` is as large as `image`."""
    ### BEGIN SOLUTION
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
    ### END SOLUTION
    ### BEGIN STUB
    # raise NotImplementedError("the weighted sum of the pixels around this thread's")
    ### END STUB


# %% tags=["check", "01.4"]
check("01.4", conv2d_naive)

# %% [markdown]
# With a filter of 5 x 5 every pixel is read 25 times, by 25 threads. A block of 16 x 16 threads needs only 20 x 20
# pixels: its own, and a **halo** of 2 on each side. It can load them once into shared memory.
#
# ### Exercise 01.5 · `conv2d_tiled`
#
# The same convolution for a 5 x 5 filter and blocks of 16 x 16 threads. 256 threads have 400 cells to fill, so some
# load more than one. Two loops do it, one inside the other, each as in `sum_of_three`: `range(start, HALO, TILE)` visits
# every TILE-th index from the thread's own on. Then wait, then add up from the tile into a variable, then write, with a
# guard. The check counts as well: each pixel is loaded once by its block, neighbouring lanes load neighbouring pixels,
# and each pixel of `out` is written once.


# %% tags=["exercise", "01.5"]
TILE = 16
RADIUS = 2
WIDTH = 2 * RADIUS + 1
HALO = TILE + 2 * RADIUS


@cuda.jit
def conv2d_tiled(image, weights, out):
    """One pixel of the convolution for each thread; the block loads its HALO x HALO pixels once."""
    tile = cuda.shared.array((HALO, HALO), np.float32)
    ### BEGIN SOLUTION
    for i in range(cuda.threadIdx.y, HALO, TILE):
        for j in range(cuda.threadIdx.x, HALO, TILE):
            row = cuda.blockIdx.y * TILE + i - RADIUS
            column = cuda.blockIdx.x * TILE + j - RADIUS
            inside = row >= 0 and row < image.shape[0] and column >= 0 and column < image.shape[1]
            tile[i, j] = image[row, column] if inside else np.float32(0)
    cuda.syncthreads()
    x, y = cuda.grid(2)
    if y < out.shape[0] and x < out.shape[1]:
        total = np.float32(0)
        for i in range(WIDTH):
            for j in range(WIDTH):
                total += weights[i, j] * tile[cuda.threadIdx.y + i, cuda.threadIdx.x + j]
        out[y, x] = total
    ### END SOLUTION
    ### BEGIN STUB
    # raise NotImplementedError("load the tile and its halo, wait, then add up")
    ### END STUB


# %% tags=["check", "01.5"]
check("01.5", conv2d_tiled)

# %% [markdown]
# Four versions on the same image. The third one has rows of 48 words in its tile instead of 20: look at what that does
# to the banks. The fourth one keeps the filter in *constant memory*, which hands one word to a whole warp at once, and
# is not counted among the bytes that move.
#
# Predict: the naive kernel reads each pixel 25 times, the tiled one 400/256 = 1.6 times. By what factor do the bytes
# shrink that *all* requests to global memory move?

# %% tags=["predict"]
predict("01.p3", None)


# %% tags=["experiment"]
load_tile = convolution.load_tile  # the library's loading of the tile, which kernels can call


@cuda.jit
def conv2d_padded(image, weights, out):
    tile = cuda.shared.array((HALO, 48), np.float32)
    load_tile(image, tile, cuda.blockIdx.y * TILE, cuda.blockIdx.x * TILE)
    cuda.syncthreads()
    across, down = cuda.grid(2)
    if down < out.shape[0] and across < out.shape[1]:
        collected = np.float32(0)
        for k in range(WIDTH * WIDTH):
            collected += (
                weights[k // WIDTH, k % WIDTH] * tile[cuda.threadIdx.y + k // WIDTH, cuda.threadIdx.x + k % WIDTH]
            )
        out[down, across] = collected


my_naive, my_tiled = mine("01.4"), mine("01.5")
side = 64 if FAST else 256
image = rng.standard_normal((side, side)).astype(np.float32)
grid, block = grid_for(image.shape, (TILE, TILE)), (TILE, TILE)
filled = np.zeros_like(image)
versions = {
    f"naive, {whose('01.4')}": (my_naive, (image, convolution.BLUR, filled)),
    f"tiled, {whose('01.5')}": (my_tiled, (image, convolution.BLUR, filled)),
    "tiled and padded": (conv2d_padded, (image, convolution.BLUR, filled)),
    "filter in constant memory": (convolution.conv2d_constant, (image, filled)),
}
reports = {name: profile(kernel, grid, block, *given) for name, (kernel, given) in versions.items()}
taken = {name: milliseconds(kernel, grid, block, *given) for name, (kernel, given) in versions.items()}
print(f"{side} x {side} pixels, a 5 x 5 filter: counted in the simulator, seconds by the model of one {DEVICE}")
print(f"{'':26}{'sectors':>8}{'moved':>10}{'reads a thread':>16}{'bank ways':>11}{'model':>10}{'measured':>13}")
for name, report in reports.items():
    clock = "no GPU here" if taken[name] is None else show_seconds(taken[name] / 1e3)
    print(
        f"{name:26}{report.sectors_per_request:8.2f}{show_bytes(report.bytes_moved):>10}{report.reads_per_thread:16.1f}"
        f"{report.bank_conflict:11}{show_seconds(report.modelled_seconds(DEVICE)):>10}{clock:>13}"
    )

# %%
naive_report, tiled_report, padded_report, constant_report = reports.values()
reveal("01.p3", naive_report.bytes_moved / tiled_report.bytes_moved)

# %% [markdown]
# Far less than 16, for two reasons that one sees only when counting. The lanes of a warp want neighbouring pixels, so
# the naive kernel's 32 numbers come in a handful of sectors: coalescing has already saved most of it. And each thread
# still reads the 25 weights from global memory, a sector for each, which is now most of what is left. Put the filter
# into constant memory, as the fourth line does, and the tile shows its worth.
#
# `sectors` is an average over all requests. It is highest in the last line, which is the best one: what went away are the
# many requests for weights, of one sector each, and the loads of pixels that remain need more.
#
# The padding takes the two-way conflicts away: a warp here is two rows of 16 threads, and with rows of 20 words the
# second half falls into banks of the first. The column of the model does not see that: the roofline knows bytes and
# FLOP, and no banks.
#
# The figure puts the versions under the roof: what they compute for each byte they move, and what the GPU could reach at
# that. The filled marks lie *on* the roof because they are computed from it, and those of the two tiled versions on each
# other, since they move the same bytes. How far below a real launch stays, only a GPU can say.

# %%
viz.kernel_roofline(
    reports,
    DEVICE,
    milliseconds=taken if known_gpu() else None,
    title=f"Convolutions under the roof, tiled by {whose('01.5')} code",
)

# %% [markdown]
# ## 7. A sum without divergence (12 min)
#
# Adding up many numbers looks hopeless in parallel: each addition waits for the one before. A tree does it in
# log2 n levels. Within a block of 128 threads: every thread puts one number into shared memory, then the number of
# partial sums is halved until one is left. Which threads work at each level, and on which cells, makes all the
# difference.
#
# ### Exercise 01.6 · `reduce_sum`
#
# Blocks of 128 threads. Block b leaves in `out[b]` the sum of its 128 numbers of `source`; the last block may have
# fewer. The check counts divergent branches, bank conflicts, idle lanes and instructions. Threads that work at a level
# should be neighbours, so that whole warps either work or rest.


# %% tags=["exercise", "01.6"]
THREADS = 128


@cuda.jit
def reduce_sum(source, out):
    """Leave in out[b] the sum of what belongs to block b."""
    shared = cuda.shared.array(THREADS, np.int32)
    ### BEGIN SOLUTION
    thread = cuda.threadIdx.x
    i = cuda.grid(1)
    shared[thread] = source[i] if i < source.size else 0
    cuda.syncthreads()
    stride = THREADS // 2
    while stride > 0:
        if thread < stride:
            shared[thread] += shared[thread + stride]
        cuda.syncthreads()
        stride //= 2
    if thread == 0:
        out[cuda.blockIdx.x] = shared[0]
    ### END SOLUTION
    ### BEGIN STUB
    # raise NotImplementedError("load one number a thread, then halve until one is left")
    ### END STUB


# %% tags=["check", "01.6"]
check("01.6", reduce_sum)

# %% [markdown]
# Harris (2007) made a sum faster in seven steps and published the milliseconds of each, for 4,194,304 numbers on a GPU
# of that time. The table has his milliseconds, and what the library's version of each step does here, on fewer numbers.
# `issued` is an estimate of the instructions that all warps issue. Find your own line among them.

# %% tags=["experiment"]
HARRIS = (8.054, 3.456, 1.722, 0.965, 0.536, 0.381, 0.268)
WHAT = (
    "every second thread works",
    "first threads, strided cells",
    "first threads, halves",
    "two numbers while loading",
    "last warp without barriers",
    "no loop",
    "many numbers a thread",
)
count = 2**13 if FAST else 2**16
values = rng.integers(0, 100, count).astype(np.int32)


def blocks_of(step):
    """How many blocks of 128 threads a step needs: half as many from step 4 on, few for the last one."""
    return {1: count // 128, 2: count // 256, 3: 32}[1 + (step > 3) + (step == 7)]


print(f"{'':32}{'Harris':>9}{'issued':>10}{'diverge':>9}{'bank ways':>11}{'barriers':>10}")
for step, (kernel, what, published) in enumerate(zip(reduction.STEPS, WHAT, HARRIS, strict=True), 1):
    sums = np.zeros(blocks_of(step), np.int32)
    report = profile(kernel, blocks_of(step), 128, values, sums)
    row = f"{step} {what:30}{published:6.3f} ms{report.issued:10,}{report.divergent_branches:9,}"
    print(f"{row}{report.bank_conflict:11}{report.barriers:10}")
my_sum, sums = mine("01.6"), np.zeros(count // 128, np.int32)
report = profile(my_sum, count // 128, 128, values, sums)
row = f"{'  reduce_sum, ' + whose('01.6'):32}{'':>9}{report.issued:10,}{report.divergent_branches:9,}"
print(f"{row}{report.bank_conflict:11}{report.barriers:10}")
my_sum[count // 128, 128](values, sums)
print(f"\nsum of {count:,} numbers: {sums.sum():,}, by NumPy {values.sum():,}")

# %% [markdown]
# The first step diverges at every level. In the second and the third whole warps work or rest until a single warp is
# left; then some of its lanes rest, and 6 branches part in each block. The second pays with bank conflicts, and the third
# has none. From there on it is about issuing fewer instructions. Half of the threads had nothing to do but load. When a
# single warp is left, all of its lanes may add, needed or not, without any `if`. Its levels need no barrier of the block
# either; the lanes still have to wait for each other, for which `cuda.syncwarp()` is enough, between reading and writing.
# (Harris left even that out: he relied on the lanes of a warp running in lockstep, which the Programming Guide no longer
# promises.) And a thread that adds many numbers by itself needs the tree only once.

# %% [markdown]
# ## 8. How many fit (2 min)
#
# A request to memory takes hundreds of cycles (NVIDIA, Programming Guide). An SM does not wait: it runs another warp. So
# it wants many warps, and what a block uses decides how many fit: its shared memory, and its **registers**, the places
# in the SM that hold the variables of each thread. **Occupancy** is the share of an SM's warps that are filled.
#
# ### Exercise 01.7 · `occupancy` (stretch)
#
# `sm` holds the limits of one SM: `sm.warps`, `sm.blocks`, `sm.registers`, and `sm.shared` in bytes. A warp gets its
# registers in units of 256, whatever its 32 threads need; a block pays for whole warps; and the system takes 1,024
# bytes of shared memory for each block (all three: NVIDIA, Programming Guide and occupancy calculator). `registers` is
# for one thread; `shared_bytes` is for a block, and may be 0. Return how many blocks fit, and the fraction of the warps
# that they fill.


# %% tags=["exercise", "01.7"]
def occupancy(sm, threads, registers, shared_bytes):
    """Return (blocks on one SM, fraction of its warps)."""
    ### BEGIN SOLUTION
    warps = -(-threads // 32)
    per_warp = -(-registers * 32 // 256) * 256
    by_registers = sm.registers // (per_warp * warps)
    by_shared = sm.shared // (shared_bytes + 1024)
    blocks = min(sm.warps // warps, sm.blocks, by_registers, by_shared)
    return blocks, blocks * warps / sm.warps
    ### END SOLUTION
    ### BEGIN STUB
    # raise NotImplementedError("blocks on one SM, and the share of its warps that they fill")
    ### END STUB


# %% tags=["check", "01.7"]
check("01.7", occupancy)

# %% [markdown]
# The figure shows the share of warps on an A100 (sm_80) for blocks of 256 threads, by registers a thread. It falls in
# steps, since only whole blocks fit: one register more can cost a block on every SM.


# %%
def occupancy_figure(threads, shared_bytes):
    my_occupancy, counts = mine("01.7"), list(range(16, 129))
    shares = [my_occupancy(CAPABILITIES["sm_80"], threads, count, shared_bytes)[1] for count in counts]
    figure = Figure(figsize=(7.6, 2.9))
    axis = figure.add_axes((0.09, 0.17, 0.89, 0.7))
    axis.step(counts, [100 * share for share in shares], where="mid", color="#0072B2", linewidth=2)
    axis.set(xlabel="registers a thread", ylabel="% of the warps", ylim=(0, 105), xlim=(16, 128))
    axis.grid(alpha=0.4)
    title = f"Occupancy on sm_80, {threads} threads and {shared_bytes:,} bytes a block, by {whose('01.7')} function"
    axis.set_title(title, fontsize=10)
    said = ", ".join(f"{count} registers {shares[counts.index(count)]:.0%}" for count in (16, 32, 40, 64, 128))
    return viz.Figure(figure, alt=f"{title}. {said}.")


occupancy_figure(256, tiled_report.shared_bytes)

# %% [markdown]
# More is not always faster: once enough warps are there to cover the waiting, others add nothing (Volkov 2010).

# %% [markdown]
# ## 9. The real thing, and what you know now (1 min)
#
# PyTorch's own convolution on the same image, beside your tiled kernel. The largest difference should be rounding.

# %%
ours = np.zeros_like(image)
my_tiled[grid, block](image, convolution.BLUR, ours)
pair = [torch.from_numpy(np.ascontiguousarray(one))[None, None] for one in (image, convolution.BLUR)]
theirs = torch.nn.functional.conv2d(*pair, padding=RADIUS)[0, 0].numpy()
print(f"largest difference between {whose('01.5')} tiled kernel and torch: {np.abs(ours - theirs).max():.1g}")
print(f"largest pixel: {np.abs(theirs).max():.2f}")
if ON_GPU and torch.cuda.is_available():
    tensors, events = [one.cuda() for one in pair], [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    torch.nn.functional.conv2d(*tensors, padding=RADIUS)
    events[0].record()
    torch.nn.functional.conv2d(*tensors, padding=RADIUS)
    events[1].record()
    torch.cuda.synchronize()
    own = milliseconds(my_tiled, grid, block, image, convolution.BLUR, ours)
    print(f"on this GPU: yours {own:.3f} ms, torch {events[0].elapsed_time(events[1]):.3f} ms")
else:
    print("no GPU here (or none for torch), so no milliseconds: the simulator's own time says nothing about a GPU")

# %% [markdown]
# **On real hardware.** With an NVIDIA GPU and the course's extra `gpu` (`pip install -e ".[gpu]"` in its folder, which
# installs Numba's CUDA target), `from lockstep.simt import cuda` gives Numba's `cuda`, and every kernel of this notebook
# runs on the GPU as it stands; `profile` still counts in the simulator. What changes: caches catch part of what the naive
# kernels waste, races go unnoticed, and the first launch of a kernel takes longer, because it is compiled.
# `bench/simt_gpu.py` prints the milliseconds of the library's kernels and, where NVIDIA's `ncu` is installed, sectors
# from the GPU's own counters beside ours. With several GPUs, `torchrun --nproc-per-node=2 your_kernels.py` starts one
# process for each, which takes its own with `cuda.select_device(int(os.environ["LOCAL_RANK"]))`.
#
# **Summary**
# - A thread finds its pixel from block, block size and index; a guard stops those past the edge, and costs next to
#   nothing.
# - 32 lanes run in lockstep. Lanes of one warp that disagree are run one side after the other.
# - Memory moves whole sectors of 32 bytes: neighbouring lanes, neighbouring addresses.
# - What threads share needs a barrier, which every thread of the block passes.
# - 32 banks: a column of a tile needs rows that are no multiple of 32 words.
# - Count before you believe: reuse in a tile saves less than it seems where requests are coalesced already.
#
# Questions. Choose, say how sure you are, and read why.

# %%
ask("01.q1")

# %%
ask("01.q2")

# %%
ask("01.q3")

# %%
ask("01.q4")

# %% [markdown]
# And a riddle: a launch of a wrong kernel of this lab, or now and then of a right one, with what was counted. Run the
# cell again for another.

# %%
diagnose("01")

# %% [markdown]
# What you have done so far; `submit("01")` makes the file to hand in, if somebody asked you for it.

# %%
progress("01")

# %% [markdown]
# **References**
# - D. B. Kirk, W. W. Hwu, "Programming Massively Parallel Processors", Morgan Kaufmann, first edition 2010: grids,
#   tiles, convolution with a halo.
# - M. Harris (2007), "Optimizing Parallel Reduction in CUDA", NVIDIA: the seven steps and their milliseconds.
# - M. Harris (2013), "An Efficient Matrix Transpose in CUDA C/C++", NVIDIA technical blog: the padded tile.
# - V. Volkov (2010), "Better Performance at Lower Occupancy", GPU Technology Conference.
# - S. Williams, A. Waterman, D. Patterson (2009), "Roofline: an insightful visual performance model for multicore
#   architectures", Communications of the ACM 52(4), 65-76.
# - NVIDIA (2020), "NVIDIA A100 Tensor Core GPU Architecture", white paper: the number of SMs.
# - NVIDIA, CUDA C++ Programming Guide: warps, sectors, banks, and the limits of each compute capability.
