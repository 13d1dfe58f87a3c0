"""One warp's accesses, instruction by instruction: what a picture of sectors and banks is drawn from.

Floor 0, after `counting`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lockstep.simt.places import WARP
from lockstep.simt.run.counting import Counters
from lockstep.simt.run.masks import Mask
from lockstep.simt.run.patterns import BANK_BYTES, BANKS, FAR, SECTOR, bank_ways, sectors


@dataclass(frozen=True)
class Request:
    """One access of the warp: `cells` has an element number for each of 32 lanes, None for a lane that is not active.

    `space` is "global" or "shared", `kind` "r" (read), "w" (write) or "a" (atomic), `array` the name in the kernel.
    """

    line: int
    array: str
    space: str
    kind: str
    itemsize: int
    cells: tuple[int | None, ...]

    @property
    def sectors(self) -> tuple[int | None, ...]:
        """The 32-byte sector of each lane, counted from the start of the allocation."""
        return tuple(None if cell is None else cell * self.itemsize // SECTOR for cell in self.cells)

    @property
    def banks(self) -> tuple[int | None, ...]:
        """The bank of each lane's first word."""
        return tuple(None if cell is None else cell * self.itemsize // BANK_BYTES % BANKS for cell in self.cells)

    @property
    def cost(self) -> int:
        """Sectors touched (global), or passes through the banks (shared)."""
        row = np.array([[FAR if cell is None else cell for cell in self.cells]], dtype=np.int64)
        return int((sectors if self.space == "global" else bank_ways)(row, self.itemsize)[0])


class Recorder(Counters):
    """Counters that also keep the requests of one warp: number `warp` of block number `block`."""

    def __init__(self, block: int, warp: int) -> None:
        super().__init__()
        self.block, self.warp = block, warp
        self.requests: list[Request] = []

    def global_request(self, array, address, mask: Mask, kind: str, site) -> None:
        super().global_request(array, address, mask, kind, site)
        self._keep("global", array, address, mask, kind, site)

    def shared_request(self, array, address, mask: Mask, kind: str, site) -> None:
        super().shared_request(array, address, mask, kind, site)
        self._keep("shared", array, address, mask, kind, site)

    def _keep(self, space: str, array, address, mask: Mask, kind: str, site) -> None:
        row = self.block - array.batch.first
        if not 0 <= row < mask.blocks:
            return
        lanes = slice(self.warp * WARP, (self.warp + 1) * WARP)
        active = mask.full()[row, lanes]
        cells = np.broadcast_to(address, (mask.blocks, mask.lanes))[row, lanes]
        if active.any():
            kept = tuple(int(cell) if here else None for cell, here in zip(cells, active, strict=True))
            self.requests.append(Request(site.line, site.text, space, kind, array.data.dtype.itemsize, kept))
