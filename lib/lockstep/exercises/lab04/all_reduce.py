"""04.4 `ring_all_reduce`: the sum over all ranks, in place, for a tensor of any length.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.judge import all_of
from lockstep.exercises.lab04.calls import of_calls
from lockstep.exercises.lab04.steps import (
    NO_SUCH_RANK,
    another_dtype,
    another_length,
    at_most,
    behaves_like,
    counted,
    deadlocked,
    numbers,
    on_network,
    one_neighbour,
    same_in_place,
    sends_more,
    side_by_side,
    unchanged,
)
from lockstep.exercises.observe import Observation, Simulate
from lockstep.exercises.symptoms import says


def ring_all_reduce(comm, tensor):
    r, p = comm.rank, comm.size
    chunks = tensor.tensor_split(p)
    for s in range(2 * (p - 1)):
        outgoing, incoming = chunks[(r - s - 1) % p], chunks[(r - s - 2) % p]
        arrived = torch.empty_like(incoming)
        comm.exchange([(outgoing, (r + 1) % p)], [(arrived, (r - 1) % p)])
        incoming.copy_(incoming + arrived if s < p - 1 else arrived)


def in_two_halves(comm, tensor):
    """A reduce-scatter that ends one chunk further on, then an all-gather."""
    size, rank = comm.size, comm.rank
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = list(torch.tensor_split(tensor, size))
    for step in range(size - 1):
        index = (rank - step - 1) % size
        inbox = torch.zeros_like(chunks[index])
        handle = comm.isend(chunks[(rank - step) % size], right)
        comm.recv(inbox, left)
        handle.wait()
        chunks[index] += inbox
    for step in range(size - 1):
        handle = comm.isend(chunks[(rank + 1 - step) % size], right)
        comm.recv(chunks[(rank - step) % size], left)
        handle.wait()
    return tensor


def padded_and_to_the_left(comm, tensor):
    p, n = comm.size, tensor.numel()
    each = (n + p - 1) // p
    padded = torch.zeros(each * p, dtype=tensor.dtype)
    padded[:n] = tensor
    rows = padded.view(p, each)
    own = comm.rank
    for turn in (True, False):
        for _ in range(p - 1):
            came = torch.empty(each, dtype=tensor.dtype)
            comm.exchange([(rows[own], (comm.rank - 1) % p)], [(came, (comm.rank + 1) % p)])
            own = (own + 1) % p
            rows[own] = rows[own] + came if turn else came
    tensor[:] = padded[:n]


def from_the_two_exercises_before(comm, tensor):
    from lockstep.exercises.lab04.all_gather import into_one_tensor
    from lockstep.exercises.lab04.reduce_scatter import with_a_travelling_sum

    chunk = with_a_travelling_sum(comm, tensor)
    sizes = [len(part) for part in tensor.tensor_split(comm.size)]
    tensor.copy_(into_one_tensor(comm, chunk, sizes))


def ring_all_reduce_stub(comm, tensor):
    raise NotImplementedError("leave the sum over all ranks in `tensor`")


def halves(
    comm, tensor, gather_from=0, start=-1, add=torch.Tensor.add_, keep=torch.Tensor.copy_, split=torch.tensor_split
):
    """Both loops, for the mistakes: which chunk the all-gather starts from, what is done with what arrives."""
    r, p = comm.rank, comm.size
    chunks = split(tensor, p)

    def turn(first, take):
        for s in range(p - 1):
            incoming = chunks[(first - s - 1) % p]
            arrived = torch.empty_like(incoming)
            comm.exchange([(chunks[(first - s) % p], (r + 1) % p)], [(arrived, (r - 1) % p)])
            take(incoming, arrived)

    turn(r + start, add)
    turn(r + start + 1 + gather_from, keep)


def not_in_place(comm, tensor):
    total = tensor.clone()
    halves(comm, total)
    return total


def gathers_from_the_wrong_chunk(comm, tensor):
    halves(comm, tensor, gather_from=1)


def adds_in_both_halves(comm, tensor):
    halves(comm, tensor, keep=torch.Tensor.add_)


def adds_in_both_halves_from_its_own_chunk(comm, tensor):
    halves(comm, tensor, start=0, keep=torch.Tensor.add_)


def keeps_new_tensors_in_a_list(comm, tensor, start=-1):
    r, p = comm.rank, comm.size
    chunks = list(tensor.tensor_split(p))
    for s in range(p - 1):
        index = (r + start - s - 1) % p
        arrived = torch.empty_like(chunks[index])
        comm.exchange([(chunks[(r + start - s) % p], (r + 1) % p)], [(arrived, (r - 1) % p)])
        chunks[index] = chunks[index] + arrived
    for s in range(start + 1, start + p):
        comm.exchange([(chunks[(r - s) % p], (r + 1) % p)], [(chunks[(r - s - 1) % p], (r - 1) % p)])


def keeps_new_tensors_from_its_own_chunk(comm, tensor):
    keeps_new_tensors_in_a_list(comm, tensor, start=0)


def stops_half_way(comm, tensor):
    r, p = comm.rank, comm.size
    chunks = tensor.tensor_split(p)
    for s in range(p - 1):
        incoming = chunks[(r - s - 2) % p]
        arrived = torch.empty_like(incoming)
        comm.exchange([(chunks[(r - s - 1) % p], (r + 1) % p)], [(arrived, (r - 1) % p)])
        incoming += arrived


def stops_half_way_from_its_own_chunk(comm, tensor):
    r, p = comm.rank, comm.size
    chunks = tensor.tensor_split(p)
    for s in range(p - 1):
        incoming = chunks[(r - s - 1) % p]
        arrived = torch.empty_like(incoming)
        comm.exchange([(chunks[(r - s) % p], (r + 1) % p)], [(arrived, (r - 1) % p)])
        incoming += arrived


def gives_the_result_a_name_only(comm, tensor):
    from lockstep.exercises.lab04.all_gather import ring_all_gather

    sizes = [len(chunk) for chunk in tensor.tensor_split(comm.size)]
    stops_half_way(comm, tensor)
    tensor = ring_all_gather(comm, tensor.tensor_split(comm.size)[comm.rank], sizes)


def takes_all_chunks_for_equal(comm, tensor):
    from lockstep.exercises.lab04.all_gather import ring_all_gather
    from lockstep.exercises.lab04.reduce_scatter import ring_reduce_scatter

    chunk = ring_reduce_scatter(comm, tensor)
    tensor.copy_(ring_all_gather(comm, chunk, [len(chunk)] * comm.size))


def buffers_of_the_default_dtype(comm, tensor):
    r, p = comm.rank, comm.size
    chunks = tensor.tensor_split(p)
    for s in range(2 * (p - 1)):
        incoming = chunks[(r - s - 2) % p]
        arrived = torch.empty(len(incoming))
        comm.exchange([(chunks[(r - s - 1) % p], (r + 1) % p)], [(arrived, (r - 1) % p)])
        incoming.copy_(incoming + arrived if s < p - 1 else arrived)


def as_many_steps_as_ranks(comm, tensor):
    r, p = comm.rank, comm.size
    chunks = tensor.tensor_split(p)
    for s in range(2 * p):
        arrived = torch.empty_like(chunks[(r - s - 2) % p])
        comm.exchange([(chunks[(r - s - 1) % p], (r + 1) % p)], [(arrived, (r - 1) % p)])
        chunks[(r - s - 2) % p].copy_(arrived)


def averages_early(comm, tensor):
    halves(comm, tensor, add=lambda own, came: own.add_(came).div_(2))


def leaves_the_mean(comm, tensor):
    halves(comm, tensor)
    tensor /= comm.size


def needs_a_length_that_divides(comm, tensor):
    halves(comm, tensor, split=lambda t, p: t.split(t.numel() // p) if t.numel() >= p else [t] * p)


def drops_the_rest(comm, tensor):
    halves(comm, tensor, split=lambda t, p: t[: t.numel() // p * p].tensor_split(p))


def views_as_equal_rows(comm, tensor):
    halves(
        comm,
        tensor,
        split=lambda t, p: t.view(p, -1) if t.numel() % p == 0 and t.numel() else t.view(p, t.numel() // p),
    )


def sends_whole_tensors(comm, tensor):
    r, p = comm.rank, comm.size
    travelling = tensor.clone()
    for _ in range(p - 1):
        arrived = torch.empty_like(tensor)
        comm.exchange([(travelling, (r + 1) % p)], [(arrived, (r - 1) % p)])
        tensor += arrived
        travelling = arrived


def through_rank_0(comm, tensor):
    if comm.rank > 0:
        comm.send(tensor, 0)
        comm.recv(tensor, 0)
        return
    arrived = torch.empty_like(tensor)
    for other in range(1, comm.size):
        comm.recv(arrived, other)
        tensor += arrived
    for other in range(1, comm.size):
        comm.send(tensor, other)


def leaves_when_its_chunk_is_empty(comm, tensor):
    if not tensor.tensor_split(comm.size)[comm.rank].numel():
        return
    halves(comm, tensor)


def only_rank_0_gathers(comm, tensor):
    r, p = comm.rank, comm.size
    stops_half_way(comm, tensor)
    chunks = tensor.tensor_split(p)
    if r == 0:
        for s in range(p - 1):
            comm.exchange([(chunks[(r - s) % p], (r + 1) % p)], [(chunks[(r - s - 1) % p], (r - 1) % p)])


def assumes_a_power_of_two(comm, tensor):
    distance = 1
    while distance < comm.size:
        arrived, partner = torch.empty_like(tensor), comm.rank ^ distance
        comm.exchange([(tensor, partner)], [(arrived, partner)])
        tensor += arrived
        distance *= 2


def all_send_first(comm, tensor):
    r, p = comm.rank, comm.size
    chunks = tensor.tensor_split(p)
    for s in range(2 * (p - 1)):
        arrived = torch.empty_like(chunks[(r - s - 2) % p])
        comm.send(chunks[(r - s - 1) % p], (r + 1) % p)
        comm.recv(arrived, (r - 1) % p)
        chunks[(r - s - 2) % p].copy_(arrived)


HALF = behaves_like("arguments", stops_half_way, stops_half_way_from_its_own_chunk)


def made_both_halves(case: Case, seen: Observation, expected: Observation) -> bool:
    """`tensor` is as after the first half, but as many messages were sent as two take."""
    sent, enough = (sum(one.messages_sent for one in who.traffic) for who in (seen, expected))
    return sent >= enough and HALF(case, seen, expected)


def all_reduce_cases(rng: np.random.Generator) -> Iterator[Case]:
    for ranks, n in ((1, 3), (2, 4), (3, 6), (3, 0), (3, 7), (4, 2)):
        yield on_network(ranks, each=[(numbers(rng, n),) for _ in range(ranks)], name=counted(n))
    n = int(rng.integers(25, 32))
    each = [(numbers(rng, n, torch.float64),) for _ in range(8)]
    yield on_network(8, each=each, name=f"{counted(n)} of float64")


def _ring_bytes(case: Case, rank: int) -> int:
    """2(p - 1) of the longest chunks, which allows padding and any numbering of the chunks."""
    tensor, p = case.each[0][0], case.ranks
    return 2 * (p - 1) * -(-tensor.numel() // p) * tensor.itemsize


ALL_REDUCE = Exercise(
    id="04.4",
    title="Ring all-reduce",
    function="ring_all_reduce",
    points=3,
    asks=(
        "Every rank hands in a 1-D tensor of the same length, which may be any: not divisible by the number of ranks, "
        "shorter than that, or 0. Leave the sum over all ranks in it, in place. Each rank sends to one neighbour only, "
        "`2 * (comm.size - 1)` chunks."
    ),
    reference=ring_all_reduce,
    also_right=(in_two_halves, padded_and_to_the_left, from_the_two_exercises_before),
    stub=ring_all_reduce_stub,
    cases=all_reduce_cases,
    observe=Simulate(),
    judge=all_of(
        same_in_place(0, "tensor"),
        at_most("bytes_sent", _ring_bytes),
        one_neighbour,
        at_most("messages_sent", lambda case, r: 2 * (case.ranks - 1)),
        side_by_side,
    ),
    forbidden=("comm.all_reduce", "comm.reduce_scatter", "comm.all_gather", "comm.reduce", "comm.broadcast"),
    hints=(
        (
            "You have both halves: after a reduce-scatter each rank holds one finished chunk, and an all-gather gives "
            "it to everyone. What does the second one need to know of the lengths?"
        ),
        (
            "Call your two functions one after the other. The lengths of the chunks are those that `tensor_split` "
            "makes. At the end the joined tensor has to get into the one that was handed in."
        ),
        (
            "`tensor = joined` only gives a new name to the result; `tensor.copy_(joined)` writes it into the memory "
            "that the caller sees."
        ),
        (
            "`chunk = reduce_scatter(comm, tensor)`, then `sizes = [len(c) for c in tensor.tensor_split(comm.size)]`, "
            "then `tensor.copy_(all_gather(comm, chunk, sizes))`."
        ),
    ),
    mistakes=(
        Mistake(
            "not in place",
            not_in_place,
            "The sum is made in another tensor, and the one that was handed in still holds this rank's own numbers. "
            "Write the result into it: `tensor.copy_(...)`. `tensor = ...` only gives the name to another one.",
            symptom=unchanged(0),
        ),
        Mistake(
            "gives the result a name only",
            gives_the_result_a_name_only,
            "Both halves are there, but what the second one gives never gets into the tensor that was handed in: that "
            "one is as the first half left it. `tensor = ...` only gives the name to another one; `tensor.copy_(...)` "
            "writes into it.",
            symptom=made_both_halves,
        ),
        Mistake(
            "keeps new tensors in a list",
            keeps_new_tensors_in_a_list,
            "`chunks[i] = chunks[i] + arrived` puts a new tensor into your list, and the part of `tensor` that was there "
            "keeps its old numbers. Add in place, `chunks[i].add_(arrived)`, or copy everything into `tensor` at the end.",
            symptom=behaves_like("arguments", keeps_new_tensors_in_a_list, keeps_new_tensors_from_its_own_chunk),
        ),
        Mistake(
            "all-gather starts from the wrong chunk",
            gathers_from_the_wrong_chunk,
            "The second half begins with a chunk that is not finished, and spreads it. Which chunk holds the whole "
            "sum on rank r after the first half? That one leaves first.",
        ),
        Mistake(
            "adds in both halves",
            adds_in_both_halves,
            "You add in the second half too. What arrives there is finished: it takes the place of what you have.",
            symptom=behaves_like("arguments", adds_in_both_halves, adds_in_both_halves_from_its_own_chunk),
        ),
        Mistake(
            "stops half way",
            stops_half_way,
            "Only one chunk of each rank is finished: that is a reduce-scatter. The other half of the work is to give "
            "the finished chunks to everyone.",
            symptom=HALF,
        ),
        Mistake(
            "the second half on rank 0 only",
            only_rank_0_gathers,
            "Some ranks pass on their chunks and others have left already, so those that go on wait for ever. Every "
            "rank takes part in every step of both halves: look for an `if comm.rank == 0`.",
            symptom=deadlocked(),
        ),
        Mistake(
            "as many steps as ranks",
            as_many_steps_as_ranks,
            "A single rank has nobody to send to. Each half takes one step fewer than there are ranks: do you make as "
            "many as there are ranks, or one in any case?",
            symptom=says("itself as dst"),
        ),
        Mistake(
            "averages early",
            averages_early,
            "You divide at every step, so the ranks' numbers do not count alike: those that are added first are halved "
            "again and again. Add up everything; a mean is made at the end, once.",
        ),
        Mistake(
            "leaves the mean",
            leaves_the_mean,
            "That is the mean over the ranks. The sum is asked for.",
        ),
        Mistake(
            "needs a length that divides",
            needs_a_length_that_divides,
            "Right when the number of ranks divides the length; otherwise your chunks do not come out as one for each "
            "rank. `tensor_split(comm.size)` always makes that many, some longer by one, some perhaps empty.",
        ),
        Mistake(
            "takes all chunks for equal",
            takes_all_chunks_for_equal,
            "A chunk comes in whose length is not that of the tensor it is to fill. When the length does not divide, "
            "chunks differ: make each place as long as the chunk that comes there. The `sizes` of an all-gather are "
            "those of all chunks, `[len(c) for c in tensor.tensor_split(comm.size)]`.",
            symptom=another_length,
        ),
        Mistake(
            "buffers of the default dtype",
            buffers_of_the_default_dtype,
            "What you receive into is float32, whatever dtype the tensor has: `torch.empty(n)` makes it so. "
            "`torch.empty_like(chunk)` takes length and dtype from a chunk.",
            symptom=another_dtype,
        ),
        Mistake(
            "drops the rest",
            drops_the_rest,
            "The last few numbers are never sent: they are what the division leaves over. `tensor_split` gives the "
            "first chunks one number more.",
        ),
        Mistake(
            "views it as equal rows",
            views_as_equal_rows,
            "A tensor whose length does not divide cannot be seen as rows of equal length. Split it with "
            "`tensor_split`, or copy it into a longer one.",
            symptom=says("is invalid for input of size"),
        ),
        Mistake(
            "sends the whole tensor each step",
            sends_whole_tensors,
            "The numbers are right, but the whole tensor goes round the ring: p - 1 tensors from every rank, where less "
            "than two are enough. Let one chunk travel at each step.",
            symptom=sends_more(1.3),
        ),
        Mistake(
            "through rank 0",
            through_rank_0,
            "The numbers are right, but everything goes through rank 0: its link carries p - 1 tensors in and out while "
            "the others wait. That hot spot is what a ring avoids.",
        ),
        Mistake(
            "leaves when its chunk is empty",
            leaves_when_its_chunk_is_empty,
            "A tensor shorter than the ring leaves some ranks an empty chunk, and yours return at once. They have "
            "nothing of their own to finish, but they have to add to the others' chunks and pass them on.",
        ),
        Mistake(
            "assumes a power of two",
            assumes_a_power_of_two,
            "You swap with the rank at distance 1, 2, 4, which exists for every rank only when their number is a "
            "power of two. And whole tensors are swapped: use the ring.",
            symptom=NO_SUCH_RANK,
        ),
        Mistake(
            "all send first",
            all_send_first,
            "Every rank sends first, and nobody receives. Start the send, receive, then wait; or call `comm.exchange`.",
            symptom=deadlocked("send"),
        ),
        *of_calls(ring_all_reduce),
    ),
)
