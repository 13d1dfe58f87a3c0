"""Batch norm: each channel with mean 0 and variance 1 over the batch, then scaled and shifted.

Floor 0, room `nn`. Legend: N images, C channels, further axes are pixels; M numbers in a channel.
Source: Ioffe and Szegedy 2015, "Batch normalization", algorithm 1 and the gradients below it.
"""

from __future__ import annotations

from torch import Tensor


def batch_norm(x_NC: Tensor, weight_C: Tensor, bias_C: Tensor, eps: float = 1e-5) -> tuple[Tensor, Tensor, Tensor]:
    """The batch normalised by its own statistics, and these: y, mean (C,) and biased variance (C,).

    Raises ValueError for a channel of a single number, whose variance says nothing.
    """
    if x_NC.dim() < 2 or x_NC.numel() // x_NC.shape[1] < 2:
        raise ValueError(
            f"batch norm needs more than one number in each channel; the input has the shape {list(x_NC.shape)}"
        )
    mean, variance = x_NC.mean(_rest(x_NC)), x_NC.var(_rest(x_NC), unbiased=False)
    return normalize(x_NC, mean, variance, weight_C, bias_C, eps), mean, variance


def batch_norm_backward(
    grad_NC: Tensor, x_NC: Tensor, weight_C: Tensor, mean_C: Tensor, variance_C: Tensor, eps: float = 1e-5
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients for input, weight and bias, when mean and variance are those of `x` itself.

    With z = (x - mean) / sqrt(variance + eps): dx = weight / sqrt(variance + eps) (dy - mean(dy) - z mean(dy z)).
    """
    z = _on_channels(x_NC, mean_C, variance_C, eps)
    dw, db = (grad_NC * z).sum(_rest(x_NC)), grad_NC.sum(_rest(x_NC))
    many = x_NC.numel() // x_NC.shape[1]
    centred = grad_NC - _as(db / many, x_NC) - z * _as(dw / many, x_NC)
    return centred * _as(weight_C * (variance_C + eps).rsqrt(), x_NC), dw, db


def normalize(
    x_NC: Tensor, mean_C: Tensor, variance_C: Tensor, weight_C: Tensor, bias_C: Tensor, eps: float = 1e-5
) -> Tensor:
    """weight (x - mean) / sqrt(variance + eps) + bias: batch norm in evaluation, with statistics from before."""
    return _on_channels(x_NC, mean_C, variance_C, eps) * _as(weight_C, x_NC) + _as(bias_C, x_NC)


def normalize_backward(
    grad_NC: Tensor, x_NC: Tensor, weight_C: Tensor, mean_C: Tensor, variance_C: Tensor, eps: float = 1e-5
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients for input, weight and bias, when the statistics do not depend on `x`."""
    z = _on_channels(x_NC, mean_C, variance_C, eps)
    dx = grad_NC * _as(weight_C * (variance_C + eps).rsqrt(), x_NC)
    return dx, (grad_NC * z).sum(_rest(x_NC)), grad_NC.sum(_rest(x_NC))


def running_statistics(
    running_mean_C: Tensor, running_variance_C: Tensor, mean_C: Tensor, variance_C: Tensor, many: int, momentum: float
) -> tuple[Tensor, Tensor]:
    """What evaluation will use: the old statistics, moved a share `momentum` towards those of a batch.

    many: the numbers in a channel of the batch, M; the running variance is the unbiased one, M/(M - 1) times as large.
    """
    mean = running_mean_C + momentum * (mean_C - running_mean_C)
    return mean, running_variance_C + momentum * (variance_C * many / (many - 1) - running_variance_C)


def _rest(x: Tensor) -> tuple[int, ...]:
    """All axes but that of the channels."""
    return (0, *range(2, x.dim()))


def _as(one_C: Tensor, x: Tensor) -> Tensor:
    return one_C.view(-1, *(1,) * (x.dim() - 2))


def _on_channels(x: Tensor, mean_C: Tensor, variance_C: Tensor, eps: float) -> Tensor:
    return (x - _as(mean_C, x)) * _as((variance_C + eps).rsqrt(), x)
