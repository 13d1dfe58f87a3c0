"""What the judges of lab 10 share: tensors that all ranks return.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.exercises.compare import differs
from lockstep.exercises.judge import Finding
from lockstep.exercises.observe import Observation
from lockstep.exercises.plain import kind, short


def normal(rng: np.random.Generator, *shape: int) -> Tensor:
    """Normal numbers of that shape, float32."""
    return torch.tensor(rng.normal(size=shape), dtype=torch.float32)


def is_number(value: Any) -> bool:
    """A Python number, or a tensor or array that holds one."""
    if isinstance(value, Tensor):
        return value.numel() == 1
    if isinstance(value, np.ndarray):
        return value.size == 1
    return type(value) in (int, float)


def same_shape(seen: Observation, *shape: int, key: str = "mean") -> Finding | None:
    """Every rank's `key` is a float32 tensor of that shape without NaN or infinity."""
    for rank, one in enumerate(seen.value):
        got = one[key]
        if not isinstance(got, Tensor) or tuple(got.shape) != shape or got.dtype is not torch.float32:
            wanted = f"a tensor float32{list(shape)}"
            if got is None:
                return Finding(f"Rank {rank} returns None: is there a `return` on every path?", wanted, "None", "None")
            return Finding(
                f"Rank {rank} returns {kind(got)} where {wanted} is asked.", wanted, short(got), (kind(got),)
            )
        if not got.isfinite().all():
            said = f"Rank {rank} returns numbers that are not finite: {short(got)}."
            return Finding(said, "finite numbers", short(got), ("not finite", [~o[key].isfinite() for o in seen.value]))
    return None


def right_on_all_ranks(
    seen: Observation, expected: Observation, what: str, rtol: float = 1e-4, atol: float = 1e-5, key: str = "mean"
) -> Finding | None:
    """Every rank's `key` is that of the reference; `what` says what that is."""
    for rank, (one, right) in enumerate(zip(seen.value, expected.value, strict=True)):
        difference = differs(one[key], right[key], rtol, atol)
        if difference is not None:
            said = f"Rank {rank} does not return {what}: {difference}."
            return Finding(said, short(right[key]), short(one[key]), ([o[key] for o in seen.value],))
    return None
