"""The later exercises of lab 11, from 11.4 on; as `newcomer_11.py`, whose `FOUND` and `RIGHT` these are more of."""

import numpy as np
import torch

# 11.4


def send_all(comm, count, buffers, work):
    way = [None, None]
    for i in range(count):
        if way[i % 2]:
            way[i % 2].wait()
        work(i, buffers[i % 2])
        way[i % 2] = comm.isend(buffers[i % 2], dst=1)
    for handle in way:
        if handle:
            handle.wait()


def receive_all(comm, count, buffers, work):
    coming = comm.irecv(buffers[0], src=0)
    for i in range(count):
        this = coming
        if i + 1 < count:
            coming = comm.irecv(buffers[(i + 1) % 2], src=0)
        this.wait()
        work(i, buffers[i % 2])


def on_ranks(sends=send_all, receives=receive_all):
    return lambda comm, *args: (receives if comm.rank else sends)(comm, *args)


def one_buffer_blocking(comm, count, buffers, work):
    for i in range(count):
        if comm.rank == 0:
            work(i, buffers[0])
            comm.send(buffers[0], 1)
        else:
            comm.recv(buffers[0], 0)
            work(i, buffers[0])


def into_the_same(comm, count, buffers, work):
    handle = comm.irecv(buffers[0], src=0)
    for i in range(count):
        handle.wait()
        if i + 1 < count:
            handle = comm.irecv(buffers[0], src=0)
        work(i, buffers[0])


def fetched_again_before_use(comm, count, buffers, work, own=lambda buffer: buffer):
    way = [comm.irecv(buffer, src=0) for buffer in buffers[:count]]
    for i in range(count):
        way[i % 2].wait()
        block = own(buffers[i % 2])
        if i + 2 < count:
            way[i % 2] = comm.irecv(buffers[i % 2], src=0)
        work(i, block)


def block_0_forgotten(comm, count, buffers, work):
    way = [None, None]
    for i in range(count):
        if i + 1 < count:
            way[(i + 1) % 2] = comm.irecv(buffers[(i + 1) % 2], src=0)
        if way[i % 2]:
            way[i % 2].wait()
        work(i, buffers[i % 2])


def two_by_two(comm, count, buffers, work):
    for i in range(0, count, 2):
        many = min(2, count - i)
        if comm.rank == 0:
            way = []
            for k in range(many):
                work(i + k, buffers[k])
                way.append(comm.isend(buffers[k], dst=1))
        else:
            way = [comm.irecv(buffers[k], src=0) for k in range(many)]
        for handle in way:
            handle.wait()
        for k in range(many if comm.rank else 0):
            work(i + k, buffers[k])


def sent_before_made(comm, count, buffers, work):
    way = [None, None]
    for i in range(count):
        if way[i % 2]:
            way[i % 2].wait()
        way[i % 2] = comm.isend(buffers[i % 2], dst=1)
        work(i, buffers[i % 2])
    for handle in filter(None, way):
        handle.wait()


def one_handle(comm, count, buffers, work):
    handle = comm.irecv(buffers[0], src=0)
    for i in range(count):
        if i + 1 < count:
            handle = comm.irecv(buffers[(i + 1) % 2], src=0)
        handle.wait()
        work(i, buffers[i % 2])


def waits_on_none(comm, count, buffers, work):
    way = [None, None]
    for i in range(count):
        way[i % 2].wait()
        work(i, buffers[i % 2])
        way[i % 2] = comm.isend(buffers[i % 2], dst=1)


def works_once(comm, count, buffers, work):
    work(0, buffers[0])


def recursively(comm, count, buffers, work, i=0, now=None):
    if comm.rank == 0:
        return send_all(comm, count, buffers, work)
    if i < count:
        now = now or comm.irecv(buffers[0], src=0)
        after = comm.irecv(buffers[1], src=0) if i + 1 < count else None
        now.wait()
        work(i, buffers[0])
        recursively(comm, count, buffers[::-1], work, i + 1, after)
    return None


# 11.5


def merged(pairs, end=max):
    found = []
    for a, b in sorted(pairs):
        if found and a <= found[-1][1]:
            found[-1] = (found[-1][0], end(found[-1][1], b))
        else:
            found.append((a, b))
    return found


def length(pairs):
    return sum(b - a for a, b in pairs)


def share(computing, moving, counts=lambda works, moves: True, end=max):
    hidden = total = 0
    for works, moves in zip(computing, moving, strict=True):
        works, moves = merged(works, end), merged(moves, end)
        if counts(works, moves):
            total += length(moves)
            hidden += sum(max(0, min(b, d) - max(a, c)) for a, b in works for c, d in moves)
    return hidden / total if total else None


def none_at_the_first_without(computing, moving):
    return share(computing, moving) if all(moving) else None  # Passed: in no case did one rank alone move nothing.


def without_idle_ranks(computing, moving):
    return share(computing, moving, counts=lambda works, moves: works)  # Passed: every rank computed.


def lesser_sum(computing, moving):
    works, moves = (sum(length(merged(own)) for own in ranks) for ranks in (computing, moving))
    return min(works, moves) / moves if moves else None


def without_max(computing, moving):
    return share(computing, moving, end=lambda one, other: other)


def on_many_points(computing, moving):
    hidden = total = 0
    for works, moves in zip(computing, moving, strict=True):
        times = np.linspace(0, max((b for _, b in [*works, *moves]), default=1), 20_001)
        on = [np.any([(times >= a) & (times < b) for a, b in pairs] or [times < 0], axis=0) for pairs in (works, moves)]
        hidden, total = hidden + times[1] * (on[0] & on[1]).sum(), total + times[1] * on[1].sum()
    return float(hidden / total) if total else None


def divides_at_once(computing, moving):
    return sum(share([w], [m]) * length(merged(m)) for w, m in zip(computing, moving, strict=True) if m) / sum(
        length(merged(m)) for m in moving
    )


def by_the_complement(computing, moving):
    total = sum(length(merged(m)) for m in moving)
    exposed = sum(length(merged([*m, *w])) - length(merged(w)) for w, m in zip(computing, moving, strict=True))
    return 1 - exposed / total if total else None


FOUND = [
    ("11.4", one_buffer_blocking, ["Launch with `isend`"]),
    ("11.4", on_ranks(receives=into_the_same), ["still using"]),
    ("11.4", on_ranks(receives=fetched_again_before_use), ["about to use"]),
    (
        "11.4",
        on_ranks(receives=lambda *args: fetched_again_before_use(*args, own=torch.clone)),
        ["uses the copy"],
    ),
    ("11.4", on_ranks(receives=block_0_forgotten), ["that of block 0", "-does nothing"]),
    ("11.4", on_ranks(receives=lambda *args: None), ["without having received"]),
    ("11.4", two_by_two, ["two by two", "-asks for a block"]),
    ("11.4", on_ranks(sends=sent_before_made), ["before `work` has filled", "-i - 2"]),
    ("11.4", on_ranks(receives=one_handle), ["where the handle of this block was"]),
    ("11.4", on_ranks(sends=waits_on_none), ["no handle to wait for"]),
    ("11.4", on_ranks(receive_all, send_all), ["changed parts"]),
    ("11.4", works_once, ["Nothing is sent", "-the other"]),
    ("11.5", none_at_the_first_without, ["as soon as one rank"]),
    ("11.5", without_idle_ranks, ["ranks that compute nothing"]),
    ("11.5", lesser_sum, ["the lesser of both", "-some computation meets"]),
    ("11.5", without_max, ["the larger of both ends"]),
    ("11.5", on_many_points, ["points of a grid"]),
    ("11.5", divides_at_once, ["you divide by 0"]),
]

RIGHT = [
    ("11.4", recursively),
    ("11.5", by_the_complement),
]
