"""Linear layers whose neurons are shared out among ranks.

Floor 2, room `parallel`. Read `conjugate` first. Legend: x (..., I) inputs, y (..., O) outputs, W (O, I), b (O).

A column-parallel layer has some of the outputs on each rank, a row-parallel one some of the inputs (the names are those
of W transposed, as x W^T is written). One after the other they need one all-reduce forward, behind the second, and one
backward, before the first: what lies between stays split, and any elementwise function may stand there.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from lockstep.comm import Communicator
from lockstep.parallel.conjugate import copy_to_ranks, gather_from_ranks, joined, split_to_ranks, sum_over_ranks
from lockstep.parallel.shares import hand_out, same_for_all, shares


class ColumnParallelLinear(nn.Linear):
    """`layer` with its outputs shared out: x (..., I), the same on all ranks, to this rank's features of y.

    gather: give all features, on all ranks. Rank 0's parameters are taken over. Collective: to build, to run forward
    and backward, and to ask for the `whole` layer again. ValueError for fewer outputs than ranks.
    Source: Shoeybi et al. 2019, section 3.
    """

    def __init__(self, layer: nn.Linear, comm: Communicator, *, gather: bool = False) -> None:
        _check(layer, "ColumnParallelLinear")
        sizes = shares(layer.out_features, comm.size, "outputs")
        like = {"device": layer.weight.device, "dtype": layer.weight.dtype}
        super().__init__(layer.in_features, sizes[comm.rank], layer.bias is not None, **like)
        self.comm, self.sizes, self.gather = comm, sizes, gather
        hand_out(layer.weight, self.weight, comm, 0, sizes)
        if layer.bias is not None:
            hand_out(layer.bias, self.bias, comm, 0, sizes)

    def forward(self, x: Tensor) -> Tensor:
        y = self.apply_weight(copy_to_ranks(x, self.comm), self.bias)
        return gather_from_ranks(y, self.comm, -1, self.sizes) if self.gather else y

    def apply_weight(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """What this rank computes by itself; a pipeline with a split backward puts another one in its place."""
        return F.linear(x, self.weight, bias)

    def whole(self) -> nn.Linear:
        """Collective: the layer as it would be on one rank."""
        return _linear(
            joined(self.weight, self.comm, 0, self.sizes),
            None if self.bias is None else joined(self.bias, self.comm, 0, self.sizes),
        )


class RowParallelLinear(nn.Linear):
    """`layer` with its inputs shared out: this rank's features of x to y (..., O), the same on all ranks.

    split: take the whole x, the same on all ranks, and use this rank's features of it. The bias is added once, after
    the sum. Rank 0's parameters are taken over. Collective as `ColumnParallelLinear`. ValueError for fewer inputs than
    ranks. Source: Shoeybi et al. 2019, section 3.
    """

    def __init__(self, layer: nn.Linear, comm: Communicator, *, split: bool = False) -> None:
        _check(layer, "RowParallelLinear")
        sizes = shares(layer.in_features, comm.size, "inputs")
        like = {"device": layer.weight.device, "dtype": layer.weight.dtype}
        super().__init__(sizes[comm.rank], layer.out_features, layer.bias is not None, **like)
        self.comm, self.sizes, self.split = comm, sizes, split
        hand_out(layer.weight, self.weight, comm, 1, sizes)
        if layer.bias is not None:
            same_for_all(self.bias, layer.bias, comm)

    def forward(self, x: Tensor) -> Tensor:
        if self.split:
            x = split_to_ranks(x, self.comm, -1, self.sizes)
        y = sum_over_ranks(self.apply_weight(x, None), self.comm)
        return y if self.bias is None else y + self.bias

    def apply_weight(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """As `ColumnParallelLinear.apply_weight`."""
        return F.linear(x, self.weight, bias)

    def whole(self) -> nn.Linear:
        """Collective: the layer as it would be on one rank."""
        return _linear(joined(self.weight, self.comm, 1, self.sizes), self.bias)


def _check(layer: nn.Linear, name: str) -> None:
    if not isinstance(layer, nn.Linear):
        raise TypeError(f"{name} takes the nn.Linear that it shares out, not {layer!r:.60}")


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    layer = nn.Linear(*weight.shape[::-1], bias is not None, device=weight.device, dtype=weight.dtype)
    layer.load_state_dict({"weight": weight} | ({} if bias is None else {"bias": bias}))
    return layer
