"""A search for the order of F, I and W with one chunk a rank, under a limit on memory.

Floor 2, room `parallel`. Each try plays the pipeline forward in time: an idle rank takes the first of

    1. an input gradient that is ready, because another rank waits for it;
    2. a forward that is ready, while memory and the rank's head start allow it;
    3. a weight gradient that it owes.

The *head start* is how many micro-batches a rank takes forward before it wants the first back: p - r in ZB-H1,
2(p - r) - 1 in ZB-H2. A *patient* try leaves a weight gradient alone while an input gradient arrives before its end.
Of all head starts, patient and not, the shortest makespan wins, and among equals the least memory. Legend: p stages,
m micro-batches, r rank.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping

from lockstep.parallel.pipeline.schedule import Action

Rows = tuple[tuple[Action, ...], ...]


def best_order(p: int, m: int, memory: int, costs: Mapping[str, float]) -> Rows:
    """The rows of the best try; costs: seconds of F, I and W. Raises ValueError for a cost that is not above 0."""
    for kind, cost in costs.items():
        if not (isinstance(cost, (int, float)) and 0 < cost < math.inf):
            raise ValueError(f"{kind} takes {cost!r} seconds: give a number above 0")
    tries = [
        _Try(p, m, memory, [min(memory, p - r + min(extra, p - 1 - r)) for r in range(p)], patient, costs)
        for extra in range(min(p, memory))
        for patient in (False, True)
    ]
    best = min(tries, key=lambda each: (each.makespan, sum(each.peak)))
    return tuple(map(tuple, best.rows))


class _Try:
    """One play through; `rows`, `makespan` and `peak` (micro-batches held, per rank) are what came of it."""

    def __init__(
        self, p: int, m: int, memory: int, head_start: list[int], patient: bool, costs: Mapping[str, float]
    ) -> None:
        self._p, self._m, self._memory, self._head_start = p, m, memory, head_start
        self._patient, self._costs = patient, costs
        self.rows: list[list[Action]] = [[] for _ in range(p)]
        self.peak = [0] * p
        self._count = [{"F": 0, "I": 0, "W": 0} for _ in range(p)]  # begun, per rank
        self._ends: dict[tuple[str, int, int], float] = {}
        self._free = [0.0] * p
        events = [(0.0, r) for r in range(p)]
        while events:
            now, at = heapq.heappop(events)
            for r in (at, at - 1, at + 1):  # whoever may have waited for what ended here
                if 0 <= r < p and self._free[r] <= now and (kind := self._choice(r, now)):
                    heapq.heappush(events, (self._begin(kind, r, now), r))
        self.makespan = max(self._free)

    def _choice(self, r: int, now: float) -> str | None:
        count = self._count[r]
        back = self._ready("I", r)
        if back <= now:
            return "I"
        held, ahead = count["F"] - count["W"], count["F"] - count["I"]
        if self._ready("F", r) <= now and held < self._memory and ahead < self._head_start[r]:
            return "F"
        owed = count["W"] < count["I"]
        return "W" if owed and not (self._patient and back < now + self._costs["W"]) else None

    def _ready(self, kind: str, r: int) -> float:
        """When the rank's next action of this kind can begin, as far as is known."""
        i = self._count[r][kind]
        if i == self._m:
            return math.inf
        if kind == "F":
            return 0.0 if r == 0 else self._ends.get(("F", r - 1, i), math.inf)
        after = 0.0 if r == self._p - 1 else self._ends.get(("I", r + 1, i), math.inf)
        return max(after, self._ends.get(("F", r, i), math.inf))

    def _begin(self, kind: str, r: int, now: float) -> float:
        i, count = self._count[r][kind], self._count[r]
        count[kind] += 1
        self.rows[r].append(Action(kind, r, i))
        self.peak[r] = max(self.peak[r], count["F"] - count["W"])
        self._free[r] = self._ends[kind, r, i] = now + self._costs[kind]
        return self._free[r]
