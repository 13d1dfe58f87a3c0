"""The linear layer.

Floor 0, room `nn`. Legend: N rows of I inputs, O outputs; further axes before the last one count as rows.
"""

from __future__ import annotations

from torch import Tensor


def linear(x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """x W^T + b. Raises ValueError when the rows have another length than the weight takes."""
    if x_NI.dim() == 0 or x_NI.shape[-1] != weight_OI.shape[1]:
        raise ValueError(
            f"the weight of shape {list(weight_OI.shape)} takes rows of {weight_OI.shape[1]} numbers; the input has "
            f"the shape {list(x_NI.shape)}"
        )
    y = x_NI @ weight_OI.T
    return y if bias_O is None else y + bias_O


def linear_backward(grad_NO: Tensor, x_NI: Tensor, weight_OI: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients for input, weight and bias: dY W, dY^T X, and the sum of dY over the rows."""
    rows = grad_NO.reshape(-1, grad_NO.shape[-1])
    return grad_NO @ weight_OI, rows.T @ x_NI.reshape(-1, x_NI.shape[-1]), rows.sum(0)
