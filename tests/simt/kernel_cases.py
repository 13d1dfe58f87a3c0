"""Every library kernel with arguments for a launch and what NumPy says it should give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lockstep.simt.kernels import convolution, gemm, histogram, pooling, reduction, scan, transpose, vectors


class Case(NamedTuple):
    """`arguments` are made anew for each run; `outputs` maps a position among them to its expected contents."""

    name: str
    kernel: object
    grid: object
    block: object
    arguments: tuple
    outputs: dict[int, np.ndarray]


def _blocks(size: int, block: int) -> int:
    return max(1, -(-size // block))


def _grid2(shape: tuple[int, int], tile: int) -> tuple[int, int]:
    return _blocks(shape[1], tile), _blocks(shape[0], tile)


def cases(seed: int, largest: int = 150) -> Iterator[Case]:
    """One case a kernel, of random sizes up to about `largest`."""
    rng = np.random.default_rng(seed)

    def size(low: int = 1) -> int:
        return int(rng.integers(low, largest + 1))

    def floats(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    n = size()
    a, b = floats(n), floats(n)
    zero = np.zeros(n, np.float32)
    block = int(rng.choice([32, 48, 64]))
    yield Case("vector_add", vectors.vector_add, _blocks(n, block), block, (a, b, zero), {2: a + b})
    yield Case("vector_add_strided", vectors.vector_add_strided, 2, 40, (a, b, zero), {2: a + b})
    yield from _transposes(floats(size() // 3 + 1, size() // 3 + 1))
    yield from _sums(rng.integers(-1000, 1000, 4 * size()).astype(np.int32))
    values = rng.integers(0, histogram.BINS, 3 * size()).astype(np.int32)
    counts, empty = np.bincount(values, minlength=histogram.BINS), np.zeros(histogram.BINS, np.int32)
    yield Case(
        "histogram_global", histogram.histogram_global, _blocks(values.size, 64), 64, (values, empty), {1: counts}
    )
    yield Case("histogram_shared", histogram.histogram_shared, 3, 48, (values, empty), {1: counts})
    yield from _convolutions(rng, floats(size()), floats(size() // 3 + 1, size() // 3 + 1), floats)
    a, b = floats(size() // 3 + 1, n // 3 + 1), floats(n // 3 + 1, size() // 3 + 1)
    c = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for kernel in (gemm.gemm_naive, gemm.gemm_tiled):
        grid, block = _grid2(c.shape, gemm.TILE), (gemm.TILE, gemm.TILE)
        yield Case(kernel.__name__, kernel, grid, block, (a, b, c), {2: a.astype(np.float64) @ b})


def _transposes(matrix: np.ndarray) -> Iterator[Case]:
    block = (transpose.TILE, transpose.ROWS)
    for kernel in (transpose.transpose_naive, transpose.transpose_tiled, transpose.transpose_padded):
        out = np.zeros(matrix.T.shape, np.float32)
        yield Case(kernel.__name__, kernel, _grid2(matrix.shape, block[0]), block, (matrix, out), {1: matrix.T})


def _sums(numbers: np.ndarray) -> Iterator[Case]:
    threads = reduction.THREADS
    for step, kernel in enumerate(reduction.STEPS, 1):
        stretch = threads if step < 4 else 2 * threads
        grid = _blocks(numbers.size, stretch) if step < 7 else 2
        whole = np.zeros(grid * stretch, np.int32)
        whole[: numbers.size if step < 7 else 0] = numbers if step < 7 else 0
        partial = whole.reshape(grid, stretch).sum(axis=1)
        if step == 7:
            taker = np.arange(numbers.size) // threads % grid
            partial = np.bincount(taker, numbers, grid).astype(np.int32)
        yield Case(kernel.__name__, kernel, grid, threads, (numbers, np.zeros(grid, np.int32)), {1: partial})
    total = np.array([numbers.sum()])
    yield Case("sum_atomic", reduction.sum_atomic, 2, 64, (numbers, np.zeros(1, np.int32)), {1: total})
    width = scan.THREADS
    blocks = _blocks(numbers.size, width)
    padded = np.zeros(blocks * width, np.int32)
    padded[: numbers.size] = numbers
    sums = padded.reshape(blocks, width).cumsum(axis=1)
    exclusive = (sums - padded.reshape(blocks, width)).ravel()[: numbers.size]
    zero = np.zeros_like(numbers)
    yield Case("scan_inclusive", scan.scan_inclusive, blocks, width, (numbers, zero), {1: sums.ravel()[: numbers.size]})
    yield Case("scan_exclusive", scan.scan_exclusive, blocks, width, (numbers, zero), {1: exclusive})


def _convolutions(rng: np.random.Generator, line: np.ndarray, image: np.ndarray, floats) -> Iterator[Case]:
    width, span = convolution.WIDTH, convolution.SPAN
    weights, small = floats(int(rng.choice([1, 3, 7]))), floats(width)
    zero, grid = np.zeros_like(line), _blocks(line.size, span)
    correlated = _correlate(line[None], weights[None])[0]
    yield Case("conv1d_naive", convolution.conv1d_naive, grid, span, (line, weights, zero), {2: correlated})
    correlated = _correlate(line[None], small[None])[0]
    yield Case("conv1d_tiled", convolution.conv1d_tiled, grid, span, (line, small, zero), {2: correlated})
    grid, block = _grid2(image.shape, convolution.TILE), (convolution.TILE, convolution.TILE)
    square, zero = floats(width, width), np.zeros_like(image)
    expected = _correlate(image, square)
    for kernel in (convolution.conv2d_naive, convolution.conv2d_tiled):
        yield Case(kernel.__name__, kernel, grid, block, (image, square, zero), {2: expected})
    blurred = _correlate(image, convolution.BLUR)
    yield Case("conv2d_constant", convolution.conv2d_constant, grid, block, (image, zero), {1: blurred})
    channels, size, stride = int(rng.integers(1, 4)), int(rng.integers(1, 4)), int(rng.integers(1, 3))
    maps = floats(channels, image.shape[0] // 2 + size, image.shape[1] // 2 + size)
    windows = np.lib.stride_tricks.sliding_window_view(maps, (size, size), axis=(1, 2))
    pooled = windows[:, ::stride, ::stride].max(axis=(3, 4))
    grid = (_blocks(pooled.shape[2], 8), _blocks(pooled.shape[1], 4), channels)
    arguments = (maps, np.zeros_like(pooled), size, stride)
    yield Case("max_pool", pooling.max_pool, grid, (8, 4), arguments, {1: pooled})
    columns = windows.transpose(0, 3, 4, 1, 2).reshape(channels * size * size, -1)
    grid = (_blocks(columns.shape[1], 32), size * size, channels)
    yield Case("im2col", convolution.im2col, grid, 32, (maps, np.zeros_like(columns), size), {1: columns})


def _correlate(image: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """ "same" correlation with zeros around, in float64."""
    rows, columns = weights.shape
    padded = np.pad(image.astype(np.float64), ((rows // 2, rows // 2), (columns // 2, columns // 2)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, weights.shape)
    return (windows * weights).sum(axis=(2, 3))


def fresh(case: Case) -> tuple:
    """The case's arguments, arrays copied."""
    return tuple(value.copy() if isinstance(value, np.ndarray) else value for value in case.arguments)


def agree(result: np.ndarray, expected: np.ndarray) -> bool:
    """Integers exactly, floats to rounding."""
    if result.dtype.kind != "f":
        return np.array_equal(result, expected)
    return result.shape == expected.shape and np.allclose(result, expected, rtol=1e-4, atol=1e-5)
