"""How long work takes on a device: the roofline.

Floor 1, room `cost`. A piece of work does `flops` and moves `bytes`; the device needs at least the
longer of the two times. Spans in the simulated and paced worlds are charged with such a `Cost`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING

from lockstep.hardware import Device

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True)
class Cost:
    """Work to be done: floating-point operations (1 multiply-add = 2) and bytes moved to or from memory.

    Costs add: `Cost(2, 8) + Cost(3, 4) == Cost(5, 12)`. Raises ValueError when a number is negative or not finite.
    """

    flops: float = 0.0
    bytes: float = 0.0

    def __post_init__(self) -> None:
        for name in ("flops", "bytes"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise ValueError(f"a cost has {name} of at least 0, not {value!r}")

    def __add__(self, other: Cost) -> Cost:
        if not isinstance(other, Cost):
            return NotImplemented
        return Cost(self.flops + other.flops, self.bytes + other.bytes)

    def __mul__(self, times: float) -> Cost:
        """The cost of doing this `times` times."""
        return Cost(self.flops * times, self.bytes * times)

    __rmul__ = __mul__

    def seconds(self, device: Device, dtype: str = "float32") -> float:
        """max(flops / peak FLOP rate, bytes / memory bandwidth), in seconds: a lower bound on the real time.

        Raises ValueError when no figure for `dtype` is published for the device.
        Source: Williams, Waterman, Patterson 2009, "Roofline", equation in section 3.
        """
        return max(self.flops / device.rate(dtype), self.bytes / device.memory_bandwidth)


def seconds_of(
    cost: Cost | float,
    device: Device | None,
    advice: str = "give device=, such as lockstep.hardware.device('A100').",
) -> float:
    """Seconds of a cost, which may be a number of seconds itself; `advice` ends the sentence about a missing device.

    Raises ValueError for a `Cost` without a device, and for what is neither a `Cost` nor a number of at least 0.
    """
    if isinstance(cost, Cost):
        if device is None:
            raise ValueError(f"{cost} takes seconds on a device: {advice}")
        return cost.seconds(device)
    if isinstance(cost, Real) and not isinstance(cost, bool) and math.isfinite(cost) and cost >= 0:
        return float(cost)
    raise ValueError(f"a cost is Cost(flops, bytes) or a number of seconds of at least 0, not {cost!r}")


@dataclass(frozen=True, slots=True)
class LayerCost:
    """What one layer costs in the forward and in the backward pass: a `Cost` or seconds each."""

    forward: Cost | float = 0.0
    backward: Cost | float = 0.0


def check_profile(model: nn.Module, profile: Mapping[str, LayerCost]) -> None:
    """Raise ValueError when `profile` names a module that `model` does not have, TypeError when a cost is no LayerCost."""
    known = dict(model.named_modules())
    for name, cost in profile.items():
        if name not in known:
            raise ValueError(
                f"the profile has a cost for {name!r}, but the model's modules are {', '.join(known)[:400]}"
            )
        if not isinstance(cost, LayerCost):
            raise TypeError(f"the profile gives {cost!r} for {name!r}; give LayerCost(forward, backward)")
