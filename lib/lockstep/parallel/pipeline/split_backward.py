"""Backward in two halves: the gradient of the input now, that of the weights when there is time.

Floor 2, room `parallel`. Inside `with DeferWeights(layers)`, linear layers and 2-D convolutions compute with functions
whose backward gives the input's gradient and leaves the weight's for later. All other parameters (batch norm's, which
are small) get their gradient in the first half. Legend: x_NCHW input, w_OIKK weight, dy gradient of the output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F


class DeferWeights:
    """For `layers` that `layers_that_split` found; `later` gets one function for each, in the order of backward; calling it adds to the parameters' `grad`.

    Layers get another `forward` and no mode is set, because backward leaves modes behind, and forward may run again
    inside it (`torch.utils.checkpoint`), where it has to do as before. One with a method `apply_weight(x, bias)`, by which
    it uses its weight and nothing else, such as one shared out among ranks, gets another of those.
    """

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        self.later: list[Callable[[], None]] = []
        self._layers = layers

    def __enter__(self) -> Self:
        for layer in self._layers:
            instead = partial(_linear if isinstance(layer, nn.Linear) else _conv2d, layer, self.later)
            if _replaced(layer) == "forward":
                instead = partial(_with_bias, layer, instead)
            vars(layer)[_replaced(layer)] = instead
        return self

    def __exit__(self, *_: object) -> None:
        for layer in self._layers:
            del vars(layer)[_replaced(layer)]

    def finish(self) -> None:
        """The second half of backward."""
        while self.later:
            self.later.pop(0)()


def layers_that_split(module: nn.Module) -> list[nn.Module]:
    """The linear layers and 2-D convolutions in `module` whose forward nobody has changed, or that say what they do."""
    return [layer for layer in module.modules() if _is_plain(layer) and "forward" not in vars(layer)]


def _is_plain(layer: nn.Module) -> bool:
    known = type(layer).forward in (nn.Linear.forward, nn.Conv2d.forward) or hasattr(layer, "apply_weight")
    if isinstance(layer, nn.Conv2d):
        return known and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    return known and isinstance(layer, nn.Linear)


def _replaced(layer: nn.Module) -> str:
    return "apply_weight" if hasattr(layer, "apply_weight") else "forward"


def _with_bias(layer: nn.Module, instead: Callable[[Tensor, Tensor | None], Tensor], x: Tensor) -> Tensor:
    return instead(x, layer.bias)


def _linear(layer: nn.Linear, later: list[Callable[[], None]], x: Tensor, bias: Tensor | None) -> Tensor:
    if _can_wait(layer.weight, bias):
        return _Linear.apply(x, layer.weight, bias, later)
    return F.linear(x, layer.weight, bias)


def _conv2d(layer: nn.Conv2d, later: list[Callable[[], None]], x_NCHW: Tensor, bias: Tensor | None) -> Tensor:
    how = layer.stride, layer.padding, layer.dilation, layer.groups
    if _can_wait(layer.weight, bias) and x_NCHW.dim() == 4:
        return _Conv2d.apply(x_NCHW, layer.weight, bias, later, how)
    return F.conv2d(x_NCHW, layer.weight, bias, *how)


def _can_wait(weight: Tensor, bias: Tensor | None) -> bool:
    """Parameters that are leaves: what was computed from others needs its gradient now. Autocast casts them first."""
    leaves = all(t is None or (t.is_leaf and t.requires_grad) for t in (weight, bias))
    return leaves and torch.is_grad_enabled() and not torch.is_autocast_enabled(weight.device.type)


class _Linear(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, later: list) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.leaves, ctx.later = (weight, bias), later
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, None, None, None]:
        x, weight = ctx.saved_tensors
        leaf, bias = ctx.leaves  # a saved tensor is a copy where forward runs again

        def gradients() -> None:
            rows = dy.reshape(-1, dy.shape[-1])
            _add(leaf, rows.t() @ x.reshape(-1, x.shape[-1]))
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
        ctx.leaves, ctx.later, ctx.how = (w_OIKK, bias), later, how
        return F.conv2d(x_NCHW, w_OIKK, bias, *how)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, None, None, None, None]:
        x_NCHW, w_OIKK = ctx.saved_tensors
        (leaf, bias), how = ctx.leaves, ctx.how

        def gradients() -> None:
            _add(leaf, _conv2d_backward(dy, x_NCHW, w_OIKK, how, 1))
            if bias is not None:
                _add(bias, dy.sum((0, 2, 3)))

        ctx.later.append(gradients)
        dx = _conv2d_backward(dy, x_NCHW, w_OIKK, how, 0) if ctx.needs_input_grad[0] else None
        return dx, None, None, None, None


def _conv2d_backward(dy: Tensor, x_NCHW: Tensor, w_OIKK: Tensor, how: Sequence[Any], which: int) -> Tensor:
    """The gradient of the input (0) or of the weight (1) alone; `torch.nn.grad` takes up to twice as long for it."""
    stride, padding, dilation, groups = how
    mask = [which == 0, which == 1, False]
    return torch.ops.aten.convolution_backward(
        dy, x_NCHW, w_OIKK, None, stride, padding, dilation, False, (0, 0), groups, mask
    )[which]


@torch.no_grad()
def _add(parameter: Tensor, gradient: Tensor) -> None:
    if parameter.grad is None:
        parameter.grad = gradient.detach()
    else:
        parameter.grad += gradient
