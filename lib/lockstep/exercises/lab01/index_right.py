"""01.1 `global_index`: right ways, and the skeleton.

Floor 4, room `exercises`; the exercise is in `index.py`.
"""

from __future__ import annotations

from lockstep.simt import cuda


@cuda.jit
def global_index(out):
    x = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    y = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    if y < out.shape[0] and x < out.shape[1]:
        out[y, x] = y * out.shape[1] + x


@cuda.jit
def by_grid(out):
    column, row = cuda.grid(2)
    height, width = out.shape
    if column >= width or row >= height:
        return
    out[row, column] = column + width * row


@cuda.jit
def by_numbering_pixels(out):
    left = cuda.blockDim.x * cuda.blockIdx.x
    top = cuda.blockDim.y * cuda.blockIdx.y
    if cuda.threadIdx.x < out.shape[1] - left:
        if cuda.threadIdx.y < out.shape[0] - top:
            number = (top + cuda.threadIdx.y) * out.shape[1] + left + cuda.threadIdx.x
            out[number // out.shape[1], number % out.shape[1]] = number


@cuda.jit
def global_index_stub(out):
    raise NotImplementedError("write the pixel's number into the pixel that this thread is responsible for")
