"""What others wrote for lab 11: wrong in a way that has to be named, or right in other clothes; as `newcomer_11.py`."""

import heapq
from itertools import accumulate, pairwise

import numpy as np
import torch

from lockstep.exercises.lab11.bucket import last_end


def path_by_recursion(trace):
    """Nodes as dictionaries, ends compared with a tolerance, the first of equals."""
    nodes = [{"a": s.start, "b": s.end, "r": [s.rank], "e": s} for s in trace.spans if s.kind == "compute"]
    nodes += [{"a": m.sent, "b": m.received, "r": [m.src, m.dst], "e": m} for m in trace.messages]

    def upto(node):
        before = [n for n in nodes if n["b"] <= node["a"] + 1e-12 and set(n["r"]).intersection(node["r"])]
        before.sort(key=lambda n: (-n["b"], n["a"]))
        return (upto(before[0]) if before else []) + [node["e"]]

    return tuple(upto(sorted(nodes, key=lambda n: n["b"])[-1]))


def bucket_by_numpy(gradients, seconds, sizes):
    ready, nbytes = np.array(gradients).T
    ends = []
    for size in sizes:
        edges, total = [0], np.cumsum(nbytes)
        while edges[-1] < len(ready):
            held = total - (total[edges[-1] - 1] if edges[-1] else 0)
            edges.append(min(int(np.searchsorted(held, size)) + 1, len(ready)))
        free = 0
        for a, b in pairwise(edges):
            free = max(free, ready[b - 1]) + seconds(int(nbytes[a:b].sum()))
        ends.append(free)
    return np.int64(sizes[int(np.argmin(ends))])


def order_as_a_tensor(ready, seconds):
    left, now, order = sorted((r, i) for i, r in enumerate(ready)), 0.0, []
    heap = []
    while left or heap:
        now = now if heap else max(now, left[0][0])
        while left and left[0][0] <= now:
            heapq.heappush(heap, left.pop(0)[1])
        order.append(heapq.heappop(heap))
        now += seconds[order[-1]]
    return torch.tensor(order)


def buffers_in_a_cycle(comm, count, buffers, work):
    """The receive of block i + 2 goes out when block i has been used; sends are waited for one block late."""
    if comm.rank:
        on_the_way = {i: comm.irecv(buffers[i], 0) for i in range(min(2, count))}
        for i in range(count):
            on_the_way.pop(i).wait()
            work(i, buffers[i & 1])
            if i + 2 < count:
                on_the_way[i + 2] = comm.irecv(buffers[i & 1], 0)
        return
    last = None
    for i in range(count):
        work(i, buffers[i & 1])
        this = comm.isend(buffers[i & 1], 1)
        if last is not None:
            last.wait()
        last = this
    last.wait()


def share_on_a_grid(computing, moving):
    """Quarters of a second, which every time of the cases is a multiple of."""
    grid = [np.arange(0, 280)[:, None] / 4 + 0.125 for _ in computing]

    def covers(pairs, times):
        return np.array([[a < t < b for a, b in pairs] for t in times[:, 0]]).reshape(len(times), -1).any(axis=1)

    works = [covers(own, times) for own, times in zip(computing, grid, strict=True)]
    moves = [covers(own, times) for own, times in zip(moving, grid, strict=True)]
    whole = sum(int(m.sum()) for m in moves)
    return np.float64(sum(int((m & w).sum()) for m, w in zip(moves, works, strict=True)) / whole) if whole else None


def spans_that_wait_longest(trace):
    return sorted(trace.spans, key=lambda s: s.start)


def path_with_the_sender(trace):
    """Goes from a message to its sender, and looks at work only."""
    chain, now = [], max((s for s in trace.spans if s.kind == "compute"), key=lambda s: s.end)
    while now is not None:
        chain.append(now)
        came = [m for m in trace.messages if m.dst == now.rank and m.received == now.start]
        rank = came[0].src if came else now.rank
        chain += came[:1]
        until = came[0].sent if came else now.start
        before = [s for s in trace.spans if s.rank == rank and s.kind == "compute" and s.end <= until]
        now = max(before, key=lambda s: s.end, default=None)
    return chain[::-1]


def by_the_median_of_sizes(gradients, seconds, sizes):
    return sorted(sizes)[len(sizes) // 2]


def bucket_ends(gradients, seconds, sizes):
    return min(last_end(gradients, seconds, size) for size in sizes)


def by_total_seconds(gradients, seconds, sizes):
    total = list(accumulate(n for _, n in gradients))[-1]
    return min(sizes, key=lambda size: -(-total // size) * seconds(size))


def most_urgent_when_all_are_there(ready, seconds):
    return sorted(range(len(ready)))


def last_layer_first(ready, seconds):
    order, now = [], 0.0
    while len(order) < len(ready):
        there = [i for i in range(len(ready)) if i not in order and ready[i] <= now]
        if there:
            order.append(there[-1])
            now += seconds[there[-1]]
        else:
            now = min(ready[i] for i in range(len(ready)) if i not in order)
    return order


def waits_at_once_on_both(comm, count, buffers, work):
    for i in range(count):
        if comm.rank == 0:
            work(i, buffers[i % 2])
            comm.isend(buffers[i % 2], 1).wait()
        else:
            comm.irecv(buffers[i % 2], 0).wait()
            work(i, buffers[i % 2])


def fills_before_it_waits(comm, count, buffers, work):
    if comm.rank == 1:
        return buffers_in_a_cycle(comm, count, buffers, work)
    handles = {}
    for i in range(count):
        work(i, buffers[i % 2])
        if i % 2 in handles:
            handles[i % 2].wait()
        handles[i % 2] = comm.isend(buffers[i % 2], dst=1)
    for handle in handles.values():
        handle.wait()
    return None


def asks_beyond_the_end(comm, count, buffers, work):
    if comm.rank == 0:
        return buffers_in_a_cycle(comm, count, buffers, work)
    ahead = [comm.irecv(buffers[0], 0), comm.irecv(buffers[1], 0)]
    for i in range(count):
        ahead[i % 2].wait()
        work(i, buffers[i % 2])
        ahead[i % 2] = comm.irecv(buffers[i % 2], 0)
    return None


def returns_with_sends_on_their_way(comm, count, buffers, work):
    if comm.rank == 1:
        return buffers_in_a_cycle(comm, count, buffers, work)
    last = [None, None]
    for i in range(count):
        if last[i % 2]:
            last[i % 2].wait()
        work(i, buffers[i % 2])
        last[i % 2] = comm.isend(buffers[i % 2], 1)
    return None


def pairs_counted(computing, moving):
    hidden = sum(
        max(0, min(b, d) - max(a, c)) for w, m in zip(computing, moving, strict=True) for a, b in m for c, d in w
    )
    total = sum(b - a for m in moving for a, b in m)
    return hidden / total if total else None


def shares_averaged(computing, moving):
    each = [share_on_a_grid([w], [m]) for w, m in zip(computing, moving, strict=True)]
    each = [one for one in each if one is not None]
    return float(np.mean(each)) if each else None


FOUND = [
    ("11.1", spans_that_wait_longest, ["no event"]),
    ("11.1", path_with_the_sender, ["A message needs both"]),
    ("11.2", by_the_median_of_sizes, ["the last reduction ends at"]),
    ("11.2", bucket_ends, ["Return the size itself"]),
    ("11.2", by_total_seconds, ["the last reduction ends at"]),
    ("11.3", most_urgent_when_all_are_there, ["the link has nothing to do"]),
    ("11.3", last_layer_first, ["the lowest number is the most urgent"]),
    ("11.4", waits_at_once_on_both, ["Launch with `isend`"]),
    ("11.4", fills_before_it_waits, ["still on its way"]),
    ("11.4", asks_beyond_the_end, ["a block that never comes"]),
    ("11.4", returns_with_sends_on_their_way, ["Wait for them after the loop"]),
    ("11.5", pairs_counted, ["put the transfers together first"]),
    ("11.5", shares_averaged, ["add up the seconds, then divide"]),
]

RIGHT = [
    ("11.1", path_by_recursion),
    ("11.2", bucket_by_numpy),
    ("11.3", order_as_a_tensor),
    ("11.4", buffers_in_a_cycle),
    ("11.5", share_on_a_grid),
]
