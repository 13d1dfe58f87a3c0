"""Wrong functions for exercise 11.4, and by what some of them show.

Floor 4, room `exercises`; what they are told is in `buffers_mistakes.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from lockstep.exercises.exercise import Case
from lockstep.exercises.lab11.buffers_right import double_buffer
from lockstep.exercises.observe import Observation


def on_rank(rank, other):
    """A function that is right on the other rank."""

    def fn(comm, count, buffers, work):
        (other if comm.rank == rank else double_buffer)(comm, count, buffers, work)

    return fn


def sends(comm, count, buffers, work, *, waits="before", last=True, fill=None, send=None, one=False):
    """Rank 0's part, in which one thing can be another.

    waits: "before" a buffer is filled again, "at once", for both after every second
    block ("pairs"), or "never" until the end. fill, send: which buffer.
    """
    handles = []
    fill = fill or (lambda i: 0 if one else i % 2)
    send = send or fill
    back = 1 if one else 2
    for i in range(count):
        if waits == "before" and i >= back:
            handles[i - back].wait()
        work(i, buffers[fill(i)])
        handles.append(comm.isend(buffers[send(i)], dst=1))
        if waits == "at once":
            handles[-1].wait()
        if waits == "pairs" and i % 2:
            for handle in handles:
                handle.wait()
    if last:
        for handle in handles:
            handle.wait()


def receives(comm, count, buffers, work, *, ahead=1, waits=0, into=None):
    """Rank 1's part, in which one thing can be another.

    ahead: how many receives beyond the block that is used. waits: how many blocks further it waits. into: which buffer.
    """
    into = into or (lambda i: i % 2)
    handles = []

    def post(until):
        while len(handles) < min(until, count):
            handles.append(comm.irecv(buffers[into(len(handles))], src=0))

    for i in range(count):
        post(i + 1 + ahead)
        for handle in handles[: min(i + waits, count - 1) + 1]:
            handle.wait()
        work(i, buffers[into(i)])


def waits_right_after_sending(comm, count, buffers, work):
    return on_rank(0, lambda *a: sends(*a, waits="at once"))(comm, count, buffers, work)


def waits_right_after_receiving(comm, count, buffers, work):
    return on_rank(1, lambda *a: receives(*a, ahead=0))(comm, count, buffers, work)


def fills_too_early(comm, count, buffers, work):
    return on_rank(0, lambda *a: sends(*a, waits="never"))(comm, count, buffers, work)


def receives_too_early(comm, count, buffers, work):
    return on_rank(1, lambda *a: receives(*a, ahead=2))(comm, count, buffers, work)


def receives_into_one(comm, count, buffers, work):
    return on_rank(1, lambda *a: receives(*a, into=lambda i: 0))(comm, count, buffers, work)


def leaves_the_last(comm, count, buffers, work):
    return on_rank(0, lambda *a: sends(*a, last=False))(comm, count, buffers, work)


def one_buffer_to_send(comm, count, buffers, work):
    return on_rank(0, lambda *a: sends(*a, one=True))(comm, count, buffers, work)


def sends_the_other(comm, count, buffers, work):
    return on_rank(0, lambda *a: sends(*a, send=lambda i: (i + 1) % 2, waits="at once"))(comm, count, buffers, work)


def waits_for_the_next(comm, count, buffers, work):
    return on_rank(1, lambda *a: receives(*a, waits=1))(comm, count, buffers, work)


def one_receive_too_many(comm, count, buffers, work):
    if comm.rank == 0:
        return double_buffer(comm, count, buffers, work)
    pending = comm.irecv(buffers[0], src=0)
    for i in range(count):
        following = comm.irecv(buffers[(i + 1) % 2], src=0)
        pending.wait()
        work(i, buffers[i % 2])
        pending = following
    return pending.wait()


def uses_before_it_waits(comm, count, buffers, work):
    if comm.rank == 0:
        return double_buffer(comm, count, buffers, work)
    for i in range(count):
        handle = comm.irecv(buffers[i % 2], src=0)
        work(i, buffers[i % 2])
        handle.wait()
    return None


def in_memory_of_its_own(comm, count, buffers, work):
    own = [buffers[0].clone() for _ in range(count)]
    many = sends if comm.rank == 0 else receives
    where = {"fill": lambda i: i} if comm.rank == 0 else {"into": lambda i: i, "ahead": count}
    return many(comm, count, own, work, **where, **({"waits": "never"} if comm.rank == 0 else {}))


def through_a_copy(comm, count, buffers, work):
    """Sends and receives copies, so that no buffer is ever lent."""
    way = []
    if comm.rank == 0:
        for i in range(count):
            work(i, buffers[0])
            way.append(comm.isend(buffers[0].clone(), 1))
    else:
        way = [comm.irecv(buffers[0].clone(), 0) for _ in range(count)]
        for i, handle in enumerate(way):
            buffers[0].copy_(handle.wait())
            work(i, buffers[0])
    for handle in way:
        handle.wait()


def only_rank_0(comm, count, buffers, work):
    if comm.rank == 0:
        double_buffer(comm, count, buffers, work)


def in_blocking_calls(comm, count, buffers, work):
    for i in range(count):
        if comm.rank == 0:
            work(i, buffers[i % 2])
            comm.send(buffers[i % 2], 1)
        else:
            comm.recv(buffers[i % 2], 0)
            work(i, buffers[i % 2])


def one_buffer_each(comm, count, buffers, work):
    (sends if comm.rank == 0 else lambda *a: receives(*a, ahead=0, into=lambda i: 0))(comm, count, buffers, work)


def waits_for_both(comm, count, buffers, work):
    return on_rank(0, lambda *a: sends(*a, waits="pairs"))(comm, count, buffers, work)


def in_pairs(comm, count, buffers, work):
    for first in range(0, count, 2):
        pair = range(first, min(first + 2, count))
        if comm.rank == 0:
            handles = []
            for i in pair:
                work(i, buffers[i % 2])
                handles.append(comm.isend(buffers[i % 2], 1))
        else:
            handles = [comm.irecv(buffers[i % 2], 0) for i in pair]
        for handle in handles:
            handle.wait()
        for i in pair if comm.rank else ():
            work(i, buffers[i % 2])


def gives_away_before_use(comm, count, buffers, work):
    if comm.rank == 0:
        return double_buffer(comm, count, buffers, work)
    way = [comm.irecv(buffer, 0) for buffer in buffers[:count]]
    for i in range(count):
        way.pop(0).wait()
        if i + 2 < count:
            way.append(comm.irecv(buffers[i % 2], 0))
        work(i, buffers[i % 2])
    return None


def uses_a_copy(comm, count, buffers, work):
    if comm.rank == 0:
        return double_buffer(comm, count, buffers, work)
    way = [comm.irecv(buffer, 0) for buffer in buffers[:count]]
    for i in range(count):
        way.pop(0).wait()
        copy = buffers[i % 2].clone()
        if i + 2 < count:
            way.append(comm.irecv(buffers[i % 2], 0))
        work(i, copy)
    return None


def sends_before_it_makes(comm, count, buffers, work):
    if comm.rank == 1:
        return double_buffer(comm, count, buffers, work)
    way = []
    for i in range(count):
        if len(way) == 2:
            way.pop(0).wait()
        way.append(comm.isend(buffers[i % 2], 1))
        work(i, buffers[i % 2])
    for handle in way:
        handle.wait()
    return None


def one_variable(comm, count, buffers, work):
    if comm.rank == 0:
        return double_buffer(comm, count, buffers, work)
    handle = comm.irecv(buffers[0], 0)
    for i in range(count):
        if i + 1 < count:
            handle = comm.irecv(buffers[(i + 1) % 2], 0)
        handle.wait()
        work(i, buffers[i % 2])
    return None


def waits_for_no_call(comm, count, buffers, work):
    handles = [None, None]
    if comm.rank == 1:
        return double_buffer(comm, count, buffers, work)
    for i in range(count):
        handles[i % 2].wait()
        work(i, buffers[i % 2])
        handles[i % 2] = comm.isend(buffers[i % 2], 1)
    return None


def the_other_way_round(comm, count, buffers, work):
    (receives if comm.rank == 0 else sends)(comm, count, buffers, work)


def only_works(comm, count, buffers, work):
    for i in range(count):
        work(i, buffers[i % 2])


def one_block_behind(comm, count, buffers, work):
    if comm.rank == 0:
        return double_buffer(comm, count, buffers, work)
    handle = comm.irecv(buffers[0], 0)
    for i in range(1, count):
        handle, this = comm.irecv(buffers[i % 2], 0), handle
        this.wait()
        work(i - 1, buffers[(i - 1) % 2])
    handle.wait()
    return None


def changes_what_it_just_sent(case: Case, seen: Observation, expected: Observation) -> bool:
    """With one or two blocks no buffer is filled twice."""
    words = "" if seen.error is None else seen.error.message
    return "buffer of isend" in words and "changed before wait()" in words and case.args[0] <= 2


def lent_on_rank_1(case: Case, seen: Observation, expected: Observation) -> bool:
    """A receive has the buffer that is in use: told at once where the world finds it, or seen on the way."""
    if seen.error is not None:
        return "buffer of irecv" in seen.error.message and "changed before wait()" in seen.error.message
    return bool(seen.arguments[1]["lent"])


def has(what: str) -> Callable[[Case, Observation, Observation], bool]:
    """ "own" or "strange" blocks or calls, on some rank."""
    return lambda case, seen, expected: seen.error is None and any(one[what] for one in seen.arguments)


def never_sends(case: Case, seen: Observation, expected: Observation) -> bool:
    return seen.error is None and not any(one.messages_sent for one in seen.traffic)


def in_one_buffer(rank: int) -> Callable[[Case, Observation, Observation], bool]:
    """That rank works on several blocks, all of them in the same buffer."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        places = [] if seen.error is not None else seen.arguments[rank]["places"]
        return len(places) > 1 and len(set(places)) == 1

    return symptom
