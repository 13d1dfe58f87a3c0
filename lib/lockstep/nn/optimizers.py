"""Optimizers that torch does not have.

Floor 0, room `nn`. Symbols as in the paper: w weights, g gradient, gamma `lr`, m `momentum`, beta `weight_decay`,
eta `trust`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class LARS(Optimizer):
    """SGD with momentum in which every layer has a rate of its own, for large batches.

        rate = gamma * eta |w| / (|g| + beta |w|)
        v    = m v + rate (g + beta w)
        w    = w - v

    A step is at most a share gamma * eta of the layer's weights, however large the gradient. A tensor whose weights or
    gradient are all zero has the rate gamma. It is usual to leave biases and batch norm out: give them in a parameter
    group with `trust=None`, which is plain SGD with momentum and weight decay.

    Raises ValueError for numbers that make no sense.
    Source: You, Gitman, Ginsburg 2017, "Large Batch Training of Convolutional Networks", algorithm 1.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float | None = 0.001,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust})
        for group in self.param_groups:
            for name in ("lr", "momentum", "weight_decay", "trust"):
                value = group[name]
                if value is None and name == "trust":
                    continue
                if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value) or value < 0:
                    raise ValueError(f"{name} must be a number of at least 0, not {value!r}")

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update every parameter that has a gradient; gives what `closure` gives, which computes gradients anew."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for w in group["params"]:
                if w.grad is not None:
                    self._update(w, w.grad, group)
        return loss

    def _update(self, w: Tensor, g: Tensor, group: dict[str, Any]) -> None:
        decayed = g.add(w, alpha=group["weight_decay"])
        step = decayed.mul_(group["lr"] * self._local_rate(w, g, group))
        state = self.state[w]
        if "velocity" not in state:
            state["velocity"] = torch.zeros_like(w)
        v = state["velocity"].mul_(group["momentum"]).add_(step)
        w.sub_(v)

    @staticmethod
    def _local_rate(w: Tensor, g: Tensor, group: dict[str, Any]) -> Tensor | float:
        if group["trust"] is None:
            return 1.0
        size, slope = w.norm(), g.norm()
        rate = group["trust"] * size / (slope + group["weight_decay"] * size)
        return torch.where((size > 0) & (slope > 0), rate, 1.0)
