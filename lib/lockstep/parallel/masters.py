"""What the optimizer steps in place of a shard that computes elsewhere, or in fewer bytes.

Floor 2, room `parallel`. Read `sharded` and `precision` first. Legend: P parameters, N ranks. A master takes 4 P / N
bytes, and so does its gradient while the optimizer steps: that is the 18 P / N of DeepSpeed's estimate, where between
steps a rank holds 16 P / N.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from lockstep.parallel.sharded import Unit


class Master:
    """The exact values of `unit`'s shard as a parameter of their own; made with the unit, before its first use.

    dtype: what the unit computes in from now on; the master keeps the dtype that it had. offload: keep the master in
    the CPU's memory, pinned where the unit is on a GPU; what the optimizer keeps for it is there too.
    """

    def __init__(self, unit: Unit, dtype: torch.dtype, offload: bool) -> None:
        values = unit.lower(dtype)
        if offload and values.device.type != "cpu":
            values = values.cpu().pin_memory()
        self._unit, self.parameter = unit, nn.Parameter(values)

    def take_gradient(self) -> None:
        """Move the shard's gradient to the master."""
        gradient, self._unit.shard.grad = self._unit.shard.grad, None
        if gradient is not None:
            self.parameter.grad = gradient.to(self.parameter.device, self.parameter.dtype)

    def give_values(self) -> None:
        """Round the master's values to the shard."""
        # From pinned memory this returns at once; the next step's gradient comes over after it, on the same stream.
        self._unit.shard.detach().copy_(self.parameter.detach(), non_blocking=True)

    def whole(self) -> dict[nn.Parameter, Tensor]:
        """Collective: the exact values of each of the unit's parameters."""
        parts = self._unit.parts(self._unit.gathered(self.parameter.detach()))
        return {parameter: part.clone() for parameter, part in zip(self._unit.parameters, parts, strict=True)}


def masters_of(units: Sequence[Unit], dtypes: Mapping[int, torch.dtype], offload: bool) -> dict[int, Master]:
    """By index, the masters of those units that are to compute in another dtype, or to be kept on the CPU.

    dtypes: what each parameter is to compute in, by its id; alike in a unit.
    """
    masters = {}
    for unit in units:
        dtype = dtypes[id(unit.parameters[0])]
        if unit.shard.dtype is not dtype or (offload and unit.shard.device.type != "cpu"):
            masters[unit.index] = Master(unit, dtype, offload)
    return masters
