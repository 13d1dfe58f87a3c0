"""Exercise 11.4's reference, other right functions, and the stub.

Floor 4, room `exercises`; the exercise is in `buffers.py`.
"""

from __future__ import annotations


def double_buffer(comm, count, buffers, work):
    handles = [None, None]
    if comm.rank == 0:
        for i in range(count):
            if handles[i % 2] is not None:
                handles[i % 2].wait()
            work(i, buffers[i % 2])
            handles[i % 2] = comm.isend(buffers[i % 2], dst=1)
        for handle in handles[:count]:
            handle.wait()
    else:
        handles[0] = comm.irecv(buffers[0], src=0)
        for i in range(count):
            if i + 1 < count:
                handles[(i + 1) % 2] = comm.irecv(buffers[(i + 1) % 2], src=0)
            handles[i % 2].wait()
            work(i, buffers[i % 2])


def with_queues(comm, count, buffers, work):
    """A queue of what is on its way, never longer than the buffers."""
    way = []
    if comm.rank == 0:
        for i in range(count):
            if len(way) == len(buffers):
                way.pop(0).wait()
            work(i, buffers[i % len(buffers)])
            way.append(comm.isend(buffers[i % len(buffers)], 1))
        while way:
            way.pop(0).wait()
        return
    for i in range(min(count, len(buffers))):
        way.append(comm.irecv(buffers[i], 0))
    for i in range(count):
        full = way.pop(0).wait()
        work(i, full)
        if i + len(buffers) < count:
            way.append(comm.irecv(full, 0))


def by_swapping(comm, count, buffers, work):
    """Two names that change places."""
    mine, other = buffers
    pending = None
    for i in range(count):
        if comm.rank == 0:
            work(i, mine)
            if pending:
                pending.wait()
            pending = comm.isend(mine, dst=1)
        else:
            pending = pending or comm.irecv(mine, src=0)
            pending.wait()
            pending = comm.irecv(other, src=0) if i < count - 1 else None
            work(i, mine)
        mine, other = other, mine
    if pending:
        pending.wait()


def double_buffer_stub(comm, count, buffers, work):
    raise NotImplementedError("rank 0 makes and sends, rank 1 receives and uses, both with two buffers")
