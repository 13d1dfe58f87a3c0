"""How many multiply-adds an operation of PyTorch makes, and which operations make none.

Floor 1, room `cost`. Multiply-adds are those of products of matrices and of convolutions; by the field's convention
additions of a bias, activation functions, pooling, normalisation and reductions count as none. An operation that is in
neither list is unknown, and nobody may take it for free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import Any

import torch
from torch import Tensor


def _convolution(args: Sequence[Any], out: Tensor) -> int:
    x, w, transposed = args[0], args[1], args[6]
    # A weight has the shape (out, in / groups, *kernel), transposed (in, out / groups, *kernel).
    return (x if transposed else out).numel() * prod(w.shape[1:])


def _convolution_backward(args: Sequence[Any], out: Sequence[Tensor | None]) -> int:
    """The gradients of input and weight cost as much as the forward pass each, whatever the groups are."""
    grad, x, w, transposed, wanted = args[0], args[1], args[2], args[7], args[10]
    return (x if transposed else grad).numel() * prod(w.shape[1:]) * sum(wanted[:2])


def _matrices(first: int) -> Callable[[Sequence[Any], Any], int]:
    """A product whose two factors are the arguments `first` and `first + 1`, of shapes (..., m, k) and (..., k, n)."""

    def count(args: Sequence[Any], out: Tensor) -> int:
        a, b = args[first : first + 2]
        return a.numel() * (b.shape[-1] if b.dim() > 1 else 1)

    return count


def _attention(first: int, along_keys: int, along_values: int) -> Callable[[Sequence[Any], Any], int]:
    """Fused attention: how often it multiplies (queries, keys) by the size of a key, and of a value."""

    def count(args: Sequence[Any], out: Any) -> int:
        q, k, v = args[first : first + 3]
        return prod(q.shape[:-1]) * k.shape[-2] * (along_keys * q.shape[-1] + along_values * v.shape[-1])

    return count


COUNTED: dict[str, Callable[[Sequence[Any], Any], int]] = {
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "mm": _matrices(0),
    "bmm": _matrices(0),
    "mv": _matrices(0),
    "dot": _matrices(0),
    "addmm": _matrices(1),
    "addmv": _matrices(1),
    "baddbmm": _matrices(1),
    "addmm_": _matrices(1),
    "baddbmm_": _matrices(1),
    "_scaled_dot_product_flash_attention_for_cpu": _attention(0, 1, 1),
    # it computes the scores again (Dao et al. 2022, algorithm 4)
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention(1, 3, 2),
}

FREE = frozenset(
    """
    empty empty_like empty_strided new_empty new_empty_strided new_zeros new_ones new_full zeros zeros_like ones
    ones_like full full_like scalar_tensor arange linspace eye fill_ zero_ copy_ clone contiguous _to_copy lift_fresh
    lift_fresh_copy bernoulli bernoulli_ rand rand_like randn randn_like uniform_ normal_ native_dropout
    cat stack index index_put index_put_ index_select gather scatter scatter_ scatter_add embedding roll flip
    constant_pad_nd reflection_pad2d replication_pad2d pixel_shuffle pixel_unshuffle channel_shuffle repeat
    _unsafe_view _reshape_copy view_copy as_strided_ resize_ set_ im2col col2im triu tril masked_fill_ masked_fill
    max_pool2d_with_indices max_pool3d_with_indices avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d
    adaptive_max_pool2d max_unpool2d upsample_nearest2d upsample_bilinear2d upsample_bicubic2d
    native_batch_norm native_layer_norm native_group_norm _native_batch_norm_legit cudnn_batch_norm
    _softmax _log_softmax _safe_softmax nll_loss nll_loss2d nll_loss_forward nll_loss2d_forward mse_loss
    sum mean amax amin max min argmax argmin var var_mean std std_mean prod cumsum logsumexp linalg_vector_norm norm any
    all hardswish hardswish_ hardsigmoid_ leaky_relu leaky_relu_ elu elu_ mish mish_ softplus softshrink
    log_sigmoid_forward topk sort select slice glu prelu _prelu_kernel rrelu_with_noise
    """.split()
)

QUESTIONS = ("prim", "profiler")  # namespaces of what asks about a tensor, or marks a place for a profiler


class UnknownOperation(ValueError):
    """An operation of which it is not known how many multiply-adds it makes."""


def multiply_adds(operation: Any, args: Sequence[Any], out: Any) -> int:
    """The multiply-adds of one operation of `torch.ops`; raises UnknownOperation for one that is in no list."""
    counter = _counter(operation)
    return counter(args, out) if counter else 0


@cache
def _counter(operation: Any) -> Callable[[Sequence[Any], Any], int] | None:
    name = operation.overloadpacket.__name__
    if operation.namespace == "aten":
        if name in COUNTED:
            return COUNTED[name]
        if name in FREE or operation.is_view or torch.Tag.pointwise in operation.tags:
            return None
        forward, backward, _ = name.partition("_backward")
        if backward and (forward in FREE or _is_pointwise(forward)):
            return None
    elif operation.namespace in QUESTIONS:
        return None
    raise UnknownOperation(f"{operation.namespace}.{name}")


@cache
def moves_memory(operation: Any) -> bool:
    """False for what only looks at memory in another way, asks about it or sets it aside."""
    name = operation.overloadpacket.__name__
    idle = name.startswith(("empty", "new_empty")) or name in ("_unsafe_view", "as_strided_", "set_", "resize_")
    return not (operation.is_view or operation.namespace in QUESTIONS or idle)


def _is_pointwise(name: str) -> bool:
    packet = getattr(torch.ops.aten, name, None)
    overloads = packet.overloads() if packet is not None else []
    return any(torch.Tag.pointwise in getattr(packet, one).tags for one in overloads)
