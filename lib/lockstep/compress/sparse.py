"""Some values of a tensor and where they are.

Floor 2, room `compress`. A place is a 4-byte index into the flat tensor, so a sent value costs 8 bytes in float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lockstep.compress.gathered import Gathered
from lockstep.compress.payload import Payload, join_fields, split_fields
from lockstep.compress.work import passes, scattered
from lockstep.cost import Cost

INDEX = torch.int32
_LARGE, _SAMPLE = 2**16, 2**12


class Sparse(Gathered):
    """A compressor that sends values and their indices."""

    def decompress(self, payload: Payload) -> Tensor:
        flat = torch.zeros(payload.shape.numel(), dtype=payload.dtype, device=payload.wire.device)
        self.add(payload, flat)
        return flat.view(payload.shape)

    def combine_cost(self, shape: Sequence[int], nbytes: int, dtype: torch.dtype) -> Cost:
        """The mean begins as zeros; payloads are read, and each value is added at its place."""
        return super().combine_cost(shape, nbytes, dtype) + scattered(nbytes // sparse_bytes(1, dtype), 2)

    def subtract_cost(self, shape: Sequence[int], nbytes: int, dtype: torch.dtype) -> Cost:
        """The payload is read, and each value is taken off at its place."""
        return Cost(bytes=nbytes) + scattered(nbytes // sparse_bytes(1, dtype), 2)

    def add(self, payload: Payload, total: Tensor) -> None:
        """Only at the places that were sent."""
        indices, values = fields_of(payload)
        total.index_add_(0, indices, values.to(total.dtype))

    def subtract(self, payload: Payload, tensor: Tensor) -> None:
        """Only at the places that were sent; `tensor` is contiguous."""
        indices, values = fields_of(payload)
        tensor.view(-1).index_add_(0, indices, values.to(tensor.dtype), alpha=-1)


def sparse_payload(tensor: Tensor, indices: Tensor) -> Payload:
    """The values of `tensor` at `indices` of its flat form."""
    check_indexable(tensor)
    values = tensor.reshape(-1)[indices]
    fields = (values, indices.to(INDEX)) if values.itemsize >= INDEX.itemsize else (indices.to(INDEX), values)
    return Payload(join_fields(*fields), tensor.shape, tensor.dtype)


def fields_of(payload: Payload) -> tuple[Tensor, Tensor]:
    """(indices, values) of a sparse payload."""
    dtype = payload.dtype
    k = payload.wire.numel() // (INDEX.itemsize + dtype.itemsize)
    if dtype.itemsize >= INDEX.itemsize:
        values, indices = split_fields(payload.wire, (dtype, k), (INDEX, k))
    else:
        indices, values = split_fields(payload.wire, (INDEX, k), (dtype, k))
    return indices, values


def sparse_bytes(k: int, dtype: torch.dtype) -> int:
    """Bytes of k values of `dtype` with their indices."""
    return k * (INDEX.itemsize + dtype.itemsize)


def check_indexable(tensor: Tensor) -> None:
    """ValueError for a tensor that has more elements than an index can count."""
    if tensor.numel() > torch.iinfo(INDEX).max:
        raise ValueError(f"a tensor of {tensor.numel()} elements has places beyond a 4-byte index: split it.")


def kept(n: int, fraction: float) -> int:
    """How many of n elements a fraction keeps: at least one, where there is one."""
    return min(n, max(1, round(fraction * n)))


def largest_cost(n: int, dtype: torch.dtype) -> Cost:
    """Of finding the largest of n values on a GPU: a pass for each byte of a value, from the highest down, finds how
    large the least of them is, and another collects them (torch's radix selection, `TensorTopK.cu`)."""
    return passes(n, dtype, dtype.itemsize + 1)


def largest(flat: Tensor, k: int) -> Tensor:
    """The indices of the k values of largest magnitude, in no order.

    Of a large tensor a sample says above which magnitude some more than k values lie; if they do, the k are among them.
    """
    sizes, n = flat.abs(), flat.numel()
    if n >= _LARGE and 8 * k <= n:
        sample = sizes[:: n // _SAMPLE]
        least = sample.topk(math.ceil(1.5 * k / n * len(sample)) + 8).values[-1]
        near = (sizes >= least).nonzero().view(-1)
        if k <= near.numel() <= n // 4:
            return near[sizes[near].topk(k, sorted=False).indices]
    return sizes.topk(k, sorted=False).indices
