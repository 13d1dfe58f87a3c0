"""Convolutions whose channels are shared out among ranks.

Floor 2, room `parallel`. Read `tensor` first: shared-out output channels are a convolution's columns, shared-out input
channels its rows, and one after the other they need one all-reduce each way. Batch norm, dropout and pooling between
them look at one channel at a time, so each rank has those of its own channels (`own_batch_norm`).

Our own, because torch's sharded tensors give wrong results for a convolution (pytorch issue 186129).
Legend: x (N, C, H, W), y (N, K, H', W'), g groups.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from lockstep.comm import Communicator
from lockstep.parallel.conjugate import (
    copy_to_ranks,
    gather_from_ranks,
    joined,
    own_part,
    split_to_ranks,
    sum_over_ranks,
)
from lockstep.parallel.shares import hand_out, same_for_all, shares


class ChannelParallelConv2d(nn.Conv2d):
    """`layer` with its output channels shared out: x, the same on all ranks, to this rank's channels of y.

    gather: give all channels, on all ranks. With groups, each rank has whole groups. Rank 0's parameters are taken
    over. Collective: to build, to run forward and backward, and to ask for the `whole` layer again. ValueError for
    fewer output channels than ranks, or groups that the ranks do not divide.
    """

    def __init__(self, layer: nn.Conv2d, comm: Communicator, *, gather: bool = False) -> None:
        _check(layer, "ChannelParallelConv2d")
        sizes = shares(layer.out_channels, comm.size, "output channels")
        if layer.groups > 1 and layer.groups % comm.size:
            raise ValueError(
                f"{layer.groups} groups cannot be shared out to {comm.size} ranks: each must have equally many."
            )
        groups = max(1, layer.groups // comm.size)
        inputs = layer.in_channels if layer.groups == 1 else layer.in_channels // comm.size
        super().__init__(inputs, sizes[comm.rank], bias=layer.bias is not None, groups=groups, **_like(layer))
        self.comm, self.sizes, self.gather, self.all_groups = comm, sizes, gather, layer.groups
        hand_out(layer.weight, self.weight, comm, 0, sizes)
        if layer.bias is not None:
            hand_out(layer.bias, self.bias, comm, 0, sizes)

    def forward(self, x: Tensor) -> Tensor:
        x = copy_to_ranks(x, self.comm)
        if self.all_groups > 1:
            x = own_part(x, self.comm.rank, 1, [self.in_channels] * self.comm.size)
        y = self.apply_weight(x, self.bias)
        return gather_from_ranks(y, self.comm, 1, self.sizes) if self.gather else y

    def apply_weight(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """As `ColumnParallelLinear.apply_weight`."""
        return self._conv_forward(x, self.weight, bias)

    def whole(self) -> nn.Conv2d:
        """Collective: the layer as it would be on one rank."""
        weight = joined(self.weight, self.comm, 0, self.sizes)
        bias = None if self.bias is None else joined(self.bias, self.comm, 0, self.sizes)
        return _conv(self, weight, bias, self.all_groups)


class InputChannelParallelConv2d(nn.Conv2d):
    """`layer` with its input channels shared out: this rank's channels of x to y, the same on all ranks.

    split: take the whole x, the same on all ranks, and use this rank's channels of it. The bias is added once, after
    the sum. Rank 0's parameters are taken over. Collective as `ChannelParallelConv2d`. ValueError for fewer input
    channels than ranks, or for groups, whose outputs are no sum: share their output channels out.
    """

    def __init__(self, layer: nn.Conv2d, comm: Communicator, *, split: bool = False) -> None:
        _check(layer, "InputChannelParallelConv2d")
        if layer.groups > 1:
            raise ValueError(
                f"a convolution of {layer.groups} groups does not add input channels up over groups: "
                f"use ChannelParallelConv2d."
            )
        sizes = shares(layer.in_channels, comm.size, "input channels")
        super().__init__(sizes[comm.rank], layer.out_channels, bias=False, **_like(layer))
        self.comm, self.sizes, self.split = comm, sizes, split
        hand_out(layer.weight, self.weight, comm, 1, sizes)
        if layer.bias is not None:
            self.bias = nn.Parameter(torch.empty_like(layer.bias))
            same_for_all(self.bias, layer.bias, comm)

    def forward(self, x: Tensor) -> Tensor:
        if self.split:
            x = split_to_ranks(x, self.comm, 1, self.sizes)
        y = sum_over_ranks(self.apply_weight(x, None), self.comm)
        return y if self.bias is None else y + self.bias[:, None, None]

    def apply_weight(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """As `ColumnParallelLinear.apply_weight`."""
        return self._conv_forward(x, self.weight, bias)

    def whole(self) -> nn.Conv2d:
        """Collective: the layer as it would be on one rank."""
        return _conv(self, joined(self.weight, self.comm, 1, self.sizes), self.bias, 1)


def own_batch_norm(norm: nn.BatchNorm2d, comm: Communicator) -> nn.BatchNorm2d:
    """Collective: the batch norm of this rank's channels, behind a `ChannelParallelConv2d`; nothing is sent in use.

    Rank 0's parameters and statistics are taken over. ValueError for fewer channels than ranks.
    """
    sizes = shares(norm.num_features, comm.size, "channels")
    own = copy.deepcopy(norm)
    own.num_features = sizes[comm.rank]
    for name, tensor in [*norm.named_parameters(), *norm.named_buffers()]:
        kept = getattr(own, name)
        if tensor.dim():
            kept.data = torch.empty_like(tensor[: own.num_features])
            hand_out(tensor, kept.data, comm, 0, sizes)
        else:
            same_for_all(kept.data, tensor, comm)
    return own


def _check(layer: nn.Conv2d, name: str) -> None:
    if not isinstance(layer, nn.Conv2d):
        raise TypeError(f"{name} takes the nn.Conv2d that it shares out, not {layer!r:.60}")


def _like(layer: nn.Conv2d) -> dict:
    """What a part has from the whole."""
    return {
        "kernel_size": layer.kernel_size,
        "stride": layer.stride,
        "padding": layer.padding,
        "dilation": layer.dilation,
        "padding_mode": layer.padding_mode,
        "device": layer.weight.device,
        "dtype": layer.weight.dtype,
    }


def _conv(part: nn.Conv2d, weight: Tensor, bias: Tensor | None, groups: int) -> nn.Conv2d:
    outputs, inputs = weight.shape[:2]
    layer = nn.Conv2d(inputs * groups, outputs, bias=bias is not None, groups=groups, **_like(part))
    layer.load_state_dict({"weight": weight} | ({} if bias is None else {"bias": bias}))
    return layer
