"""04.5 `tree_broadcast`: wrong solutions that students write; their sentences are in `broadcast_mistakes.py`.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from lockstep.exercises.lab04.broadcast_right import tree_broadcast


def sends_to_everyone(comm, tensor, src):
    if comm.rank == src:
        for other in range(comm.size):
            if other != src:
                comm.send(tensor, other)
    else:
        comm.recv(tensor, src)


def passes_it_along(comm, tensor, src):
    p, place = comm.size, (comm.rank - src) % comm.size
    if place > 0:
        comm.recv(tensor, (comm.rank - 1) % p)
    if place + 1 < p:
        comm.send(tensor, (comm.rank + 1) % p)


def passes_it_to_two_others(comm, tensor, src):
    place = (comm.rank - src) % comm.size
    if place > 0:
        comm.recv(tensor, ((place - 1) // 2 + src) % comm.size)
    for child in (2 * place + 1, 2 * place + 2):
        if child < comm.size:
            comm.send(tensor, (child + src) % comm.size)


def assumes_a_power_of_two(comm, tensor, src):
    place, have = (comm.rank - src) % comm.size, 1
    while have < comm.size:
        if place < have:
            comm.send(tensor, (comm.rank + have) % comm.size)
        elif place < 2 * have:
            comm.recv(tensor, (comm.rank - have) % comm.size)
        have *= 2


def sends_beyond_the_last_rank(comm, tensor, src):
    place, have = (comm.rank - src) % comm.size, 1
    while have < comm.size:
        if place < have:
            comm.send(tensor, place + have + src)
        elif place < 2 * have:
            comm.recv(tensor, place - have + src)
        have *= 2


def always_from_rank_0(comm, tensor, src):
    have = 1
    while have < comm.size:
        if comm.rank < have and comm.rank + have < comm.size:
            comm.send(tensor, comm.rank + have)
        elif have <= comm.rank < 2 * have:
            comm.recv(tensor, comm.rank - have)
        have *= 2


def stops_one_level_early(comm, tensor, src):
    p, place, have = comm.size, (comm.rank - src) % comm.size, 1
    while 2 * have < p:
        if place < have and place + have < p:
            comm.send(tensor, (comm.rank + have) % p)
        elif have <= place < 2 * have:
            comm.recv(tensor, (comm.rank - have) % p)
        have *= 2


def only_the_source_sends(comm, tensor, src):
    p, place, have = comm.size, (comm.rank - src) % comm.size, 1
    while have < p:
        if place == 0:
            comm.send(tensor, (comm.rank + have) % p)
        elif place == have:
            comm.recv(tensor, src)
        have *= 2


def only_the_source_takes_part(comm, tensor, src):
    if comm.rank == src:
        for other in range(comm.size):
            if other != src:
                comm.send(tensor, other)


def receives_before_it_can(comm, tensor, src):
    p, place, have = comm.size, (comm.rank - src) % comm.size, 1
    while have < p:
        partner = (comm.rank + have) % p if place < have else (comm.rank - have) % p
        if place < 2 * have:
            comm.recv(tensor, partner)
        have *= 2


def starts_its_sends_together(comm, tensor, src):
    p, place, have, handles = comm.size, (comm.rank - src) % comm.size, 1, []
    while have < p:
        if place < have and place + have < p:
            handles.append(comm.isend(tensor, (comm.rank + have) % p))
        elif have <= place < 2 * have:
            comm.recv(tensor, (comm.rank - have) % p)
        have *= 2
    for handle in handles:
        handle.wait()


def never_waits(comm, tensor, src):
    p, place, have = comm.size, (comm.rank - src) % comm.size, 1
    while have < p:
        if place < have and place + have < p:
            comm.isend(tensor, (comm.rank + have) % p)
        elif have <= place < 2 * have:
            comm.recv(tensor, (comm.rank - have) % p)
        have *= 2


def takes_a_place_for_a_rank(comm, tensor, src):
    p, place, have = comm.size, (comm.rank - src) % comm.size, 1
    while have < p:
        if place < have and place + have < p:
            comm.send(tensor, place + have)
        elif have <= place < 2 * have:
            comm.recv(tensor, place - have)
        have *= 2


def not_in_place(comm, tensor, src):
    own = tensor.clone()
    tree_broadcast(comm, own, src)
    return own
