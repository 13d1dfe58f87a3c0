"""What goes wrong in exercise 11.4, and the sentence that each fault gets.

Floor 4, room `exercises`; the exercise is in `buffers.py`.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Mistake
from lockstep.exercises.lab11.buffers_right import double_buffer
from lockstep.exercises.symptoms import is_deadlock, says


def on_rank(rank, other):
    """A function that is right on the other rank."""

    def fn(comm, count, buffers, work):
        (other if comm.rank == rank else double_buffer)(comm, count, buffers, work)

    return fn


def sends(comm, count, buffers, work, *, waits="before", last=True, fill=None, send=None, one=False):
    """Rank 0's part, in which one thing can be another.

    waits: "before" a buffer is filled again, "at once", or "never" until the end. fill, send: which buffer.
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


MISTAKES = (
    Mistake(
        "waits right after launching a send",
        waits_right_after_sending,
        "Rank 0 waits for each send as soon as it has launched it. A handle is there to be waited for later: make the next "
        "block in the other buffer meanwhile.",
    ),
    Mistake(
        "waits right after launching a receive",
        waits_right_after_receiving,
        "Rank 1 asks for a block when it has used the one before, and waits. Launch the receive of the next block *before* "
        "you use this one: it travels meanwhile, into the other buffer.",
    ),
    Mistake(
        "blocking calls",
        in_blocking_calls,
        "`send` and `recv` return when the block is there, so nobody does anything else meanwhile. Launch with `isend` and "
        "`irecv`, and wait when you have to.",
    ),
    Mistake(
        "buffer filled again too early",
        fills_too_early,
        "Rank 0 makes a block in a buffer that is still on its way. Before block i goes into its buffer, the send of block "
        "i - 2, which used it, has to be waited for.",
        symptom=says("buffer of isend", "changed before wait()"),
    ),
    Mistake(
        "buffer received into too early",
        receives_too_early,
        "Rank 1 has launched a receive into the buffer that it is still using. On a GPU the new block may arrive in the middle "
        "of the computation. Use it first, then give the buffer away.",
        symptom=says("buffer of irecv", "changed before wait()"),
    ),
    Mistake(
        "one buffer to receive into",
        receives_into_one,
        "Rank 1 receives into one buffer, and uses the other never. While block i is used in one, block i + 1 arrives in the "
        "other: `buffers[i % 2]`.",
    ),
    Mistake(
        "leaves the last sends",
        leaves_the_last,
        "Rank 0 returns while its last blocks are on their way. Wait for them after the loop.",
        symptom=says("returned without waiting for isend"),
    ),
    Mistake(
        "one buffer to send from",
        one_buffer_to_send,
        "Rank 0 uses one buffer, and has to wait until it has been sent before the next block goes in. Take turns: "
        "`buffers[i % 2]`.",
    ),
    Mistake(
        "takes the other buffer",
        sends_the_other,
        "One of the ranks works in one buffer and sends, or receives into, the other. Block i is made in, sent from, received "
        "into and used in `buffers[i % 2]`.",
    ),
    Mistake(
        "waits for the next block too",
        waits_for_the_next,
        "Rank 1 waits for block i + 1 before it uses block i. What is on its way for later need not be there yet.",
    ),
    Mistake(
        "one receive too many",
        one_receive_too_many,
        "Rank 1 launches a receive for a block that never comes. There is a next block only while `i + 1 < count`.",
        symptom=is_deadlock,
    ),
    Mistake(
        "uses a block before it is there",
        uses_before_it_waits,
        "Rank 1 uses a buffer whose receive has not been waited for: what is in it is old. First `wait()`, then use.",
    ),
    Mistake(
        "memory of its own",
        in_memory_of_its_own,
        "You use a buffer for each block. Then nobody ever has to wait for a buffer, and memory grows with the number of "
        "blocks. The two of `buffers` are enough.",
    ),
    Mistake(
        "sends copies",
        through_a_copy,
        "You send and receive copies. That takes memory for every block that is on its way, and time to copy: send from the "
        "two `buffers`, and receive into them.",
    ),
    Mistake(
        "rank 0 alone",
        only_rank_0,
        "Rank 1 does nothing. Every rank runs the function: rank 0 makes and sends, rank 1 receives and uses.",
    ),
)
