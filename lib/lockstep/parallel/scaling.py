"""Dynamic loss scaling: gradients that would vanish in fp16 are made larger on their way, by a power of two.

Floor 2, room `parallel`. fp16 holds nothing below 6e-8 and nothing above 65504. The scale grows until a gradient
overflows; that step is skipped by all ranks and the scale is halved. Any one rank sees an overflow in its own shard
only, so ranks have to agree, or some would step and others not. Source: Micikevicius et al. 2018, section 3.2; the
numbers are those of `torch.amp.GradScaler`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lockstep.comm import Communicator


@dataclass
class LossScale:
    """What gradients are multiplied by: doubled after `interval` steps in a row without overflow, halved after one."""

    value: float = 2.0**16
    interval: int = 2000
    steps: int = 0  # in a row without overflow
    skipped: int = 0  # steps in all

    most = 2.0**24

    def stepped(self) -> None:
        """No gradient overflowed."""
        self.steps += 1
        if self.steps >= self.interval:
            self.value, self.steps = min(2 * self.value, self.most), 0

    def overflowed(self) -> None:
        """A gradient did, and the step was skipped. Raises FloatingPointError when it did without any scaling."""
        if self.value <= 1:
            raise FloatingPointError(
                "a gradient is infinite or not a number in fp16 even with a loss scale of 1, so that no step can be "
                "made: training has diverged. Lower the learning rate, or use precision='bf16'."
            )
        self.value, self.steps, self.skipped = max(self.value / 2, 1.0), 0, self.skipped + 1


def all_finite(comm: Communicator, gradients: Sequence[Tensor]) -> bool:
    """Collective, one number: whether every gradient of every rank is finite."""
    bad = torch.zeros((), dtype=torch.int64, device=comm.device)
    for gradient in gradients:
        bad |= (~gradient.isfinite().all()).to(bad)
    return not comm.all_reduce(bad, op="max").item()


def global_norm(comm: Communicator, gradients: Sequence[Tensor]) -> Tensor:
    """Collective, one number: the norm of all ranks' gradients together, in float64."""
    squared = torch.zeros((), dtype=torch.float64, device=comm.device)
    for gradient in gradients:
        squared += gradient.double().square().sum()
    return comm.all_reduce(squared).sqrt()


def clip_factor(norm: Tensor, max_norm: float) -> Tensor:
    """What to multiply gradients by so that their `norm` is at most `max_norm`; as `nn.utils.clip_grad_norm_` has it."""
    return (max_norm / (norm + 1e-6)).clamp(max=1.0)


def check_max_norm(max_norm: float) -> None:
    """Raise ValueError for one that is not a number above 0."""
    if not isinstance(max_norm, (int, float)) or not max_norm > 0 or math.isnan(max_norm):
        raise ValueError(f"max_norm is {max_norm!r}: it is a number above 0.")
