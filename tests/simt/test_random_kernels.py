"""Random kernels: the compiled machine, with and without counting, against the slow one, bit for bit."""

import numpy as np
import pytest
import random_kernels

from lockstep.simt import profile
from lockstep.simt.slow import run_slowly


def same(left: list, right: list) -> bool:
    return all(
        np.array_equal(a, b, equal_nan=True) if a.dtype.kind == "f" else np.array_equal(a, b)
        for a, b in zip(left[:8], right[:8], strict=True)
    )


@pytest.mark.parametrize("first", (0, 4))
def test_the_machines_agree(first):
    for seed in range(first, first + 4):
        threads, blocks = (32, 20)[seed % 2], 1 + seed % 2
        kernel, text = random_kernels.make(seed, threads)
        given = [random_kernels.arguments(seed, threads * blocks) for _ in range(3)]
        kernel[blocks, threads](*given[0])
        profile(kernel, blocks, threads, *given[1])
        run_slowly(kernel[blocks, threads], *given[2])
        assert same(given[0], given[2]), f"seed {seed}\n{text}"
        assert same(given[1], given[2]), f"seed {seed}, counted\n{text}"
