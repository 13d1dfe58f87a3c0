"""Small whole numbers, several to a byte.

Floor 2, room `compress`. A byte holds as many digits of a base as fit: 8 of base 2, 5 of base 3, 3 of base 5. Digit
i of byte b stands for element i*B + b of B bytes, so that packing is a few operations on whole stretches:

    elements  0 1 2 3 | 4 5 6 7 | 8 9      base 3, 10 elements, B = 2 would do; with B = 4:
    byte 0 = e0 + 3*e4 + 9*e8
"""

from __future__ import annotations

import torch
from torch import Tensor


def digits_per_byte(base: int) -> int:
    """How many digits of `base` (2 to 256) fit into a byte."""
    digits = 1
    while base ** (digits + 1) <= 256:
        digits += 1
    return digits


def packed_bytes(n: int, base: int) -> int:
    """Bytes that n digits of `base` take."""
    return -(-n // digits_per_byte(base))


def pack(digits: Tensor, base: int) -> Tensor:
    """1-D numbers from 0 to base - 1 as `packed_bytes` bytes."""
    n = digits.numel()
    size = packed_bytes(n, base)
    packed = torch.zeros(size, dtype=torch.uint8, device=digits.device)
    # Horner's rule from the highest digit down, whose stretch may be shorter than the others.
    for place in reversed(range(digits_per_byte(base))):
        stretch = digits[place * size : (place + 1) * size].to(torch.uint8)
        packed.mul_(base % 256)
        packed[: stretch.numel()].add_(stretch)
    return packed


def unpack(packed: Tensor, n: int, base: int) -> Tensor:
    """The n digits of `base` in `packed`, uint8, 1-D."""
    size = packed.numel()
    digits = torch.empty(n, dtype=torch.uint8, device=packed.device)
    shift = base.bit_length() - 1 if base & (base - 1) == 0 else None
    rest = packed
    for place in range(digits_per_byte(base)):
        stretch = digits[place * size : (place + 1) * size]
        here = rest[: stretch.numel()]
        if shift is None:
            higher = torch.div(rest, base, rounding_mode="floor")
            torch.sub(here, higher[: stretch.numel()] * base, out=stretch)
            rest = higher
        else:
            torch.bitwise_and(here >> (shift * place) if shift < 8 else here, base - 1, out=stretch)
    return digits
