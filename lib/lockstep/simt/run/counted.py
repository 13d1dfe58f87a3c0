"""A batch that counts its branches; what else is counted reaches the counters from the memories and the code itself.

Floor 0, on top of `machine`.
"""

from __future__ import annotations

from lockstep.simt.run.machine import Machine
from lockstep.simt.run.masks import Mask


class CountedMachine(Machine):
    """The same results as Machine's, and `counters` filled."""

    def branch(self, mask: Mask, condition, key: tuple[int, int]) -> Mask | None:
        taken = self.when(mask, condition)
        self.counters.branch(mask, taken, key)
        return taken

    def split(self, mask: Mask, condition, key: tuple[int, int]) -> tuple[Mask | None, Mask | None]:
        taken, left = super().split(mask, condition, key)
        self.counters.branch(mask, taken, key)
        return taken, left
