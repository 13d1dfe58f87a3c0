"""Which images a rank sees: one shuffled order for everyone, and each rank's part of it.

Floor 0, room `data`. The order depends on its seeds alone, so ranks agree on it without a message.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def permutation(n: int, *seeds: int) -> Tensor:
    """The numbers 0 to n-1 in a shuffled order that `seeds` fix, int64; a new epoch is a new seed.

    It sorts raw draws of PCG64, whose stream NumPy promises not to change, so the order is the same on every
    machine and with every version. `permutation(n, seed, epoch)` reshuffles each epoch.
    Raises ValueError for a negative n or seed.
    """
    if n < 0 or any(seed < 0 for seed in seeds):
        raise ValueError(f"permutation(n={n}, seeds={seeds}): n and every seed must be 0 or more")
    draws = np.random.PCG64(np.random.SeedSequence(seeds)).random_raw(n)
    return torch.from_numpy(np.argsort(draws, kind="stable").astype(np.int64))


def shard(n: int, rank: int, size: int) -> range:
    """The positions out of n that `rank` of `size` ranks works on: disjoint, covering, sizes differ by at most one.

    Split as `torch.tensor_split` does: when n does not divide, the first n mod size ranks have one more.
    Raises ValueError for a negative n, no ranks, or a rank that does not exist.
    """
    if size < 1 or not 0 <= rank < size:
        raise ValueError(f"rank {rank} of {size} does not exist; ranks run from 0 to size - 1")
    if n < 0:
        raise ValueError(f"cannot share out {n} images; n must be 0 or more")
    each, left = divmod(n, size)
    first = rank * each + min(rank, left)
    return range(first, first + each + (rank < left))
