"""ReLU and dropout.

Floor 0, room `nn`.
"""

from __future__ import annotations

import torch
from torch import Tensor


def relu(x: Tensor) -> Tensor:
    """max(x, 0); NaN stays NaN."""
    return x.clamp(min=0)


def relu_backward(grad: Tensor, y: Tensor) -> Tensor:
    """The gradient where the output `y` is positive, 0 elsewhere: the input need not be kept."""
    return grad * (y > 0)


def dropout(x: Tensor, p: float = 0.5) -> tuple[Tensor, Tensor]:
    """x with a share p of its elements set to 0 and the others divided by 1 - p, and the mask: True where they stay.

    Draws from torch's generator. Raises ValueError when p is not between 0 and 1.
    """
    if not 0 <= p <= 1:
        raise ValueError(f"p, the share that is dropped, must be between 0 and 1; it is {p!r}")
    kept = torch.empty_like(x).bernoulli_(1 - p).bool()
    return dropout_backward(x, kept, p), kept


def dropout_backward(grad: Tensor, kept: Tensor, p: float = 0.5) -> Tensor:
    """The gradient goes where the number went, with the same factor."""
    return torch.zeros_like(grad) if p == 1 else grad * kept.to(grad.dtype).div_(1 - p)
