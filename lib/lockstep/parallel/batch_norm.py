"""Batch norm over the images of all ranks, as if they were one batch.

Floor 2, room `parallel`. Legend: x_NCHW activations; C channels; n elements of a channel over all ranks; mu mean,
var biased variance, x_hat = (x - mu) / sqrt(var + eps), dy the gradient of the output.

One collective in forward, one in backward. Forward gathers each rank's count, mean and sum of squared deviations and
joins them as Chan, Golub and LeVeque 1983 do: sums of squares alone would cancel where the mean is large. Backward adds
up sum(dy) and sum(dy x_hat), which are all that the gradient of x needs from elsewhere (Ioffe and Szegedy 2015,
section 3).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lockstep.comm import Communicator


class SyncBatchNorm2d(nn.BatchNorm2d):
    """`nn.BatchNorm2d` whose training statistics are those of all ranks' images together; the same state_dict.

    Takes and gives (N, C, H, W); N may differ by rank and be 0. Every rank must run it forward and backward alike.
    In evaluation it normalises by the running statistics, without communication.
    Raises ValueError when all ranks together have fewer than two elements a channel.
    """

    def __init__(
        self,
        num_features: int,
        comm: Communicator,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self.comm = comm

    @classmethod
    def convert(cls, model: nn.Module, comm: Communicator) -> nn.Module:
        """Put this layer in place of every `nn.BatchNorm2d` of `model`, with the same parameters and statistics.

        Changes `model` and gives it; where it is itself a batch norm, gives the new layer.
        """
        if type(model) is nn.BatchNorm2d:
            return cls._in_place_of(model, comm)
        for name, child in model.named_children():
            setattr(model, name, cls.convert(child, comm))
        return model

    @classmethod
    def _in_place_of(cls, norm: nn.BatchNorm2d, comm: Communicator) -> SyncBatchNorm2d:
        layer = cls(norm.num_features, comm, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
        layer.weight, layer.bias = norm.weight, norm.bias
        layer.running_mean, layer.running_var = norm.running_mean, norm.running_var
        layer.num_batches_tracked = norm.num_batches_tracked
        return layer.train(norm.training)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        if not self.training and self.running_mean is not None:
            return super().forward(x_NCHW)
        self._check_input_dim(x_NCHW)
        y_NCHW, mu, var, n = _Normalise.apply(x_NCHW, self.weight, self.bias, self.eps, self.comm)
        if self.training and self.running_mean is not None:
            self._follow(mu, var * (n / (n - 1)))
        return y_NCHW

    @torch.no_grad()
    def _follow(self, mu: Tensor, unbiased_var: Tensor) -> None:
        """Move the running statistics towards this batch's; without a momentum they are the mean over all batches."""
        self.num_batches_tracked += 1
        step = 1.0 / self.num_batches_tracked.item() if self.momentum is None else self.momentum
        self.running_mean.lerp_(mu.to(self.running_mean.dtype), step)
        self.running_var.lerp_(unbiased_var.to(self.running_var.dtype), step)


class _Normalise(torch.autograd.Function):
    """(x, weight, bias) -> (y, mu, var, n); only y has a gradient."""

    @staticmethod
    def forward(
        ctx: Any, x_NCHW: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, comm: Communicator
    ) -> tuple[Tensor, Tensor, Tensor, int]:
        x = x_NCHW if x_NCHW.dtype is torch.float64 else x_NCHW.float()  # half precision cannot hold the sums
        mu, var, n = _moments_of_all(x, comm)
        inverse_std = torch.rsqrt(var + eps)
        x_hat = (x - _by_channel(mu)) * _by_channel(inverse_std)
        ctx.save_for_backward(x_hat, inverse_std, weight)
        ctx.comm, ctx.n = comm, n
        ctx.mark_non_differentiable(mu, var)
        y = x_hat if weight is None else x_hat * _by_channel(weight) + _by_channel(bias)
        return y.to(x_NCHW.dtype), mu, var, n

    @staticmethod
    def backward(ctx: Any, dy: Tensor, *_: Any) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        x_hat, inverse_std, weight = ctx.saved_tensors
        dtype, dy = dy.dtype, dy.to(x_hat.dtype)
        own = torch.stack([dy.sum((0, 2, 3)), (dy * x_hat).sum((0, 2, 3))])
        sum_dy, sum_dy_x_hat = ctx.comm.all_reduce(own.clone()) / ctx.n
        dx = (dy - _by_channel(sum_dy) - x_hat * _by_channel(sum_dy_x_hat)) * _by_channel(
            inverse_std if weight is None else inverse_std * weight
        )
        if weight is None:
            return dx.to(dtype), None, None, None, None
        return dx.to(dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


def _moments_of_all(x: Tensor, comm: Communicator) -> tuple[Tensor, Tensor, int]:
    """(mu, biased variance, n) of each channel over all ranks, from one all-gather."""
    channels, count = x.shape[1], x.numel() // x.shape[1]
    mean = x.mean((0, 2, 3)) if count else x.new_zeros(channels)
    deviation = (x - _by_channel(mean)).square().sum((0, 2, 3))
    # In double, since a float32 counts no further than 2^24.
    own = torch.cat([mean.new_tensor([count], dtype=torch.float64), mean.double(), deviation.double()])
    rows = comm.all_gather(own.unsqueeze(0))
    counts, means, deviations = rows[:, :1], rows[:, 1 : channels + 1], rows[:, channels + 1 :]
    n = int(counts.sum())
    if n < 2:
        raise ValueError(f"batch norm needs at least two elements a channel, and all ranks together have {n}")
    mu = (counts * means).sum(0) / n
    var = (deviations + counts * (means - mu).square()).sum(0) / n
    return mu.to(x.dtype), var.to(x.dtype), n


def _by_channel(values: Tensor) -> Tensor:
    """(C,) as it multiplies (N, C, H, W)."""
    return values.view(1, -1, 1, 1)
