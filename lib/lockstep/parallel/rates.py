"""Learning rates for batches that grow with the number of ranks.

Floor 2, room `parallel`. Legend: eta the rate that was tuned for batches of `base_batch` samples, k = batch / base_batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral, Real

Rule = Callable[[float, float, float], float]
"""(base_lr, base_batch, batch) -> the rate for batches of `batch` samples."""


def linear_lr(base_lr: float, base_batch: float, batch: float) -> float:
    """k eta: k times as many samples in a step make k times as long a step (Goyal et al. 2017, section 2.1).

    As k steps of eta would, as long as the gradient hardly changes over them.
    """
    _check(base_lr, base_batch, batch)
    return base_lr * batch / base_batch


def square_root_lr(base_lr: float, base_batch: float, batch: float) -> float:
    """sqrt(k) eta: keeps the variance of a step's noise as it was (Krizhevsky 2014, section 5)."""
    _check(base_lr, base_batch, batch)
    return base_lr * math.sqrt(batch / base_batch)


def scaled_lr(
    step: int, base_lr: float, base_batch: float, batch: float, warmup_steps: int, rule: Rule = linear_lr
) -> float:
    """The rate of step `step`, counted from 0: from eta in equal increments to the scaled rate at `warmup_steps`.

    The increments are per step, not per epoch: at large k a whole epoch's jump is what warm-up is to avoid. Without
    warm-up steps it is the scaled rate from the start. Raises ValueError for numbers that make no sense.
    Source: Goyal et al. 2017, "Accurate, Large Minibatch SGD", section 2.2, gradual warm-up.
    """
    for name, value in (("step", step), ("warmup_steps", warmup_steps)):
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 0:
            raise ValueError(f"{name} must be a whole number of at least 0, not {value!r}")
    target = rule(base_lr, base_batch, batch)
    if step >= warmup_steps:
        return target
    return base_lr + (target - base_lr) * step / warmup_steps


def _check(base_lr: float, base_batch: float, batch: float) -> None:
    for name, value in (("base_lr", base_lr), ("base_batch", base_batch), ("batch", batch)):
        if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value) or value <= 0:
            raise ValueError(f"{name} must be a number above 0, not {value!r}")
