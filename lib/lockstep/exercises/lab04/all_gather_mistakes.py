"""04.3 `ring_all_gather`: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; the exercise is in `all_gather.py`.
"""

from __future__ import annotations

import torch

from lockstep.exercises.exercise import Mistake
from lockstep.exercises.lab04.all_gather_right import ring_all_gather
from lockstep.exercises.lab04.calls import of_calls
from lockstep.exercises.lab04.steps import another_dtype, another_length, behaves_like, deadlocked, sends_more
from lockstep.exercises.symptoms import says


def gather(comm, chunk, sizes, leaves, steps=None):
    """The loop of the mistakes: at step s the chunk with index `leaves(r, s)` goes right, the one before it comes in."""
    r, p = comm.rank, comm.size
    chunks = [torch.zeros(size, dtype=chunk.dtype) for size in sizes]
    chunks[r] = chunk
    for s in range(p - 1 if steps is None else steps(p)):
        comm.exchange([(chunks[leaves(r, s) % p], (r + 1) % p)], [(chunks[(leaves(r, s) - 1) % p], (r - 1) % p)])
    return chunks


def sends_its_own_chunk_each_time(comm, chunk, sizes):
    r, p = comm.rank, comm.size
    chunks = [torch.zeros(size, dtype=chunk.dtype) for size in sizes]
    chunks[r] = chunk
    for s in range(p - 1):
        arrived = torch.zeros(sizes[(r - 1) % p], dtype=chunk.dtype)
        comm.exchange([(chunk, (r + 1) % p)], [(arrived, (r - 1) % p)])
        chunks[(r - 1 - s) % p] = arrived
    return torch.cat(chunks)


def sends_its_own_chunk_into_every_place(comm, chunk, sizes):
    return torch.cat(own_walk(comm, chunk, sizes, lambda r, s: r, lambda r, s: r - s - 1))


def counts_both_up(comm, chunk, sizes):
    return torch.cat(own_walk(comm, chunk, sizes, lambda r, s: r + s, lambda r, s: r + s + 1))


def own_walk(comm, chunk, sizes, leaves, comes):
    """As `gather`, but what comes in takes the place with index `comes(r, s)`."""
    r, p = comm.rank, comm.size
    chunks = [torch.zeros(size, dtype=chunk.dtype) for size in sizes]
    chunks[r] = chunk
    for s in range(p - 1):
        comm.exchange([(chunks[leaves(r, s) % p], (r + 1) % p)], [(chunks[comes(r, s) % p], (r - 1) % p)])
    return chunks


def starts_off_by_one(comm, chunk, sizes):
    return torch.cat(gather(comm, chunk, sizes, lambda r, s: r - s + 1))


def counts_up(comm, chunk, sizes):
    return torch.cat(gather(comm, chunk, sizes, lambda r, s: r + s))


def one_step_too_few(comm, chunk, sizes):
    return torch.cat(gather(comm, chunk, sizes, lambda r, s: r - s, steps=lambda p: max(p - 2, 0)))


def one_step_too_many(comm, chunk, sizes):
    return torch.cat(gather(comm, chunk, sizes, lambda r, s: r - s, steps=lambda p: p))


def joins_in_order_of_arrival(comm, chunk, sizes):
    chunks = gather(comm, chunk, sizes, lambda r, s: r - s)
    return torch.cat([chunks[(comm.rank - s) % comm.size] for s in range(comm.size)])


def returns_a_list(comm, chunk, sizes):
    return gather(comm, chunk, sizes, lambda r, s: r - s)


def takes_all_for_equal(comm, chunk, sizes):
    return torch.cat(gather(comm, chunk, [len(chunk)] * comm.size, lambda r, s: r - s))


def buffers_of_the_default_dtype(comm, chunk, sizes):
    r, p = comm.rank, comm.size
    chunks = [torch.empty(size) for size in sizes]
    chunks[r].copy_(chunk)
    for s in range(p - 1):
        comm.exchange([(chunks[(r - s) % p], (r + 1) % p)], [(chunks[(r - s - 1) % p], (r - 1) % p)])
    return torch.cat(chunks)


def receives_into_the_buffer_it_sends(comm, chunk, sizes):
    r, p = comm.rank, comm.size
    chunks = [torch.zeros(size, dtype=chunk.dtype) for size in sizes]
    chunks[r], travelling = chunk, chunk.clone()
    for s in range(p - 1):
        sending = comm.isend(travelling, (r + 1) % p)
        travelling.resize_(sizes[(r - s - 1) % p])
        comm.recv(travelling, (r - 1) % p)
        sending.wait()
        chunks[(r - s - 1) % p] = travelling.clone()
    return torch.cat(chunks)


def sends_all_it_has(comm, chunk, sizes):
    r, p = comm.rank, comm.size
    joined = torch.zeros(sum(sizes), dtype=chunk.dtype)
    joined.split(list(sizes))[r].copy_(chunk)
    for s in range(p - 1):
        arrived = torch.empty_like(joined)
        comm.exchange([(joined, (r + 1) % p)], [(arrived, (r - 1) % p)])
        owner = (r - s - 1) % p
        joined.split(list(sizes))[owner].copy_(arrived.split(list(sizes))[owner])
    return joined


def all_send_first(comm, chunk, sizes):
    r, p = comm.rank, comm.size
    chunks = [torch.zeros(size, dtype=chunk.dtype) for size in sizes]
    chunks[r] = chunk
    for s in range(p - 1):
        comm.send(chunks[(r - s) % p], (r + 1) % p)
        comm.recv(chunks[(r - s - 1) % p], (r - 1) % p)
    return torch.cat(chunks)


def skips_its_turn_when_it_has_nothing(comm, chunk, sizes):
    r, p = comm.rank, comm.size
    chunks = [torch.zeros(size, dtype=chunk.dtype) for size in sizes]
    chunks[r] = chunk
    if not len(chunk):
        return torch.cat(chunks)
    for s in range(p - 1):
        comm.exchange([(chunks[(r - s) % p], (r + 1) % p)], [(chunks[(r - s - 1) % p], (r - 1) % p)])
    return torch.cat(chunks)


def tells_everyone(comm, chunk, sizes):
    others = [rank for rank in range(comm.size) if rank != comm.rank]
    chunks = [torch.empty(size, dtype=chunk.dtype) for size in sizes]
    chunks[comm.rank] = chunk
    comm.exchange([(chunk, rank) for rank in others], [(chunks[rank], rank) for rank in others])
    return torch.cat(chunks)


MISTAKES = (
    Mistake(
        "sends its own chunk each time",
        sends_its_own_chunk_each_time,
        "At every step you send your own chunk, so your neighbour gets it again and again, and the rank after it "
        "never. Pass on what came in at the step before.",
        symptom=behaves_like("value", sends_its_own_chunk_into_every_place),
    ),
    Mistake(
        "chunk index off by one",
        starts_off_by_one,
        "At the first step you send a chunk that you do not have yet. All that a rank has at the start is its own "
        "chunk, with its own number.",
    ),
    Mistake(
        "counts the chunks in the wrong direction",
        counts_up,
        "Your chunk's number grows with the steps, but what came from the left is the chunk with the number one "
        "lower, and that is what goes on to the right.",
        symptom=behaves_like("value", counts_both_up),
    ),
    Mistake(
        "one step too few",
        one_step_too_few,
        "One chunk is missing on every rank: that of its right neighbour, which has the longest way. It takes one "
        "step fewer than there are ranks.",
    ),
    Mistake(
        "one step too many",
        one_step_too_many,
        "A single rank has nobody to send to. It takes one step fewer than there are ranks: do you make as many "
        "steps as ranks, or one in any case?",
        symptom=says("itself as dst"),
    ),
    Mistake(
        "joins in order of arrival",
        joins_in_order_of_arrival,
        "All chunks are there, in the order in which they came. Every rank has to return the same tensor: chunk 0 "
        "first.",
    ),
    Mistake(
        "returns a list",
        returns_a_list,
        "The chunks are right, but they come as a list. One tensor is asked for: `torch.cat` joins them.",
    ),
    Mistake(
        "takes all chunks for equal",
        takes_all_for_equal,
        "You give every chunk the length of your own. When the length does not divide, the first chunks are longer: "
        "`sizes` says how long each is.",
        symptom=another_length,
    ),
    Mistake(
        "buffers of the default dtype",
        buffers_of_the_default_dtype,
        "Your buffers are float32, whatever the chunk is. Make them with `dtype=chunk.dtype`, or with "
        "`chunk.new_empty(size)`.",
        symptom=another_dtype,
    ),
    Mistake(
        "receives into the buffer that is being sent",
        receives_into_the_buffer_it_sends,
        "You receive into the tensor that is still on its way to the right. Until `wait()` has returned it belongs "
        "to the send: give every chunk a place of its own.",
        symptom=says("changed before wait"),
    ),
    Mistake(
        "sends everything each step",
        sends_all_it_has,
        "The numbers are right, but at each step everything is sent, most of it for the second time or still empty. "
        "One chunk a step is enough.",
        symptom=sends_more(1.6),
    ),
    Mistake(
        "all send first",
        all_send_first,
        "Every rank sends first and none receives. Start the send, receive, then wait; or call `comm.exchange`.",
        symptom=deadlocked("send"),
    ),
    Mistake(
        "leaves when its chunk is empty",
        skips_its_turn_when_it_has_nothing,
        "A rank with an empty chunk returns at once, and its neighbours wait for it for ever. It has nothing of its "
        "own to give, but it has to pass on the chunks of the others.",
        symptom=deadlocked(),
    ),
    Mistake(
        "tells everyone",
        tells_everyone,
        "Numbers and bytes are right, but every rank sends its chunk to all the others, which is no ring. Send to "
        "one neighbour, and let the chunks be passed on.",
    ),
    *of_calls(ring_all_gather),
)
