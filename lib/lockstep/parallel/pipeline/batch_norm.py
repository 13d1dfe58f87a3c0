"""Batch norm in a pipeline: each micro-batch by its own statistics, the running ones from the whole batch.

Floor 2, room `parallel`. The plain layer moves its running statistics once for every micro-batch, so that m of them
count as m batches. This one only collects, and moves them once when the step ends, as one process with the whole batch
would. What it normalises by in training is still the micro-batch, as in GPipe. Legend: x_NCHW activations; mean and
squared deviations of the sets a and b joined as in Chan, Golub and LeVeque 1983.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class DeferredBatchNorm2d(nn.BatchNorm2d):
    """`nn.BatchNorm2d` whose running statistics move once a step, by the statistics of all micro-batches together.

    The same state_dict. `Pipeline.step` calls `commit`; without a pipeline, call it before the optimizer.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self._make_room()

    def _make_room(self) -> None:
        # Buffers, so that they follow the layer to its device and are put aside when forward runs a second time.
        like = {"dtype": torch.float64, "device": None if self.running_mean is None else self.running_mean.device}
        self.register_buffer("count", torch.zeros((), **like), persistent=False)
        self.register_buffer("mean", torch.zeros(self.num_features, **like), persistent=False)
        self.register_buffer("deviation", torch.zeros(self.num_features, **like), persistent=False)

    @classmethod
    def convert(cls, model: nn.Module) -> nn.Module:
        """Put this layer in place of every `nn.BatchNorm2d`, with the same parameters and statistics; gives the model."""
        if type(model) is nn.BatchNorm2d:
            layer = cls(model.num_features, model.eps, model.momentum, model.affine, model.track_running_stats)
            layer.weight, layer.bias = model.weight, model.bias
            layer.running_mean, layer.running_var = model.running_mean, model.running_var
            layer.num_batches_tracked = model.num_batches_tracked
            layer._make_room()
            return layer.train(model.training)
        for name, child in model.named_children():
            setattr(model, name, cls.convert(child))
        return model

    def forward(self, x_NCHW: Tensor) -> Tensor:
        if not self.training or self.running_mean is None:
            return super().forward(x_NCHW)
        self._collect(x_NCHW.detach())
        return nn.functional.batch_norm(x_NCHW, None, None, self.weight, self.bias, True, 0.0, self.eps)

    @torch.no_grad()
    def _collect(self, x_NCHW: Tensor) -> None:
        n = x_NCHW.numel() // self.num_features
        if not n:  # a micro-batch without samples
            return
        var, mean = torch.var_mean(x_NCHW.double(), (0, 2, 3), correction=0)
        joined, step = self.count + n, mean - self.mean
        self.deviation += var * n + step.square() * (self.count * n / joined)
        self.mean += step * (n / joined)
        self.count += n

    @torch.no_grad()
    def commit(self) -> None:
        """Move the running statistics by what was collected; nothing happens when that is nothing."""
        if self.running_mean is None or not self.count:
            return
        self.num_batches_tracked += 1
        step = 1.0 / self.num_batches_tracked.item() if self.momentum is None else self.momentum
        self.running_mean.lerp_(self.mean.to(self.running_mean.dtype), step)
        self.running_var.lerp_((self.deviation / (self.count - 1)).to(self.running_var.dtype), step)
        for buffer in (self.count, self.mean, self.deviation):
            buffer.zero_()
