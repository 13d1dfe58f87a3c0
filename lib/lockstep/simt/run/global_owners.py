"""Conflicts between blocks: for each cell of a global array, which block wrote it and which read it, over a launch.

Floor 0, part of `races`. Nothing orders two blocks, so a cell that one block writes belongs to it alone.
A record packs block, lane and site into one int64, so that a conflict can be named; -1 is none.
"""

from __future__ import annotations

import numpy as np

from lockstep.simt.run import race_report

BLOCK_SHIFT, LANE_SHIFT = 26, 16  # 1,024 lanes in 10 bits, 65,536 sites in 16


class GlobalOwners:
    """`written`, `changed` (atomically), `read` and `read_too` (by a second block), each one record a cell."""

    def __init__(self, memory) -> None:
        self.memory = memory
        self.tables: dict[str, np.ndarray] = {}
        self.sites: dict[int, object] = {}

    def table(self, kind: str) -> np.ndarray:
        if kind not in self.tables:
            self.tables[kind] = np.full(self.memory.size, -1, dtype=np.int64)
        return self.tables[kind]

    def note(self, races, touches: list) -> None:
        """Record an interval's touches, writes first; raises RaceError for a cell that two blocks fight over."""
        batch = races.batch
        for kind, others in (("w", ("w", "a", "a2", "r", "r2")), ("a", ("w", "r", "r2")), ("r", ("w", "a", "a2"))):
            for touch in touches:
                if touch.kind == kind:
                    self.sites[touch.site.index] = touch.site
                    block, lane = touch.who // batch.lanes + batch.first, touch.who % batch.lanes
                    record = (block << BLOCK_SHIFT) | (lane << LANE_SHIFT) | touch.site.index
                    self._note(batch, touch.cells, record, block, kind, others)

    def _note(self, batch, cells, record, block, kind: str, others: tuple) -> None:
        for other in others:
            if other in self.tables:
                self._refuse(batch, cells, record, block, other, kind)
        mine = self.table(kind)
        if kind == "w":
            mine[cells] = record
            self._refuse(batch, cells, record, block, "w", "w")
            return
        new = mine[cells] == -1
        mine[cells[new]] = record[new]
        foreign = mine[cells] >> BLOCK_SHIFT != block  # a second block that reads, or adds atomically
        if foreign.any():
            self.table(f"{kind}2")[cells[foreign]] = record[foreign]

    def _refuse(self, batch, cells, record, block, other: str, kind: str) -> None:
        found = self.tables[other][cells]
        wrong = (found >= 0) & (found >> BLOCK_SHIFT != block)
        if wrong.any():
            at = int(np.argmax(wrong))
            pair = sorted([self._culprit(int(found[at]), other[0]), self._culprit(int(record[at]), kind)])
            a, b = sorted(pair, key=lambda culprit: (culprit.block, culprit.lane))
            raise race_report.race(batch.places, self.memory, int(cells[at]), a, b, "")

    def _culprit(self, record: int, kind: str) -> race_report.Culprit:
        site = self.sites[record & (1 << LANE_SHIFT) - 1]
        lane = record >> LANE_SHIFT & 1023
        return race_report.Culprit(site.line, record >> BLOCK_SHIFT, lane, kind, 0, site.text)
