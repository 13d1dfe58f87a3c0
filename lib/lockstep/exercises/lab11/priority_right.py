"""Exercise 11.3's reference, other right functions, and the stub.

Floor 4, room `exercises`; the exercise is in `priority.py`.
"""

from __future__ import annotations

import heapq


def priority_order(ready, seconds):
    order, free, left = [], 0.0, set(range(len(ready)))
    while left:
        free = max(free, min(ready[layer] for layer in left))
        first = min(layer for layer in left if ready[layer] <= free)
        free += seconds[first]
        left.remove(first)
        order.append(first)
    return order


def with_a_heap(ready, seconds):
    """Gradients enter a heap of layers as they become ready."""
    coming = sorted(range(len(ready)), key=lambda layer: ready[layer])
    waiting, order, now = [], [], 0.0
    while coming or waiting:
        if not waiting:
            now = max(now, ready[coming[0]])
        while coming and ready[coming[0]] <= now:
            heapq.heappush(waiting, coming.pop(0))
        layer = heapq.heappop(waiting)
        order.append(layer)
        now += seconds[layer]
    return order


def recursively(ready, seconds, now=0.0, sent=()):
    """The next one, then all the others."""
    rest = [layer for layer in range(len(ready)) if layer not in sent]
    if not rest:
        return list(sent)
    there = [layer for layer in rest if ready[layer] <= now]
    if not there:
        return recursively(ready, seconds, min(ready[layer] for layer in rest), sent)
    return recursively(ready, seconds, now + seconds[there[0]], (*sent, there[0]))


def priority_order_stub(ready, seconds):
    raise NotImplementedError("return the layers in the order in which their gradients are sent")
