"""Vector addition: one thread an element, and a grid-stride loop. 1-D grid and block of any size."""

from __future__ import annotations

from lockstep.simt import cuda


@cuda.jit
def vector_add(a, b, out):
    """out = a + b. The grid covers `out`; the guard stops the threads past its end."""
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a[i] + b[i]


@cuda.jit
def vector_add_strided(a, b, out):
    """out = a + b with any grid: each thread takes every gridsize-th element."""
    start = cuda.grid(1)
    stride = cuda.gridsize(1)
    for i in range(start, out.size, stride):
        out[i] = a[i] + b[i]
