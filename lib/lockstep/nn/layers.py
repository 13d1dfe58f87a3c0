"""Layers that compute by `lockstep.nn.functional` and drop into any torch model.

Floor 0, room `nn`. Each class is torch's own with another `forward`: parameters, first values, `state_dict` names and
`repr` stay, and autograd gets its gradients from our backward functions. `with_layers(model)` puts them into a model.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from torch import Tensor, nn

from lockstep.nn import operations as ops
from lockstep.nn.functional.windows import Pair


def _says_where(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A ValueError of the forward pass names the layer, and its place in the model if `with_layers` put it there."""

    @wraps(forward)
    def call(self: nn.Module, *inputs: Tensor) -> Tensor:
        try:
            return forward(self, *inputs)
        except ValueError as error:
            name = " ".join(filter(None, (getattr(self, "path", ""), repr(self))))
            raise ValueError(f"{name}: {error}") from None

    return call


def _only(layer: nn.Module, **settings: Any) -> None:
    """Raises ValueError when a layer has been given anything else than what our functions can do."""
    for name, value in settings.items():
        if getattr(layer, name) != value:
            raise ValueError(f"only {name}={value!r} is implemented here, not {getattr(layer, name)!r}")


def _one(value: Pair) -> Pair:
    """3 for (3, 3): torch keeps pairs, and a number is easier to read."""
    return value[0] if isinstance(value, tuple) and value[0] == value[1] else value


class Conv2d(nn.Conv2d):
    """`torch.nn.Conv2d` by im2col and GEMM; padding with zeros, in numbers."""

    @_says_where
    def forward(self, x: Tensor) -> Tensor:
        _only(self, padding_mode="zeros")
        how = (_one(self.stride), _one(self.padding), _one(self.dilation), self.groups)
        return ops.Conv2d.apply(x, self.weight, self.bias, *how)


class Linear(nn.Linear):
    """`torch.nn.Linear`."""

    @_says_where
    def forward(self, x: Tensor) -> Tensor:
        return ops.Linear.apply(x, self.weight, self.bias)


class MaxPool2d(nn.MaxPool2d):
    """`torch.nn.MaxPool2d`, without `ceil_mode` and `return_indices`."""

    @_says_where
    def forward(self, x: Tensor) -> Tensor:
        _only(self, ceil_mode=False, return_indices=False)
        return ops.MaxPool2d.apply(x, self.kernel_size, self.stride, self.padding, self.dilation)


class AvgPool2d(nn.AvgPool2d):
    """`torch.nn.AvgPool2d`, with padding counted as zeros and without `ceil_mode`."""

    @_says_where
    def forward(self, x: Tensor) -> Tensor:
        _only(self, ceil_mode=False, divisor_override=None)
        if self.padding not in (0, (0, 0)):
            _only(self, count_include_pad=True)
        return ops.AvgPool2d.apply(x, self.kernel_size, self.stride, self.padding)


class AdaptiveAvgPool2d(nn.AdaptiveAvgPool2d):
    """`torch.nn.AdaptiveAvgPool2d`."""

    @_says_where
    def forward(self, x: Tensor) -> Tensor:
        size = self.output_size if isinstance(self.output_size, tuple) else (self.output_size,) * 2
        return ops.AdaptiveAvgPool2d.apply(
            x, tuple(s if o is None else o for o, s in zip(size, x.shape[2:], strict=True))
        )


class ReLU(nn.ReLU):
    """`torch.nn.ReLU`; never in place."""

    def forward(self, x: Tensor) -> Tensor:
        return ops.ReLU.apply(x)


class Dropout(nn.Dropout):
    """`torch.nn.Dropout`; never in place."""

    @_says_where
    def forward(self, x: Tensor) -> Tensor:
        return ops.Dropout.apply(x, self.p) if self.training else x


class _BatchNorm(nn.modules.batchnorm._BatchNorm):
    @_says_where
    def forward(self, x: Tensor) -> Tensor:
        self._check_input_dim(x)
        weight = x.new_ones(self.num_features) if self.weight is None else self.weight
        bias = x.new_zeros(self.num_features) if self.bias is None else self.bias
        if not self.training and self.running_mean is not None:
            return ops.Normalize.apply(x, weight, bias, self.running_mean, self.running_var, self.eps)
        y, mean, variance = ops.BatchNorm.apply(x, weight, bias, self.eps)
        if self.training and self.running_mean is not None:
            self._remember(mean, variance, x.numel() // x.shape[1])
        return y

    def _remember(self, mean: Tensor, variance: Tensor, many: int) -> None:
        self.num_batches_tracked += 1
        momentum = 1 / int(self.num_batches_tracked) if self.momentum is None else self.momentum
        before = self.running_mean, self.running_var
        for old, new in zip(before, ops.F.running_statistics(*before, mean, variance, many, momentum), strict=True):
            old.copy_(new)


class BatchNorm1d(_BatchNorm, nn.BatchNorm1d):
    """`torch.nn.BatchNorm1d`."""


class BatchNorm2d(_BatchNorm, nn.BatchNorm2d):
    """`torch.nn.BatchNorm2d`."""


class CrossEntropyLoss(nn.CrossEntropyLoss):
    """`torch.nn.CrossEntropyLoss`: the mean over the images, without weights, smoothing and labels to ignore."""

    @_says_where
    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        _only(self, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0)
        return ops.SoftmaxCrossEntropy.apply(logits, labels)


OURS: dict[type[nn.Module], type[nn.Module]] = {
    nn.Conv2d: Conv2d, nn.Linear: Linear, nn.MaxPool2d: MaxPool2d, nn.AvgPool2d: AvgPool2d,
    nn.AdaptiveAvgPool2d: AdaptiveAvgPool2d, nn.ReLU: ReLU, nn.Dropout: Dropout, nn.BatchNorm1d: BatchNorm1d,
    nn.BatchNorm2d: BatchNorm2d, nn.CrossEntropyLoss: CrossEntropyLoss,
}  # fmt: skip
FREE = (nn.Flatten, nn.Identity)  # compute nothing


def with_layers(model: nn.Module, table: Mapping[type[nn.Module], type[nn.Module]] = OURS) -> nn.Module:
    """A copy of `model` in which every layer of torch computes by the class that `table` has for it.

    table: from a class of torch to one derived from it that adds no state. Parameters are copied, hooks stay. Raises
    ValueError, with its name, for a layer of torch that the table does not know: nothing is left to torch in silence.
    """
    model = copy.deepcopy(model)
    for path, layer in model.named_modules():
        if type(layer) in table:
            layer.__class__ = table[type(layer)]
            layer.path = path
        elif type(layer).__module__.startswith("torch.") and not any(layer.children()) and not isinstance(layer, FREE):
            raise ValueError(f"{path or 'the model'} is {layer!r}, and there is no such layer among ours")
    return model
