"""Backward in two halves: the gradient of the input now, that of the weights when there is time.

Floor 2, room `parallel`. While a chunk's forward runs inside `DeferWeights`, linear layers and 2-D convolutions whose
weight is a parameter are replaced by functions whose backward gives the input's gradient and leaves the weight's for
later. All other parameters (batch norm's, which are small) get their gradient in the first half. Legend: x_NCHW input,
w_OIKK weight, dy gradient of the output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F
from torch.nn.grad import conv2d_input, conv2d_weight
from torch.overrides import TorchFunctionMode


class DeferWeights(TorchFunctionMode):
    """`later` gets one function for each layer, in the order of backward; calling it adds to the parameters' `grad`."""

    def __init__(self) -> None:
        super().__init__()
        self.later: list[Callable[[], None]] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.linear and (found := _named(args, kwargs, ("input", "weight", "bias"))):
            x, weight, bias = (found.get(name) for name in ("input", "weight", "bias"))
            if _can_wait(weight, bias):
                return _Linear.apply(x, weight, bias, self.later)
        if func is F.conv2d and (found := _named(args, kwargs, _CONV)):
            x, weight, bias = (found.get(name) for name in ("input", "weight", "bias"))
            how = [found.get(name, default) for name, default in _HOW]
            if _can_wait(weight, bias) and x.dim() == 4 and not isinstance(how[1], str):
                return _Conv2d.apply(x, weight, bias, self.later, how)
        return func(*args, **kwargs)

    def finish(self) -> None:
        """The second half of backward."""
        while self.later:
            self.later.pop(0)()


_HOW = (("stride", 1), ("padding", 0), ("dilation", 1), ("groups", 1))
_CONV = ("input", "weight", "bias", *(name for name, _ in _HOW))


def _named(args: Sequence[Any], kwargs: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {**dict(zip(names, args, strict=False)), **kwargs}


def _can_wait(weight: Tensor, bias: Tensor | None) -> bool:
    """Parameters that are leaves: what was computed from others needs its gradient now. Autocast casts them first."""
    leaves = all(t is None or (t.is_leaf and t.requires_grad) for t in (weight, bias))
    return leaves and torch.is_grad_enabled() and not torch.is_autocast_enabled(weight.device.type)


class _Linear(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, later: list) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.bias, ctx.later = bias, later
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, None, None, None]:
        x, weight = ctx.saved_tensors
        bias, weight_leaf = ctx.bias, weight

        def gradients() -> None:
            rows = dy.reshape(-1, dy.shape[-1])
            _add(weight_leaf, rows.t() @ x.reshape(-1, x.shape[-1]))
            if bias is not None:
                _add(bias, rows.sum(0))

        ctx.later.append(gradients)
        return dy @ weight if ctx.needs_input_grad[0] else None, None, None, None


class _Conv2d(Function):
    @staticmethod
    def forward(
        ctx: Any, x_NCHW: Tensor, w_OIKK: Tensor, bias: Tensor | None, later: list, how: Sequence[Any]
    ) -> Tensor:
        ctx.save_for_backward(x_NCHW, w_OIKK)
        ctx.bias, ctx.later, ctx.how = bias, later, how
        return F.conv2d(x_NCHW, w_OIKK, bias, *how)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, None, None, None, None]:
        x_NCHW, w_OIKK = ctx.saved_tensors
        bias, how = ctx.bias, ctx.how

        def gradients() -> None:
            _add(w_OIKK, conv2d_weight(x_NCHW, w_OIKK.shape, dy, *how))
            if bias is not None:
                _add(bias, dy.sum((0, 2, 3)))

        ctx.later.append(gradients)
        dx = conv2d_input(x_NCHW.shape, w_OIKK, dy, *how) if ctx.needs_input_grad[0] else None
        return dx, None, None, None, None


@torch.no_grad()
def _add(parameter: Tensor, gradient: Tensor) -> None:
    if parameter.grad is None:
        parameter.grad = gradient.detach()
    else:
        parameter.grad += gradient
