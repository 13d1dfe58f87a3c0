"""What somebody who solved lab 04 for the first time wrote on the way, and the words that the verdict must hold.

Each once got a wrong cause, or none. `FOUND` lists (exercise, function, words); a word with a leading "-" must not
be there.
"""

import math

import torch

from lockstep.exercises import find


def around(comm):
    return comm.rank, comm.size, (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size


# 04.1


def takes_what_recv_gives(comm, outgoing, incoming):
    _, _, right, left = around(comm)
    sending = comm.isend(outgoing, right)
    incoming = comm.recv(left)  # noqa: F841
    sending.wait()


def pairs_without_lists(comm, outgoing, incoming):
    _, _, right, left = around(comm)
    comm.exchange((outgoing, right), (incoming, left))


# 04.2


def next_chunk_in_a_buffer_like_what_leaves(comm, tensor):
    r, p, right, left = around(comm)
    chunks = list(tensor.clone().tensor_split(p))
    for s in range(p - 1):
        out, inn = (r - s) % p, (r - s - 1) % p
        buf = torch.empty_like(chunks[out])
        comm.exchange([(chunks[out], right)], [(buf, left)])
        chunks[inn] += buf
    return chunks[(r + 1) % p]


def whole_tensors(comm, tensor):
    r, p, right, left = around(comm)
    total, going = tensor.clone(), tensor.clone()
    for _ in range(p - 1):
        came = torch.empty_like(going)
        comm.exchange([(going, right)], [(came, left)])
        total, going = total + came, came
    return total.tensor_split(p)[r]


def receives_straight_into_the_chunk(comm, tensor):
    r, p, right, left = around(comm)
    chunks = list(tensor.clone().tensor_split(p))
    for s in range(p - 1):
        out, inn = (r - s - 1) % p, (r - s - 2) % p
        comm.exchange([(chunks[out], right)], [(chunks[inn], left)])
        chunks[inn] += chunks[inn]
    return chunks[r]


def buffer_of_the_default_dtype(comm, tensor):
    r, p, right, left = around(comm)
    chunks = list(tensor.clone().tensor_split(p))
    for s in range(p - 1):
        out, inn = (r - s - 1) % p, (r - s - 2) % p
        buf = torch.empty(len(chunks[inn]))
        comm.exchange([(chunks[out], right)], [(buf, left)])
        chunks[inn] += buf
    return chunks[r]


def same_chunk_each_step(comm, tensor):
    r, p, right, left = around(comm)
    chunks = list(tensor.clone().tensor_split(p))
    for s in range(p - 1):
        inn = (r - s - 2) % p
        buf = torch.empty_like(chunks[inn])
        comm.exchange([(chunks[(r - 1) % p], right)], [(buf, left)])
        chunks[inn] += buf
    return chunks[r]


def everybodys_chunk_to_the_right(comm, tensor):
    r, p, right, left = around(comm)
    chunks = list(tensor.clone().tensor_split(p))
    for s in range(p - 1):
        buf = torch.empty_like(chunks[r])
        comm.exchange([(chunks[(r + s + 1) % p], right)], [(buf, left)])
        chunks[r] += buf
    return chunks[r]


def adds_to_a_tuple(comm, tensor):
    r, p, right, left = around(comm)
    chunks = tensor.tensor_split(p)
    for s in range(p - 1):
        out, inn = (r - s - 1) % p, (r - s - 2) % p
        buf = torch.empty_like(chunks[inn])
        comm.exchange([(chunks[out], right)], [(buf, left)])
        chunks[inn] += buf
    return chunks[r]


def pairs_of_chunks(comm, tensor):
    r, p, right, left = around(comm)
    chunks = tensor.tensor_split(p)
    for s in range(p - 1):
        buf = torch.empty_like(chunks[(r - s - 2) % p])
        comm.exchange((chunks[(r - s - 1) % p], right), (buf, left))
        chunks[(r - s - 2) % p].add_(buf)
    return chunks[r]


def returns_an_index_of_the_loop(comm, tensor):
    r, p, right, left = around(comm)
    chunks = list(tensor.clone().tensor_split(p))
    for s in range(p - 1):
        out, inn = (r - s - 1) % p, (r - s - 2) % p
        buf = torch.empty_like(chunks[inn])
        comm.exchange([(chunks[out], right)], [(buf, left)])
        chunks[inn] += buf
    return chunks[inn]


def returns_all_chunks(comm, tensor):
    r, p, right, left = around(comm)
    chunks = list(tensor.clone().tensor_split(p))
    for s in range(p - 1):
        out, inn = (r - s - 1) % p, (r - s - 2) % p
        buf = torch.empty_like(chunks[inn])
        comm.exchange([(chunks[out], right)], [(buf, left)])
        chunks[inn] += buf
    return chunks


# 04.3


def own_chunk_each_step(comm, chunk, sizes):
    r, p, right, left = around(comm)
    chunks = [torch.empty(size, dtype=chunk.dtype) for size in sizes]
    chunks[r] = chunk
    for s in range(p - 1):
        comm.exchange([(chunk, right)], [(chunks[(r - s - 1) % p], left)])
    return torch.cat(chunks)


def walks_up(comm, chunk, sizes):
    r, p, right, left = around(comm)
    chunks = [torch.empty(size, dtype=chunk.dtype) for size in sizes]
    chunks[r] = chunk
    for s in range(p - 1):
        comm.exchange([(chunks[(r + s) % p], right)], [(chunks[(r + s + 1) % p], left)])
    return torch.cat(chunks)


# 04.4


def in_place_reduce_scatter(comm, tensor):
    r, p, right, left = around(comm)
    chunks = list(tensor.tensor_split(p))
    for s in range(p - 1):
        out, inn = (r - s - 1) % p, (r - s - 2) % p
        buf = torch.empty_like(chunks[inn])
        comm.exchange([(chunks[out], right)], [(buf, left)])
        chunks[inn] += buf
    return chunks[r]


def rebinds_and_returns(comm, tensor):
    sizes = [len(c) for c in tensor.tensor_split(comm.size)]
    chunk = in_place_reduce_scatter(comm, tensor)
    tensor = find("04.3").reference(comm, chunk, sizes)
    return tensor


def rebinds(comm, tensor):
    rebinds_and_returns(comm, tensor)


def sizes_of_its_own(comm, tensor):
    chunk = in_place_reduce_scatter(comm, tensor)
    tensor.copy_(find("04.3").reference(comm, chunk, [len(chunk)] * comm.size))


def sizes_of_the_whole(comm, tensor):
    chunk = in_place_reduce_scatter(comm, tensor)
    tensor.copy_(find("04.3").reference(comm, chunk, [len(tensor) // comm.size] * comm.size))


def adds_to_a_tuple_in_place(comm, tensor):
    adds_to_a_tuple(comm, tensor)


def adds_in_all_steps(comm, tensor):
    r, p, right, left = around(comm)
    c = list(tensor.tensor_split(p))
    for s in range(2 * (p - 1)):
        inn = (r - s - 1) % p
        buf = torch.empty_like(c[inn])
        comm.exchange([(c[(r - s) % p], right)], [(buf, left)])
        c[inn] += buf


def adds_in_all_steps_from_the_chunk_before(comm, tensor):
    r, p, right, left = around(comm)
    c = list(tensor.tensor_split(p))
    for s in range(2 * (p - 1)):
        inn = (r - s - 2) % p
        buf = torch.empty_like(c[inn])
        comm.exchange([(c[(r - s - 1) % p], right)], [(buf, left)])
        c[inn] += buf


def new_tensors_in_a_list(comm, tensor, first=0):
    r, p, right, left = around(comm)
    c = list(tensor.tensor_split(p))
    for s in range(2 * (p - 1)):
        inn = (r + first - s - 1) % p
        buf = torch.empty_like(c[inn])
        comm.exchange([(c[(r + first - s) % p], right)], [(buf, left)])
        c[inn] = c[inn] + buf if s < p - 1 else buf
    tensor = torch.cat(c)


def new_tensors_in_a_list_filled(comm, tensor):
    r, p, right, left = around(comm)
    c = list(tensor.tensor_split(p))
    for s in range(p - 1):
        inn = (r - s - 2) % p
        buf = torch.empty_like(c[inn])
        comm.exchange([(c[(r - s - 1) % p], right)], [(buf, left)])
        c[inn] = c[inn] + buf
    for s in range(p - 1):
        comm.exchange([(c[(r - s) % p], right)], [(c[(r - s - 1) % p], left)])
    tensor = torch.cat(c)


# 04.5


def tree(comm, tensor, src, late=False, place_to_rank=None):
    p, place, have, handles = comm.size, (comm.rank - src) % comm.size, 1, []
    name = place_to_rank or (lambda place: (place + src) % p)
    while have < p:
        if place < have and place + have < p:
            handles.append(comm.isend(tensor, name(place + have)))
        elif have <= place < 2 * have:
            comm.recv(tensor, name(place - have))
        have *= 2
        if not late:
            [handle.wait() for handle in handles]
            handles = []
    [handle.wait() for handle in handles]


def waits_at_the_end(comm, tensor, src):
    tree(comm, tensor, src, late=True)


def never_waits(comm, tensor, src):
    p, place, have = comm.size, (comm.rank - src) % comm.size, 1
    while have < p:
        if place < have and place + have < p:
            comm.isend(tensor, (comm.rank + have) % p)
        elif have <= place < 2 * have:
            comm.recv(tensor, (comm.rank - have) % p)
        have *= 2


def place_for_rank(comm, tensor, src):
    tree(comm, tensor, src, place_to_rank=lambda place: place)


def rank_and_source(comm, tensor, src):
    p, place, have = comm.size, (comm.rank - src) % comm.size, 1
    while have < p:
        if place < have and place + have < p:
            comm.send(tensor, (comm.rank + have + src) % p)
        elif have <= place < 2 * have:
            comm.recv(tensor, (comm.rank - have + src) % p)
        have *= 2


# 04.6


def by_levels(tree=lambda p: math.ceil(math.log2(p)), doubling=None, ring=None):
    """`predict_seconds` with levels of its own for tree and doubling, and messages and size for the ring."""

    def predict_seconds(algorithm, nbytes, ranks, latency, bandwidth):
        whole = latency + nbytes / bandwidth
        if algorithm == "ring_all_reduce":
            right = 2 * (ranks - 1) * (latency + nbytes / ranks / bandwidth)
            return ring(ranks, nbytes, latency, bandwidth) if ring else right
        if algorithm == "tree_broadcast":
            return tree(ranks) * whole
        k = int(math.log2(ranks))
        return (doubling(ranks) if doubling else k + 2 * (ranks != 2**k)) * whole

    return predict_seconds


def two_more_always(p):
    return int(math.log2(p)) + 2


def pays_latency_once(p, n, alpha, beta):
    return alpha + 2 * (p - 1) * n / p / beta


def divides_everything(p, n, alpha, beta):
    return 2 * (p - 1) * (alpha + n / beta) / p


def bytes_once(p, n, alpha, beta):
    return 2 * (p - 1) * alpha + n / p / beta


# 04.7


def choosing(seconds_of_rabenseifner=None, fold=lambda a, b: 2 * (a + b)):
    def choose(nbytes, ranks, latency, bandwidth):
        p, k, b = ranks, int(math.log2(ranks)), nbytes / bandwidth
        f = fold(latency, b) if p != 2**k else 0
        rab = seconds_of_rabenseifner or (lambda k, a, b: 2 * k * a + 2 * (1 - 1 / 2**k) * b)
        seconds = {
            "ring_all_reduce": 2 * (p - 1) * (latency + b / p),
            "recursive_doubling_all_reduce": k * (latency + b) + f,
            "rabenseifner_all_reduce": rab(k, latency, b) + f,
        }
        return min(seconds, key=seconds.get)

    return choose


FOUND = [
    ("04.1", takes_what_recv_gives, ["fills the tensor", "-last rank sends"]),
    ("04.1", pairs_without_lists, ["list"]),
    ("04.2", next_chunk_in_a_buffer_like_what_leaves, ["next rank"]),
    ("04.2", whole_tensors, ["whole tensor"]),
    ("04.2", receives_straight_into_the_chunk, ["lost"]),
    ("04.2", buffer_of_the_default_dtype, ["dtype"]),
    ("04.2", same_chunk_each_step, ["same chunk"]),
    ("04.2", everybodys_chunk_to_the_right, ["owner"]),
    ("04.2", adds_to_a_tuple, ["list(", "add_"]),
    ("04.2", pairs_of_chunks, ["lists of pairs"]),
    ("04.4", pairs_of_chunks, ["lists of pairs"]),
    ("04.2", returns_an_index_of_the_loop, ["single rank"]),
    ("04.2", returns_all_chunks, ["all chunks"]),
    ("04.3", own_chunk_each_step, ["your own chunk"]),
    ("04.3", walks_up, ["grows"]),
    ("04.4", rebinds_and_returns, ["only gives the name"]),
    ("04.4", rebinds, ["only gives the name"]),
    ("04.4", sizes_of_its_own, ["sizes"]),
    ("04.4", sizes_of_the_whole, ["sizes"]),
    ("04.4", adds_to_a_tuple_in_place, ["list(", "add_"]),
    ("04.4", adds_in_all_steps, ["add in the second half"]),
    ("04.4", adds_in_all_steps_from_the_chunk_before, ["add in the second half"]),
    ("04.4", new_tensors_in_a_list, ["only gives the name"]),
    ("04.4", new_tensors_in_a_list_filled, ["new tensor"]),
    ("04.5", waits_at_the_end, ["share"]),
    ("04.5", never_waits, ["wait"]),
    ("04.5", place_for_rank, ["back into a rank"]),
    ("04.5", rank_and_source, ["back into a rank"]),
    ("04.6", by_levels(tree=lambda p: math.ceil(math.log(p))), ["base 2"]),
    ("04.6", by_levels(tree=lambda p: round(math.log2(p))), ["up", "-With 3 ranks"]),
    ("04.6", by_levels(doubling=two_more_always), ["power of two"]),
    ("04.6", by_levels(ring=pays_latency_once), ["latency once"]),
    ("04.6", by_levels(ring=divides_everything), ["whole latency"]),
    ("04.6", by_levels(ring=bytes_once), ["one message only"]),
    ("04.7", choosing(lambda k, a, b: 2 * k * (a + 2 * (1 - 1 / 2**k) * b)), ["together"]),
    ("04.7", lambda nbytes, ranks, latency, bandwidth: "ring", ["name", "-how long"]),
    ("04.7", choosing(fold=lambda a, b: 0), ["two messages"]),
    ("04.7", choosing(fold=lambda a, b: 2 * b), ["latency"]),
]  # fmt: skip
