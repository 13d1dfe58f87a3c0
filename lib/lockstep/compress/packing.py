"""Small whole numbers, several to a byte.

Floor 2, room `compress`. A byte holds as many digits of a base as fit: 8 of base 2, 5 of base 3, 3 of base 5. Digit
i of byte b stands for element i*B + b of B bytes, so that packing is a few operations on whole stretches:

    elements  0 1 2 3 | 4 5 6 7 | 8 9      base 3, 10 elements, B = 2 would do; with B = 4:
    byte 0 = e0 + 3*e4 + 9*e8

Where as many digits of the next power of two fit, such as two of base 16 for base 15, these are what is packed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lockstep.compress.blocks import pieces


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
    n, radix = digits.numel(), _radix(base)
    size = packed_bytes(n, base)
    packed = torch.zeros(size, dtype=torch.uint8, device=digits.device)
    # Horner's rule from the highest digit down, whose stretch may be shorter than the others.
    for place in reversed(range(digits_per_byte(base))):
        stretch = digits[place * size : (place + 1) * size].to(torch.uint8)
        packed.mul_(radix % 256)
        packed[: stretch.numel()].add_(stretch)
    return packed


def unpack(packed: Tensor, n: int, base: int) -> Tensor:
    """The n digits of `base` in `packed`, uint8, 1-D."""
    size, radix = packed.numel(), _radix(base)
    digits = torch.empty(n, dtype=torch.uint8, device=packed.device)
    stretches = [digits[place * size : (place + 1) * size] for place in range(digits_per_byte(base))]
    if radix & (radix - 1) == 0:
        bits = radix.bit_length() - 1
        for place, stretch in enumerate(stretches):
            torch.bitwise_right_shift(packed[: stretch.numel()], bits * place, out=stretch)
            stretch.bitwise_and_(radix - 1)
        return digits
    reciprocal = -(-(2**16) // radix)  # b * reciprocal >> 16 is b // radix for every byte b, and many at a time
    for piece in pieces(size, 1, packed.device):
        rest = packed[piece].to(torch.int32)
        for stretch in stretches:
            place = stretch[piece]
            higher = (rest * reciprocal).bitwise_right_shift_(16)
            place.copy_(rest.sub_(higher, alpha=radix)[: place.numel()])
            rest = higher
    return digits


def above_zero(values: Tensor, bits: Tensor) -> None:
    """Write 1 to `bits`, uint8, for each of float32 or float64 `values` that is at least zero, and 0 for each other.

    By the sign bit, which takes a third of the time of a comparison; -0.0 + 0 is 0.0.
    """
    whole = torch.int64 if values.dtype is torch.float64 else torch.int32
    bits.copy_((values + 0).view(whole).bitwise_right_shift_(8 * whole.itemsize - 1)).add_(1)


def _radix(base: int) -> int:
    """What a digit's place counts: a power of two where as many digits fit, which takes them apart by shifts."""
    power = 1 << (base - 1).bit_length()
    return power if digits_per_byte(power) == digits_per_byte(base) else base
