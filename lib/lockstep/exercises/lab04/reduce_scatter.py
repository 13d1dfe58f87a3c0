"""04.2 `ring_reduce_scatter`: every rank ends with the sum of its own chunk.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from lockstep.exercises.compare import alike
from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.judge import all_of, same_value
from lockstep.exercises.lab04.calls import of_calls
from lockstep.exercises.lab04.steps import (
    another_dtype,
    another_length,
    at_most,
    behaves_like,
    chunk_size,
    counted,
    deadlocked,
    numbers,
    on_network,
    one_neighbour,
    sends_more,
    side_by_side,
)
from lockstep.exercises.observe import Observation, Simulate
from lockstep.exercises.symptoms import raises, says


def ring_reduce_scatter(comm, tensor):
    r, p = comm.rank, comm.size
    chunks = tensor.clone().tensor_split(p)
    for s in range(p - 1):
        outgoing, incoming = chunks[(r - s - 1) % p], chunks[(r - s - 2) % p]
        arrived = torch.empty_like(incoming)
        comm.exchange([(outgoing, (r + 1) % p)], [(arrived, (r - 1) % p)])
        incoming += arrived
    return chunks[r]


def with_a_travelling_sum(comm, tensor):
    """The partial sum is one tensor that moves; chunks stay as they are."""
    p = comm.size
    chunks = list(torch.tensor_split(tensor, p))
    travelling = chunks[comm.rank - 1].clone()
    for index in range(comm.rank - 2, comm.rank - 1 - p, -1):
        handle = comm.isend(travelling, (comm.rank + 1) % p)
        arrived = torch.zeros_like(chunks[index])
        comm.recv(arrived, (comm.rank - 1) % p)
        handle.wait()
        travelling = arrived + chunks[index]
    return travelling


def the_other_way_round(comm, tensor):
    """To the left, in place, skipping empty chunks."""
    size, rank = comm.size, comm.rank
    n = tensor.numel()
    bounds = [0]
    for c in range(size):
        bounds.append(bounds[-1] + n // size + (1 if c < n % size else 0))
    part = {c: tensor[bounds[c] : bounds[c + 1]] for c in range(size)}
    for step in range(1, size):
        leaves, comes = part[(rank + step) % size], part[(rank + step + 1) % size]
        handles, inbox = [], torch.empty(comes.shape, dtype=tensor.dtype)
        if comes.numel():
            handles.append(comm.irecv(inbox, (rank + 1) % size))
        if leaves.numel():
            handles.append(comm.isend(leaves, (rank - 1) % size))
        for handle in handles:
            handle.wait()
        if comes.numel():
            comes.add_(inbox)
    return part[rank].clone()


def ring_reduce_scatter_stub(comm, tensor):
    right = (comm.rank + 1) % comm.size  # noqa: F841 - the skeleton, as students get it
    left = (comm.rank - 1) % comm.size  # noqa: F841
    chunks = ...  # noqa: F841
    raise NotImplementedError("p - 1 steps: a chunk leaves to the right, one comes from the left and is added")


def ring(comm, tensor, leaves, add=torch.Tensor.add_, steps=None, split=None, back=0):
    """The loop of the mistakes: at step s the chunk with index `leaves(s)` goes right, the one before it comes in."""
    r, p = comm.rank, comm.size
    chunks = (split or torch.tensor_split)(tensor.clone(), p)
    for s in range(p - 1 if steps is None else steps(p)):
        incoming = chunks[(leaves(r, s) - 1) % p]
        arrived = torch.empty_like(incoming)
        comm.exchange([(chunks[leaves(r, s) % p], (r + 1) % p)], [(arrived, (r - 1) % p)])
        add(incoming, arrived)
    return chunks[(r + back) % p]


def starts_with_its_own_chunk(comm, tensor):
    return ring(comm, tensor, lambda r, s: r - s, back=1)


def returns_the_wrong_chunk(comm, tensor):
    return ring(comm, tensor, lambda r, s: r - s)


def counts_the_chunks_up(comm, tensor):
    return ring(comm, tensor, lambda r, s: r - 1 + s)


def sends_the_same_chunk(comm, tensor):
    return ring(comm, tensor, lambda r, s: r - 1)


def sends_the_same_chunk_and_adds_to_others(comm, tensor):
    return own_walk(comm, tensor, lambda r, s: r - 1, lambda r, s: r - s - 2)


def sends_its_own_chunk_and_adds_to_others(comm, tensor):
    return own_walk(comm, tensor, lambda r, s: r, lambda r, s: r - s - 1, back=1)


def sends_the_owners_chunks_to_the_right(comm, tensor):
    return own_walk(comm, tensor, lambda r, s: r + s + 1, lambda r, s: r)


def own_walk(comm, tensor, leaves, comes, back=0):
    """As `ring`, but what comes in is added to the chunk with index `comes(r, s)`."""
    r, p = comm.rank, comm.size
    chunks = tensor.clone().tensor_split(p)
    for s in range(p - 1):
        incoming = chunks[comes(r, s) % p]
        arrived = torch.empty_like(incoming)
        comm.exchange([(chunks[leaves(r, s) % p], (r + 1) % p)], [(arrived, (r - 1) % p)])
        incoming += arrived
    return chunks[(r + back) % p]


def overwrites(comm, tensor):
    return ring(comm, tensor, lambda r, s: r - s - 1, add=torch.Tensor.copy_)


def one_step_too_many(comm, tensor):
    return ring(comm, tensor, lambda r, s: r - s - 1, steps=lambda p: p)


def halves_at_every_step(comm, tensor):
    return ring(comm, tensor, lambda r, s: r - s - 1, add=lambda own, came: own.add_(came).div_(2))


def divides_by_the_ranks(comm, tensor):
    return ring(comm, tensor, lambda r, s: r - s - 1) / comm.size


def buffer_like_its_own_chunk(comm, tensor):
    r, p = comm.rank, comm.size
    chunks = tensor.clone().tensor_split(p)
    arrived = torch.empty_like(chunks[r])
    for s in range(p - 1):
        comm.exchange([(chunks[(r - s - 1) % p], (r + 1) % p)], [(arrived, (r - 1) % p)])
        chunks[(r - s - 2) % p].add_(arrived)
    return chunks[r]


def buffer_of_the_default_dtype(comm, tensor):
    r, p = comm.rank, comm.size
    chunks = tensor.clone().tensor_split(p)
    for s in range(p - 1):
        incoming = chunks[(r - s - 2) % p]
        arrived = torch.empty(len(incoming))
        comm.exchange([(chunks[(r - s - 1) % p], (r + 1) % p)], [(arrived, (r - 1) % p)])
        incoming += arrived
    return chunks[r]


def returns_what_only_the_loop_knows(comm, tensor):
    r, p = comm.rank, comm.size
    chunks = tensor.clone().tensor_split(p)
    for s in range(p - 1):
        incoming = chunks[(r - s - 2) % p]
        arrived = torch.empty_like(incoming)
        comm.exchange([(chunks[(r - s - 1) % p], (r + 1) % p)], [(arrived, (r - 1) % p)])
        incoming += arrived
    return incoming


def returns_all_chunks(comm, tensor):
    r, p = comm.rank, comm.size
    chunks = list(tensor.clone().tensor_split(p))
    for s in range(p - 1):
        incoming = chunks[(r - s - 2) % p]
        arrived = torch.empty_like(incoming)
        comm.exchange([(chunks[(r - s - 1) % p], (r + 1) % p)], [(arrived, (r - 1) % p)])
        incoming += arrived
    return chunks


def drops_the_rest(comm, tensor):
    return ring(comm, tensor, lambda r, s: r - s - 1, split=lambda t, p: t[: t.numel() // p * p].tensor_split(p))


def splits_by_torch_chunk(comm, tensor):
    return ring(comm, tensor, lambda r, s: r - s - 1, split=lambda t, p: t.chunk(p))


def receives_from_the_right(comm, tensor):
    r, p = comm.rank, comm.size
    chunks, right = tensor.clone().tensor_split(p), (r + 1) % p
    for s in range(p - 1):
        incoming = chunks[(r - s - 2) % p]
        arrived = torch.empty_like(incoming)
        comm.exchange([(chunks[(r - s - 1) % p], right)], [(arrived, right)])
        incoming += arrived
    return chunks[r]


def sends_everything_each_step(comm, tensor):
    r, p = comm.rank, comm.size
    total, travelling = tensor.clone(), tensor.clone()
    for _ in range(p - 1):
        arrived = torch.empty_like(tensor)
        comm.exchange([(travelling, (r + 1) % p)], [(arrived, (r - 1) % p)])
        total += arrived
        travelling = arrived
    return total.tensor_split(p)[r]


def receives_into_the_buffer_it_sends(comm, tensor):
    r, p = comm.rank, comm.size
    chunks = tensor.tensor_split(p)
    buffer = chunks[(r - 1) % p].clone()
    for s in range(p - 1):
        sending = comm.isend(buffer, (r + 1) % p)
        buffer = buffer.resize_(chunks[(r - s - 2) % p].shape)
        comm.recv(buffer, (r - 1) % p)
        sending.wait()
        buffer += chunks[(r - s - 2) % p]
    return buffer


def all_send_first(comm, tensor):
    r, p = comm.rank, comm.size
    chunks = tensor.clone().tensor_split(p)
    for s in range(p - 1):
        arrived = torch.empty_like(chunks[(r - s - 2) % p])
        comm.send(chunks[(r - s - 1) % p], (r + 1) % p)
        comm.recv(arrived, (r - 1) % p)
        chunks[(r - s - 2) % p].add_(arrived)
    return chunks[r]


def through_rank_0(comm, tensor):
    chunks, arrived = tensor.clone().tensor_split(comm.size), torch.empty_like(tensor)
    if comm.rank == 0:
        total = tensor.clone()
        for other in range(1, comm.size):
            comm.recv(arrived, other)
            total += arrived
        for other in range(1, comm.size):
            comm.send(total.tensor_split(comm.size)[other], other)
        return total.tensor_split(comm.size)[0]
    comm.send(tensor, 0)
    comm.recv(chunks[comm.rank], 0)
    return chunks[comm.rank]


def straight_to_the_owner(comm, tensor):
    chunks = tensor.clone().tensor_split(comm.size)
    for d in range(1, comm.size):
        arrived = torch.empty_like(chunks[comm.rank])
        to, source = (comm.rank + d) % comm.size, (comm.rank - d) % comm.size
        comm.exchange([(chunks[to], to)], [(arrived, source)])
        chunks[comm.rank].add_(arrived)
    return chunks[comm.rank]


def one_rank_after_the_other(comm, tensor):
    r, p = comm.rank, comm.size
    chunks = tensor.clone().tensor_split(p)
    for s in range(p - 1):
        outgoing, incoming = chunks[(r - s - 1) % p], chunks[(r - s - 2) % p]
        arrived = torch.empty_like(incoming)
        if r == 0:
            comm.send(outgoing, (r + 1) % p)
        comm.recv(arrived, (r - 1) % p)
        if r > 0:
            comm.send(outgoing, (r + 1) % p)
        incoming += arrived
    return chunks[r]


def returns_its_own_part(case: Case, seen: Observation, expected: Observation) -> bool:
    """No other rank's numbers are in what is returned."""
    if seen.error is not None:
        return False
    own = [one[0].tensor_split(case.ranks)[rank] for rank, one in enumerate(case.each)]
    return all(alike(got, part) for got, part in zip(seen.value, own, strict=True))


def is_too_short(case: Case, seen: Observation, expected: Observation) -> bool:
    """Every rank returns as many numbers, and some of all numbers nobody does."""
    if seen.error is not None or not all(isinstance(one, torch.Tensor) for one in seen.value):
        return False
    each, rest = divmod(case.each[0][0].numel(), case.ranks)
    return rest > 0 and {one.numel() for one in seen.value} == {each}


def belongs_to_the_next_rank(case: Case, seen: Observation, expected: Observation) -> bool:
    """Every rank returns the finished chunk of the next one."""
    shifted = [*expected.value[1:], expected.value[0]]
    return seen.error is None and case.ranks > 1 and alike(seen.value, shifted)


def holds_only_the_first_ranks(case: Case, seen: Observation, expected: Observation) -> bool:
    """What is returned are the numbers of the rank where the chunk set out, once or doubled at every step."""
    if seen.error is not None or case.ranks == 1 or not all(isinstance(one, torch.Tensor) for one in seen.value):
        return False
    p = case.ranks
    parts = [case.each[(r + 1) % p][0].tensor_split(p)[r] for r in range(p)]
    return any(alike(seen.value, [factor * part for part in parts]) for factor in (1, 2 ** (p - 1)))


def holds_every_chunk(case: Case, seen: Observation, expected: Observation) -> bool:
    """A list of all chunks comes where one is asked for."""
    values = seen.value if seen.error is None else []
    return bool(values) and all(isinstance(one, (list, tuple)) and len(one) == case.ranks for one in values)


def reduce_scatter_cases(rng: np.random.Generator) -> Iterator[Case]:
    for ranks, n in ((1, 3), (2, 4), (3, 6), (3, 0), (3, 7), (4, 3)):
        yield on_network(ranks, each=[(numbers(rng, n),) for _ in range(ranks)], name=counted(n))
    n = int(rng.integers(13, 18))
    each = [(numbers(rng, n, torch.float64),) for _ in range(6)]
    yield on_network(6, each=each, name=f"{counted(n)} of float64")


REDUCE_SCATTER = Exercise(
    id="04.2",
    title="Ring reduce-scatter",
    function="ring_reduce_scatter",
    points=3,
    asks=(
        "Every rank hands in a 1-D tensor of the same length. Rank r returns chunk r of the sum over all ranks, chunks "
        "as `tensor.tensor_split(comm.size)` makes them. Each rank sends to one neighbour only, all of them the same way "
        "round, one chunk at each of `comm.size - 1` steps."
    ),
    reference=ring_reduce_scatter,
    also_right=(with_a_travelling_sum, the_other_way_round),
    stub=ring_reduce_scatter_stub,
    cases=reduce_scatter_cases,
    observe=Simulate(),
    judge=all_of(
        same_value(),
        at_most(
            "bytes_sent", lambda case, r: (case.each[0][0].numel() - chunk_size(case, r)) * case.each[0][0].itemsize
        ),
        one_neighbour,
        at_most("messages_sent", lambda case, r: case.ranks - 1),
        side_by_side,
    ),
    forbidden=("comm.all_reduce", "comm.reduce_scatter", "comm.all_to_all", "comm.reduce"),
    hints=(
        (
            "Follow one chunk. Rank r has to end with chunk r, so at the last step chunk r comes in. Where is it one "
            "step earlier, and at which rank does its journey begin?"
        ),
        (
            "With four ranks rank 0 passes on chunks 3, 2, 1, in this order: at every step the one that it has just "
            "added to. What does rank 1 pass on? Write the chunk's number with `comm.rank` and the step."
        ),
        (
            "At step s (from 0) rank r sends chunk r - s - 1, counted modulo p, to the right. What comes from the left "
            "belongs to the chunk one below that. Receive it into a tensor of its own and add."
        ),
        (
            "`outgoing, incoming = chunks[(r - s - 1) % p], chunks[(r - s - 2) % p]`, then "
            "`arrived = torch.empty_like(incoming)`, one exchange, and `incoming += arrived`."
        ),
    ),
    mistakes=(
        Mistake(
            "chunk index off by one",
            starts_with_its_own_chunk,
            "The chunk you return is summed completely, but it is that of the next rank. A chunk that sets out at its "
            "own rank comes to rest one rank short of it; let each rank start with the chunk before its own.",
            symptom=belongs_to_the_next_rank,
        ),
        Mistake(
            "returns a chunk that is not finished",
            returns_the_wrong_chunk,
            "What you return is your own part of the chunk and nothing more: no other rank's numbers have been added to "
            "it. Either a step is missing, or your chunks end their journey at another rank: follow chunk 0 through a "
            "ring of three ranks, and see where it comes to rest.",
            symptom=returns_its_own_part,
        ),
        Mistake(
            "counts the chunks in the wrong direction",
            counts_the_chunks_up,
            "The index of your chunk grows with the steps. What goes on to the right at a step is what came from the "
            "left at the step before, and that chunk's number is one lower.",
        ),
        Mistake(
            "sends the same chunk every time",
            sends_the_same_chunk,
            "You send one and the same chunk at every step. A partial sum has to go on: send what you added to at the "
            "step before.",
            symptom=behaves_like(
                "value", sends_the_same_chunk_and_adds_to_others, sends_its_own_chunk_and_adds_to_others
            ),
        ),
        Mistake(
            "sends every owner's chunk to the right",
            sends_the_owners_chunks_to_the_right,
            "You go through the owners of the chunks, but send each chunk to your right neighbour, who adds it to its "
            "own: only the first belongs there. A chunk for another owner is passed on: the neighbour adds its numbers "
            "of that chunk to it, and sends it further.",
            symptom=behaves_like("value", sends_the_owners_chunks_to_the_right),
        ),
        Mistake(
            "overwrites instead of adding",
            overwrites,
            "What arrives takes the place of your own numbers, so they are lost. Receive into a tensor of its own, then "
            "add it to your chunk.",
            symptom=holds_only_the_first_ranks,
        ),
        Mistake(
            "one step too many",
            one_step_too_many,
            "A single rank has nobody to send to. It takes one step fewer than there are ranks: do you make as many "
            "steps as ranks, or one in any case?",
            symptom=says("itself as dst"),
        ),
        Mistake(
            "averages early",
            halves_at_every_step,
            "You divide at every step, so a rank's numbers are halved once for each step that follows: the first ones "
            "count least. Add up first. If a mean is wanted, divide the finished chunk once.",
        ),
        Mistake(
            "returns the mean",
            divides_by_the_ranks,
            "That is the mean. The sum is asked for, not divided by the number of ranks.",
        ),
        Mistake(
            "a buffer of another length",
            buffer_like_its_own_chunk,
            "What you receive into has another length than what arrives: when the length does not divide, chunks "
            "differ. Make the buffer like the chunk that it is added to.",
            symptom=another_length,
        ),
        Mistake(
            "a buffer of the default dtype",
            buffer_of_the_default_dtype,
            "What you receive into is float32, whatever dtype the tensor has: `torch.empty(n)` makes it so. "
            "`torch.empty_like(chunk)` takes length and dtype from a chunk.",
            symptom=another_dtype,
        ),
        Mistake(
            "returns what only the loop knows",
            returns_what_only_the_loop_knows,
            "A single rank makes no step, so a name that only the loop sets does not exist there. The chunk to return "
            "can be named without the loop: it is that of the rank itself.",
            symptom=raises("UnboundLocalError"),
        ),
        Mistake(
            "returns all chunks",
            returns_all_chunks,
            "You return all chunks. Only one of them is finished on this rank, and only that one is asked for: chunk r "
            "on rank r.",
            symptom=holds_every_chunk,
        ),
        Mistake(
            "drops the rest",
            drops_the_rest,
            "Your chunks all have the same length, so what is left over at the end belongs to nobody. "
            "`tensor_split` gives the first chunks one number more.",
            symptom=is_too_short,
        ),
        Mistake(
            "splits by torch.chunk",
            splits_by_torch_chunk,
            "`torch.chunk` rounds the length of a chunk up, so the last ranks get less or no chunk at all. Use "
            "`tensor_split`, which always makes as many chunks as you ask for.",
            symptom=says("index out of range"),
        ),
        Mistake(
            "wrong direction",
            receives_from_the_right,
            "You send to the right and wait for the right neighbour too, who sends to *its* right. What goes to the "
            "right arrives from the left. With two ranks you cannot see the difference.",
            symptom=deadlocked("exchange", "recv from rank"),
        ),
        Mistake(
            "sends the whole tensor each step",
            sends_everything_each_step,
            "The numbers are right, but the whole tensor goes round the ring: p times the bytes. Only one chunk has to "
            "travel at each step.",
            symptom=sends_more(1.6),
        ),
        Mistake(
            "receives into the buffer that is being sent",
            receives_into_the_buffer_it_sends,
            "You receive into the very tensor that you are sending. Until `wait()` has returned it belongs to the "
            "send. Use two tensors, one to send and one to receive.",
            symptom=says("changed before wait"),
        ),
        Mistake(
            "all send first",
            all_send_first,
            "Every rank sends first and none receives: your own exercise 04.1 has the cure. Start the send, receive, "
            "then wait; or call `comm.exchange`.",
            symptom=deadlocked("send"),
        ),
        Mistake(
            "through rank 0",
            through_rank_0,
            "The numbers are right, but everything goes through rank 0, which receives every tensor and sends every "
            "chunk: that is the hot spot. In a ring all ranks carry the same load.",
        ),
        Mistake(
            "straight to the owner",
            straight_to_the_owner,
            "The numbers, the bytes and the number of messages are right, but this is no ring: every rank sends to every "
            "other one. Pass the chunks on from neighbour to neighbour, adding on the way.",
        ),
        Mistake(
            "one rank after the other",
            one_rank_after_the_other,
            "Numbers and bytes are right, but within a step each rank waits for the one before it, and the others look "
            "on. Send and receive at the same time, as in 04.1.",
        ),
        *of_calls(ring_reduce_scatter),
    ),
)
