"""`lockstep.nn.functional` for autograd: one `torch.autograd.Function` for each pair of forward and backward.

Floor 0, room `nn`; `layers.py` has the modules. Each `forward` keeps what its `backward` needs and no more. A backward
cannot be differentiated again.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from lockstep.nn import functional as F


class Conv2d(Function):
    """(x, weight, bias or None, stride, padding, dilation, groups) -> y."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, *how: Any) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.how = how
        return F.conv2d(x, weight, bias, *how)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        dx, dw, db = F.conv2d_backward(grad, *ctx.saved_tensors, *ctx.how)
        return dx, dw, db if ctx.needs_input_grad[2] else None, *(None,) * len(ctx.how)


class Linear(Function):
    """(x, weight, bias or None) -> y."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return F.linear(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        dx, dw, db = F.linear_backward(grad, *ctx.saved_tensors)
        return dx, dw, db if ctx.needs_input_grad[2] else None


class MaxPool2d(Function):
    """(x, kernel, stride, padding, dilation) -> y."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *how: Any) -> Tensor:
        y, where = F.max_pool2d(x, *how)
        ctx.save_for_backward(where)
        ctx.size, ctx.others = x.shape[2:], (None,) * len(how)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return F.max_pool2d_backward(grad, *ctx.saved_tensors, *ctx.size), *ctx.others


class AvgPool2d(Function):
    """(x, kernel, stride, padding) -> y."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *how: Any) -> Tensor:
        ctx.size, ctx.how = x.shape[2:], how
        return F.avg_pool2d(x, *how)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return F.avg_pool2d_backward(grad, *ctx.size, *ctx.how), *(None,) * len(ctx.how)


class AdaptiveAvgPool2d(Function):
    """(x, size) -> y."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, size: tuple[int, int]) -> Tensor:
        ctx.size = x.shape[2:]
        return F.adaptive_avg_pool2d(x, size)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return F.adaptive_avg_pool2d_backward(grad, *ctx.size), None


class ReLU(Function):
    """(x) -> y."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = F.relu(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return F.relu_backward(grad, *ctx.saved_tensors)


class Dropout(Function):
    """(x, p) -> y."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        y, kept = F.dropout(x, p)
        ctx.save_for_backward(kept)
        ctx.p = p
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return F.dropout_backward(grad, *ctx.saved_tensors, ctx.p), None


class BatchNorm(Function):
    """(x, weight, bias, eps) -> y, and the batch's mean and variance, which carry no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        y, mean, variance = F.batch_norm(x, weight, bias, eps)
        ctx.save_for_backward(x, weight, mean, variance)
        ctx.eps = eps
        ctx.mark_non_differentiable(mean, variance)
        return y, mean, variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        return *F.batch_norm_backward(grad, *ctx.saved_tensors, ctx.eps), None


class Normalize(Function):
    """(x, weight, bias, mean, variance, eps) -> y; mean and variance are constants."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, eps: float
    ) -> Tensor:
        ctx.save_for_backward(x, weight, mean, variance)
        ctx.eps = eps
        return F.normalize(x, mean, variance, weight, bias, eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return *F.normalize_backward(grad, *ctx.saved_tensors, ctx.eps), None, None, None


class SoftmaxCrossEntropy(Function):
    """(logits, labels) -> mean loss. The forward pass finds the gradient on its way."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        loss, gradient = F.softmax_cross_entropy(logits, labels)
        ctx.save_for_backward(gradient)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return grad * ctx.saved_tensors[0], None
