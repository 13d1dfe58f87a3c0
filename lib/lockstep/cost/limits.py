"""What limits a training step: computation, memory or network.

Floor 1, room `cost`; read `roofline.py` first. Each of the three needs at least its amount over its rate; if they
overlap perfectly, the step takes as long as the slowest of them, and only a faster one of that kind helps.
"""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.cost.profile import Profile
from lockstep.hardware import Device, Link


@dataclass(frozen=True)
class StepTime:
    """Seconds that a step needs at least for each of the three, and so in all."""

    computation: float
    memory: float
    network: float

    @property
    def seconds(self) -> float:
        return max(self.computation, self.memory, self.network)

    @property
    def limit(self) -> str:
        """ "computation", "memory" or "network": the one that takes longest."""
        parts = {"computation": self.computation, "memory": self.memory, "network": self.network}
        return max(parts, key=lambda name: parts[name])


def step_time(
    profile: Profile, device: Device, dtype: str = "float32", network_bytes: float = 0.0, link: Link | None = None
) -> StepTime:
    """Lower bounds for one step of `profile` on `device`, while `network_bytes` leave over `link`.

    Raises ValueError when the device has no rate for `dtype`, and for bytes without a link to carry them.
    """
    if network_bytes and link is None:
        raise ValueError(f"{network_bytes:,.0f} bytes need a link: give link=, such as lockstep.hardware.link('HDR')")
    return StepTime(
        profile.flops / device.rate(dtype),
        profile.moved_bytes / device.memory_bandwidth,
        network_bytes / link.bandwidth if link else 0.0,
    )
