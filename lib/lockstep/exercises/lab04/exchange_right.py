"""04.1 `exchange`: right ways, and the skeleton.

Floor 4, room `exercises`; the exercise is in `exchange.py`.
"""

from __future__ import annotations


def exchange(comm, outgoing, incoming):
    r, p = comm.rank, comm.size
    sending = comm.isend(outgoing, (r + 1) % p)
    comm.recv(incoming, (r - 1) % p)
    sending.wait()


def exchange_in_one_call(comm, outgoing, incoming):
    left, right = comm.rank - 1, comm.rank + 1
    comm.exchange([(outgoing, right % comm.size)], [(incoming, left % comm.size)])


def exchange_posting_the_receive_first(comm, outgoing, incoming):
    arriving = comm.irecv(incoming, src=comm.rank - 1 if comm.rank else comm.size - 1)
    comm.send(outgoing, dst=comm.rank + 1 if comm.rank < comm.size - 1 else 0)
    arriving.wait()


def exchange_even_ranks_first(comm, outgoing, incoming):
    to, source = (comm.rank + 1) % comm.size, (comm.rank + comm.size - 1) % comm.size
    if comm.rank % 2 == 0:
        comm.send(outgoing, to)
        comm.recv(incoming, source)
    else:
        comm.recv(incoming, source)
        comm.send(outgoing, to)


def exchange_stub(comm, outgoing, incoming):
    right = (comm.rank + 1) % comm.size  # noqa: F841 - the skeleton, as students get it
    left = (comm.rank - 1) % comm.size  # noqa: F841
    raise NotImplementedError("send `outgoing` to the right and fill `incoming` from the left")
