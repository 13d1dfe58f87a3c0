"""A flat tensor as rows of a block each, a piece of it at a time, and values rounded at random.

Floor 2, room `compress`. One scale for a whole tensor lets one large value take the resolution of all others. Work goes
piece by piece, so that what is made on the way stays in a core's cache: memory is much slower than arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

PIECE = 2**17
"""Elements that a CPU works on at a time: 512 KiB of float32. A GPU takes all at once."""

_ODD = 0x0001_0001_0001_0001  # the lowest bit of each 16 of 64


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


def pieces(n: int, block: int, device: torch.device) -> Iterator[slice]:
    """n elements in pieces of whole blocks, at least one each, and about `PIECE` elements on a CPU."""
    step = max(PIECE // block, 1) * block if device.type == "cpu" else n
    for start in range(0, n, max(step, 1)):
        yield slice(start, min(start + step, n))


def round_stochastically(values: Tensor) -> Tensor:
    """Each value, in place, to one of the two whole numbers around it, the nearer one more likely, so that its
    expectation is the value, up to 2^-16: random numbers are dear, and 16 bits of one serve a value.
    """
    words = torch.empty(-(-values.numel() // 4), dtype=torch.int64, device=values.device)
    # Odd ones only lie evenly about zero, and leave whole numbers as they are.
    bits = words.random_(-(2**63), None).bitwise_or_(_ODD).view(torch.int16)[: values.numel()]
    return values.add_(bits.view(values.shape), alpha=2**-16).round_()


def largest_magnitude(flat: Tensor, dtype: torch.dtype) -> Tensor:
    """The largest |value|, [1] in `dtype`; 0 where there is none."""
    parts = [flat[piece].abs().amax() for piece in pieces(flat.numel(), 1, flat.device)]
    return torch.stack(parts).amax(0, keepdim=True).to(dtype) if parts else flat.new_zeros(1, dtype=dtype)


def scaled(codes: Tensor, scales: Tensor, block: int, dtype: torch.dtype, zero: int = 0) -> Tensor:
    """(codes - zero) times the scale of each one's block, flat, in `dtype`; computed in that of the scales."""
    n = codes.numel()
    values = torch.empty(n, dtype=scales.dtype, device=codes.device)
    for piece in pieces(n, 1 if len(scales) == 1 else block, codes.device):
        part = values[piece].copy_(codes[piece])
        if zero:
            part.sub_(zero)
        _scale(part, scales[piece.start // block :] if len(scales) > 1 else scales, block)
    return values.to(dtype)


def _scale(flat: Tensor, scales: Tensor, block: int) -> None:
    """Multiply each block of `flat` by its scale, in place."""
    whole = flat.numel() // block if len(scales) > 1 else 0
    if whole:
        flat[: whole * block].view(whole, block).mul_(scales[:whole, None])
    if whole * block < flat.numel():
        flat[whole * block :].mul_(scales[whole])
