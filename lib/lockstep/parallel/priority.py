"""In which order gradients travel: by layer, so that the next forward pass can begin before all have arrived.

Floor 2, room `parallel`. Layers are numbered in the order of the forward pass; the last one's gradient is ready first.

Sources: Jayarajan et al. 2019, "Priority-based Parameter Propagation for Distributed DNN Training"; Peng et al. 2019,
"A Generic Communication Scheduler for Distributed DNN Training Acceleration" (ByteScheduler).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence


def priority_order(ready: Sequence[float], seconds: Sequence[float]) -> list[int]:
    """The layers in the order in which they are sent over one link: of those that are ready, the lowest first.

    ready[i]: when layer i's gradient is there. seconds[i]: how long it travels; a transfer that has begun is not
    interrupted, and the link does not wait while anything is ready. Raises ValueError for lists of unequal length and
    for times that cannot be.
    """
    _check(ready, seconds)
    coming = sorted(range(len(ready)), key=lambda layer: ready[layer], reverse=True)
    waiting: list[int] = []
    order, now = [], 0.0
    while coming or waiting:
        if not waiting:
            now = max(now, ready[coming[-1]])
        while coming and ready[coming[-1]] <= now:
            heapq.heappush(waiting, coming.pop())
        order.append(heapq.heappop(waiting))
        now += seconds[order[-1]]
    return order


def arrivals(order: Sequence[int], ready: Sequence[float], seconds: Sequence[float]) -> list[float]:
    """When each layer's gradient has arrived, by layer, if they are sent in `order`, one after the other.

    Raises ValueError when `order` is not each layer once.
    """
    _check(ready, seconds)
    if sorted(order) != list(range(len(ready))):
        raise ValueError(f"order is {list(order)!r:.60}: it must hold each of the {len(ready)} layers once")
    free, arrived = 0.0, [0.0] * len(ready)
    for layer in order:
        free = max(free, ready[layer]) + seconds[layer]
        arrived[layer] = free
    return arrived


def next_forward(arrived: Sequence[float], forward: Sequence[float], begin: float) -> list[float]:
    """When each layer of the next forward pass ends: after the layer before it, and after its own gradient has arrived.

    forward: seconds of each layer. begin: when the backward pass has ended, before which no layer begins.
    """
    _check(arrived, forward)
    ends, now = [], begin
    for there, taken in zip(arrived, forward, strict=True):
        now = max(now, there) + taken
        ends.append(now)
    return ends


def _check(times: Sequence[float], seconds: Sequence[float]) -> None:
    if len(times) != len(seconds):
        raise ValueError(f"there are times for {len(times)} layers and seconds for {len(seconds)}: give one of each")
    for one in (*times, *seconds):
        if not 0 <= one < math.inf:
            raise ValueError(f"{one!r} is no time: it must be a number of seconds of at least 0")
