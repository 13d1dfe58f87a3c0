"""04.4 `ring_all_reduce`: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; the exercise is in `all_reduce.py`, wrong solutions are in `all_reduce_wrong.py`.
"""

from __future__ import annotations

import torch

from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.lab04 import all_reduce_wrong as wrong
from lockstep.exercises.lab04.all_reduce_right import ring_all_reduce
from lockstep.exercises.lab04.calls import of_calls
from lockstep.exercises.lab04.steps import (
    NO_SUCH_RANK,
    another_dtype,
    another_length,
    behaves_like,
    deadlocked,
    sends_more,
    unchanged,
)
from lockstep.exercises.observe import Observation
from lockstep.exercises.symptoms import says


def adds_in_both_halves_from_its_own_chunk(comm, tensor):
    wrong.halves(comm, tensor, start=0, keep=torch.Tensor.add_)


def keeps_new_tensors_from_its_own_chunk(comm, tensor):
    wrong.keeps_new_tensors_in_a_list(comm, tensor, start=0)


def stops_half_way_from_its_own_chunk(comm, tensor):
    r, p = comm.rank, comm.size
    chunks = tensor.tensor_split(p)
    for s in range(p - 1):
        incoming = chunks[(r - s - 1) % p]
        arrived = torch.empty_like(incoming)
        comm.exchange([(chunks[(r - s) % p], (r + 1) % p)], [(arrived, (r - 1) % p)])
        incoming += arrived


HALF = behaves_like("arguments", wrong.stops_half_way, stops_half_way_from_its_own_chunk)


def made_both_halves(case: Case, seen: Observation, expected: Observation) -> bool:
    """`tensor` is as after the first half, but as many messages were sent as two take."""
    sent, enough = (sum(one.messages_sent for one in who.traffic) for who in (seen, expected))
    return sent >= enough and HALF(case, seen, expected)


MISTAKES = (
    Mistake(
        "not in place",
        wrong.not_in_place,
        "The sum is made in another tensor, and the one that was handed in still holds this rank's own numbers. "
        "Write the result into it: `tensor.copy_(...)`. `tensor = ...` only gives the name to another one.",
        symptom=unchanged(0),
    ),
    Mistake(
        "gives the result a name only",
        wrong.gives_the_result_a_name_only,
        "Both halves are there, but what the second one gives never gets into the tensor that was handed in: that "
        "one is as the first half left it. `tensor = ...` only gives the name to another one; `tensor.copy_(...)` "
        "writes into it.",
        symptom=made_both_halves,
    ),
    Mistake(
        "keeps new tensors in a list",
        wrong.keeps_new_tensors_in_a_list,
        "`chunks[i] = chunks[i] + arrived` puts a new tensor into your list, and the part of `tensor` that was there "
        "keeps its old numbers. Add in place, `chunks[i].add_(arrived)`, or copy everything into `tensor` at the end.",
        symptom=behaves_like("arguments", wrong.keeps_new_tensors_in_a_list, keeps_new_tensors_from_its_own_chunk),
    ),
    Mistake(
        "all-gather starts from the wrong chunk",
        wrong.gathers_from_the_wrong_chunk,
        "The second half begins with a chunk that is not finished, and spreads it. Which chunk holds the whole "
        "sum on rank r after the first half? That one leaves first.",
    ),
    Mistake(
        "adds in both halves",
        wrong.adds_in_both_halves,
        "You add in the second half too. What arrives there is finished: it takes the place of what you have.",
        symptom=behaves_like("arguments", wrong.adds_in_both_halves, adds_in_both_halves_from_its_own_chunk),
    ),
    Mistake(
        "stops half way",
        wrong.stops_half_way,
        "Only one chunk of each rank is finished: that is a reduce-scatter. The other half of the work is to give "
        "the finished chunks to everyone.",
        symptom=HALF,
    ),
    Mistake(
        "the second half on rank 0 only",
        wrong.only_rank_0_gathers,
        "Some ranks pass on their chunks and others have left already, so those that go on wait for ever. Every "
        "rank takes part in every step of both halves: look for an `if comm.rank == 0`.",
        symptom=deadlocked(),
    ),
    Mistake(
        "as many steps as ranks",
        wrong.as_many_steps_as_ranks,
        "A single rank has nobody to send to. Each half takes one step fewer than there are ranks: do you make as "
        "many as there are ranks, or one in any case?",
        symptom=says("itself as dst"),
    ),
    Mistake(
        "averages early",
        wrong.averages_early,
        "You divide at every step, so the ranks' numbers do not count alike: those that are added first are halved "
        "again and again. Add up everything; a mean is made at the end, once.",
    ),
    Mistake(
        "leaves the mean",
        wrong.leaves_the_mean,
        "That is the mean over the ranks. The sum is asked for.",
    ),
    Mistake(
        "needs a length that divides",
        wrong.needs_a_length_that_divides,
        "Right when the number of ranks divides the length; otherwise your chunks do not come out as one for each "
        "rank. `tensor_split(comm.size)` always makes that many, some longer by one, some perhaps empty.",
    ),
    Mistake(
        "takes all chunks for equal",
        wrong.takes_all_chunks_for_equal,
        "A chunk comes in whose length is not that of the tensor it is to fill. When the length does not divide, "
        "chunks differ: make each place as long as the chunk that comes there. The `sizes` of an all-gather are "
        "those of all chunks, `[len(c) for c in tensor.tensor_split(comm.size)]`.",
        symptom=another_length,
    ),
    Mistake(
        "buffers of the default dtype",
        wrong.buffers_of_the_default_dtype,
        "What you receive into is float32, whatever dtype the tensor has: `torch.empty(n)` makes it so. "
        "`torch.empty_like(chunk)` takes length and dtype from a chunk.",
        symptom=another_dtype,
    ),
    Mistake(
        "drops the rest",
        wrong.drops_the_rest,
        "The last few numbers are never sent: they are what the division leaves over. `tensor_split` gives the "
        "first chunks one number more.",
    ),
    Mistake(
        "views it as equal rows",
        wrong.views_as_equal_rows,
        "A tensor whose length does not divide cannot be seen as rows of equal length. Split it with "
        "`tensor_split`, or copy it into a longer one.",
        symptom=says("is invalid for input of size"),
    ),
    Mistake(
        "sends the whole tensor each step",
        wrong.sends_whole_tensors,
        "The numbers are right, but the whole tensor goes round the ring: p - 1 tensors from every rank, where less "
        "than two are enough. Let one chunk travel at each step.",
        symptom=sends_more(1.3),
    ),
    Mistake(
        "through rank 0",
        wrong.through_rank_0,
        "The numbers are right, but everything goes through rank 0: its link carries p - 1 tensors in and out while "
        "the others wait. That hot spot is what a ring avoids.",
    ),
    Mistake(
        "leaves when its chunk is empty",
        wrong.leaves_when_its_chunk_is_empty,
        "A tensor shorter than the ring leaves some ranks an empty chunk, and yours return at once. They have "
        "nothing of their own to finish, but they have to add to the others' chunks and pass them on.",
    ),
    Mistake(
        "assumes a power of two",
        wrong.assumes_a_power_of_two,
        "You swap with the rank at distance 1, 2, 4, which exists for every rank only when their number is a "
        "power of two. And whole tensors are swapped: use the ring.",
        symptom=NO_SUCH_RANK,
    ),
    Mistake(
        "all send first",
        wrong.all_send_first,
        "Every rank sends first, and nobody receives. Start the send, receive, then wait; or call `comm.exchange`.",
        symptom=deadlocked("send"),
    ),
    *of_calls(ring_all_reduce),
)
