"""Gradients that are no numbers are named before anything can hide them.

Floor 2, room `compress`. A quantiser would turn NaN into a code and infinity into a scale that flattens all else.
"""

from __future__ import annotations

import torch
from torch import Tensor


class NotFinite(FloatingPointError):
    """A gradient has NaN or infinity in it, perhaps on one rank only."""


def check_tensor(tensor: Tensor, name: str) -> None:
    """Raise TypeError for what is no tensor of real floating-point numbers, NotFinite for NaN or infinity."""
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
        what = f"a tensor of {tensor.dtype}" if isinstance(tensor, Tensor) else repr(tensor)[:60]
        raise TypeError(f"{name or 'the tensor'} is {what}: compressors take tensors of float16 to float64.")
    check_finite([tensor], [name], rank=None)


def check_finite(
    parts: list[Tensor] | tuple[Tensor, ...], names: list[str] | tuple[str, ...], rank: int | None
) -> None:
    """Raise NotFinite naming the first of `parts` that has NaN or infinity in it."""
    for part, name in zip(parts, names, strict=True):
        if part.sum().isfinite():  # one pass without a mask; a sum that overflows is looked at again
            continue
        bad = ~part.isfinite()
        if bad.any():
            nans = int(part.isnan().sum())
            where = "" if rank is None else f" on rank {rank}"
            raise NotFinite(
                f"{f'the gradient of {name}' if name else 'the tensor'}{where} has {nans} NaN and "
                f"{int(bad.sum()) - nans} infinite values among {part.numel()}: nothing was sent. "
                f"Lower the learning rate, clip gradients, or look for a division by zero in the loss."
            )


def scale_dtype(dtype: torch.dtype) -> torch.dtype:
    """What scales of a gradient of `dtype` travel in, and what is computed in: at least float32."""
    return torch.float64 if dtype is torch.float64 else torch.float32
