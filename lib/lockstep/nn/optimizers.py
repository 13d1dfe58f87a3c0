"""SGD with momentum and Adam, written out, and LARS, which torch does not have.

Floor 0, room `nn`. Symbols as in the papers: w weights, g gradient, v velocity; for LARS gamma `lr`, m `momentum`, beta
`weight_decay`, eta `trust`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class _ByParameter(Optimizer):
    """An optimizer that updates one tensor after the other; a class of its own says how.

    Raises ValueError for a setting of a parameter group that is no number of at least 0.
    """

    def __init__(self, params: Iterable[Tensor] | Iterable[dict[str, Any]], settings: dict[str, Any]) -> None:
        super().__init__(params, settings)
        for group in self.param_groups:
            for name in settings:
                self._check(name, group[name])

    def _check(self, name: str, value: Any) -> None:
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
        raise NotImplementedError


class SGD(_ByParameter):
    """Stochastic gradient descent with momentum, as `torch.optim.SGD` has it.

        g = g + weight_decay w
        v = momentum v + g
        w = w - lr v

    Raises ValueError for numbers that make no sense. Source: Sutskever, Martens, Dahl, Hinton 2013, "On the importance
    of initialization and momentum in deep learning", section 2, with the rate outside of the velocity.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    def _update(self, w: Tensor, g: Tensor, group: dict[str, Any]) -> None:
        if group["weight_decay"]:
            g = g.add(w, alpha=group["weight_decay"])
        if group["momentum"]:
            state = self.state[w]
            if "velocity" not in state:
                state["velocity"] = torch.zeros_like(w)
            g = state["velocity"].mul_(group["momentum"]).add_(g)
        w.sub_(g, alpha=group["lr"])


class Adam(_ByParameter):
    """Adam, as `torch.optim.Adam` has it; t counts the steps of a parameter.

        m = beta1 m + (1 - beta1) g
        v = beta2 v + (1 - beta2) g^2
        w = w - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)

    Raises ValueError for numbers that make no sense. Source: Kingma and Ba 2015, "Adam: a method for stochastic
    optimization", algorithm 1.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    def _check(self, name: str, value: Any) -> None:
        if name != "betas":
            return super()._check(name, value)
        for beta in value:
            super()._check("beta", beta)
            if beta >= 1:
                raise ValueError(f"a beta must be below 1, not {beta!r}")

    def _update(self, w: Tensor, g: Tensor, group: dict[str, Any]) -> None:
        state, (beta1, beta2) = self.state[w], group["betas"]
        if not state:
            state.update(step=0, mean=torch.zeros_like(w), square=torch.zeros_like(w))
        state["step"] += 1
        mean = state["mean"].mul_(beta1).add_(g, alpha=1 - beta1)
        square = state["square"].mul_(beta2).addcmul_(g, g, value=1 - beta2)
        spread = (square / (1 - beta2 ** state["step"])).sqrt_().add_(group["eps"])
        w.addcdiv_(mean, spread, value=-group["lr"] / (1 - beta1 ** state["step"]))


class LARS(_ByParameter):
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

    def _check(self, name: str, value: Any) -> None:
        if name != "trust" or value is not None:
            super()._check(name, value)

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
