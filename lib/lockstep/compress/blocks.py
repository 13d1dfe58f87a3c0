"""A flat tensor as rows of a block each, and the scale of each.

Floor 2, room `compress`. One scale for a whole tensor lets one large value take the resolution of all others.
"""

from __future__ import annotations

import torch
from torch import Tensor


def block_count(n: int, block: int) -> int:
    """Blocks of n elements, the last of which may be shorter."""
    return -(-n // block)


def in_blocks(tensor: Tensor, block: int, dtype: torch.dtype) -> Tensor:
    """The elements as [blocks, block], or one row as long as the tensor if that is shorter; zeros fill the last row."""
    flat = tensor.reshape(-1).to(dtype)
    n = flat.numel()
    width = min(block, n) or 1
    if n % width == 0:
        return flat.view(-1, width)
    rows = flat.new_zeros(block_count(n, block), width)
    rows.view(-1)[:n] = flat
    return rows


def round_stochastically(values: Tensor) -> Tensor:
    """Each value as one of the two whole numbers around it, the nearer one more likely: its expectation is the value."""
    return torch.rand_like(values).add_(values).floor_()


def scale_blocks(flat: Tensor, scales: Tensor, block: int) -> Tensor:
    """Multiply each block of `flat` by its scale, in place."""
    whole = flat.numel() // block * block
    if whole:
        flat[:whole].view(-1, block).mul_(scales[: whole // block, None])
    if whole < flat.numel():
        flat[whole:].mul_(scales[-1])
    return flat
