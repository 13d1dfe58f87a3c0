"""What is done to images and labels before they meet the network, and how to get them back.

Floor 0, room `data`. Legend: N images, C channels, H x W pixels, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn


class Normalize(nn.Module):
    """(x - mean) / deviation for each channel of images (N, C, H, W); `inverse` undoes it.

    Raises ValueError for deviations that are not above 0, or another number of them than of means.
    """

    def __init__(self, mean: Tensor | Sequence[float], deviation: Tensor | Sequence[float]) -> None:
        super().__init__()
        mean, deviation = (torch.as_tensor(each, dtype=torch.get_default_dtype()) for each in (mean, deviation))
        if mean.dim() != 1 or mean.shape != deviation.shape:
            raise ValueError(
                f"mean has shape {tuple(mean.shape)}, deviation {tuple(deviation.shape)}: give one number a channel each"
            )
        if not (deviation > 0).all() or not (mean.isfinite() & deviation.isfinite()).all():
            raise ValueError(f"mean {mean.tolist()} must be finite, deviation {deviation.tolist()} above 0 and finite")
        self.register_buffer("mean", mean.reshape(-1, 1, 1))
        self.register_buffer("deviation", deviation.reshape(-1, 1, 1))

    @classmethod
    def of(cls, x_NCHW: Tensor) -> Self:
        """The one that gives each channel of these images mean 0 and deviation 1; a channel that is constant, 0."""
        deviation, mean = torch.std_mean(x_NCHW, dim=(0, 2, 3))
        return cls(mean, torch.where(deviation > 0, deviation, 1))

    def forward(self, x_NCHW: Tensor) -> Tensor:
        return (x_NCHW - self.mean) / self.deviation

    def inverse(self, x_NCHW: Tensor) -> Tensor:
        """The images as they were."""
        return x_NCHW * self.deviation + self.mean


class OneHot(nn.Module):
    """Labels (N,) as rows (N, K) that are 1 at the label and 0 elsewhere; `inverse` gives the labels back.

    Raises ValueError for a label that is no class.
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        if isinstance(classes, bool) or not isinstance(classes, int) or classes < 1:
            raise ValueError(f"classes must be a whole number of at least 1, not {classes!r}")
        self.classes = classes

    def forward(self, labels: Tensor) -> Tensor:
        if labels.is_floating_point():
            raise ValueError(f"labels are whole numbers, not {labels.dtype}")
        outside = labels[(labels < 0) | (labels >= self.classes)]
        if len(outside):
            raise ValueError(f"label {outside[0].item()} is none of the classes 0 to {self.classes - 1}")
        return nn.functional.one_hot(labels.long(), self.classes).to(torch.get_default_dtype())

    def inverse(self, rows_NK: Tensor) -> Tensor:
        """The class of the largest entry of each row: the label, also of probabilities or logits."""
        if rows_NK.shape[-1:] != (self.classes,):
            raise ValueError(f"rows of {self.classes} numbers are expected, not of shape {tuple(rows_NK.shape)}")
        return rows_NK.argmax(dim=-1)
