"""The random numbers a rank starts with: distinct per rank, reproducible, the same in both worlds.

Floor 1, room `world`. `launch` seeds a whole process with `seed_rank`; `simulate` seeds the CPU's
generators with `seed_cpu` at a rank's first turn, and touches no accelerator.
"""

from __future__ import annotations

import random
from functools import lru_cache
from numbers import Integral

import numpy as np
import torch


def _words(seed: int, rank: int) -> np.ndarray:
    """Eight 32-bit words drawn from (seed, rank); neighbouring pairs give unrelated words."""
    for name, value in (("seed", seed), ("rank", rank)):
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 0:
            raise ValueError(f"{name} must be an integer of at least 0, not {value!r}")
    return _drawn(int(seed), int(rank))


@lru_cache(maxsize=1024)  # most runs begin with the same ones
def _drawn(seed: int, rank: int) -> np.ndarray:
    return np.random.SeedSequence((seed, rank)).generate_state(8)


def torch_seed(seed: int, rank: int) -> int:
    """The number torch's generators start from on `rank`: 63 bits."""
    high, low = (int(word) for word in _words(seed, rank)[:2])
    return (high << 32 | low) >> 1


def seed_cpu(seed: int, rank: int) -> None:
    """Seed torch's CPU generator, NumPy's global one and `random` from (seed, rank).

    Raises ValueError when seed or rank is not an integer of at least 0.
    """
    words = _words(seed, rank)
    torch.default_generator.manual_seed(torch_seed(seed, rank))
    np.random.seed(words[2:6])
    random.seed(int(words[6]) << 32 | int(words[7]))


def seed_rank(seed: int, rank: int) -> None:
    """Seed this whole process as `rank`: as `seed_cpu`, and the generators of its accelerators too.

    Raises ValueError when seed or rank is not an integer of at least 0.
    """
    seed_cpu(seed, rank)
    torch.manual_seed(torch_seed(seed, rank))
