"""04.5 `tree_broadcast`: right ways, and the skeleton.

Floor 4, room `exercises`; the exercise is in `broadcast.py`.
"""

from __future__ import annotations


def tree_broadcast(comm, tensor, src):
    p, place = comm.size, (comm.rank - src) % comm.size
    for level in range((p - 1).bit_length()):
        have = 2**level
        if place < have and place + have < p:
            comm.send(tensor, (comm.rank + have) % p)
        elif have <= place < 2 * have:
            comm.recv(tensor, (comm.rank - have) % p)


def halving_the_ranks(comm, tensor, src):
    """The far half first: whoever has the tensor looks after a range of ranks, and hands half of it on."""
    low, high = 0, comm.size
    place = (comm.rank - src) % comm.size
    while high - low > 1:
        middle = low + (high - low + 1) // 2
        if place == low:
            comm.isend(tensor, (middle + src) % comm.size).wait()
        elif place == middle:
            comm.irecv(tensor, (low + src) % comm.size).wait()
        low, high = (low, middle) if place < middle else (middle, high)


def by_the_bits_of_the_place(comm, tensor, src):
    place = comm.rank - src if comm.rank >= src else comm.rank - src + comm.size
    highest = place.bit_length()
    if place:
        parent = place - (1 << (highest - 1))
        comm.recv(tensor, (parent + src) % comm.size)
    for bit in range(highest, comm.size.bit_length()):
        child = place + (1 << bit)
        if child < comm.size:
            comm.send(tensor, (child + src) % comm.size)
    return tensor


def tree_broadcast_stub(comm, tensor, src):
    raise NotImplementedError("give the tensor of rank `src` to all ranks")
