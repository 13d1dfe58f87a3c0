"""04.2 `ring_reduce_scatter`: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; the exercise is in `reduce_scatter.py`, wrong solutions are in `reduce_scatter_wrong.py`.
"""

from __future__ import annotations

import torch

from lockstep.exercises.compare import alike
from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.lab04 import reduce_scatter_wrong as wrong
from lockstep.exercises.lab04.calls import of_calls
from lockstep.exercises.lab04.reduce_scatter_right import ring_reduce_scatter
from lockstep.exercises.lab04.steps import another_dtype, another_length, behaves_like, deadlocked, sends_more
from lockstep.exercises.observe import Observation
from lockstep.exercises.symptoms import raises, says


def sends_the_same_chunk_and_adds_to_others(comm, tensor):
    return wrong.own_walk(comm, tensor, lambda r, s: r - 1, lambda r, s: r - s - 2)


def sends_its_own_chunk_and_adds_to_others(comm, tensor):
    return wrong.own_walk(comm, tensor, lambda r, s: r, lambda r, s: r - s - 1, back=1)


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


MISTAKES = (
    Mistake(
        "chunk index off by one",
        wrong.starts_with_its_own_chunk,
        "The chunk you return is summed completely, but it is that of the next rank. A chunk that sets out at its "
        "own rank comes to rest one rank short of it; let each rank start with the chunk before its own.",
        symptom=belongs_to_the_next_rank,
    ),
    Mistake(
        "returns a chunk that is not finished",
        wrong.returns_the_wrong_chunk,
        "What you return is your own part of the chunk and nothing more: no other rank's numbers have been added to "
        "it. Either a step is missing, or your chunks end their journey at another rank: follow chunk 0 through a "
        "ring of three ranks, and see where it comes to rest.",
        symptom=returns_its_own_part,
    ),
    Mistake(
        "counts the chunks in the wrong direction",
        wrong.counts_the_chunks_up,
        "The index of your chunk grows with the steps. What goes on to the right at a step is what came from the "
        "left at the step before, and that chunk's number is one lower.",
    ),
    Mistake(
        "sends the same chunk every time",
        wrong.sends_the_same_chunk,
        "You send one and the same chunk at every step. A partial sum has to go on: send what you added to at the "
        "step before.",
        symptom=behaves_like("value", sends_the_same_chunk_and_adds_to_others, sends_its_own_chunk_and_adds_to_others),
    ),
    Mistake(
        "sends every owner's chunk to the right",
        wrong.sends_the_owners_chunks_to_the_right,
        "You go through the owners of the chunks, but send each chunk to your right neighbour, who adds it to its "
        "own: only the first belongs there. A chunk for another owner is passed on: the neighbour adds its numbers "
        "of that chunk to it, and sends it further.",
        symptom=behaves_like("value", wrong.sends_the_owners_chunks_to_the_right),
    ),
    Mistake(
        "overwrites instead of adding",
        wrong.overwrites,
        "What arrives takes the place of your own numbers, so they are lost. Receive into a tensor of its own, then "
        "add it to your chunk.",
        symptom=holds_only_the_first_ranks,
    ),
    Mistake(
        "one step too many",
        wrong.one_step_too_many,
        "A single rank has nobody to send to. It takes one step fewer than there are ranks: do you make as many "
        "steps as ranks, or one in any case?",
        symptom=says("itself as dst"),
    ),
    Mistake(
        "averages early",
        wrong.halves_at_every_step,
        "You divide at every step, so a rank's numbers are halved once for each step that follows: the first ones "
        "count least. Add up first. If a mean is wanted, divide the finished chunk once.",
    ),
    Mistake(
        "returns the mean",
        wrong.divides_by_the_ranks,
        "That is the mean. The sum is asked for, not divided by the number of ranks.",
    ),
    Mistake(
        "a buffer of another length",
        wrong.buffer_like_its_own_chunk,
        "What you receive into has another length than what arrives: when the length does not divide, chunks "
        "differ. Make the buffer like the chunk that it is added to.",
        symptom=another_length,
    ),
    Mistake(
        "a buffer of the default dtype",
        wrong.buffer_of_the_default_dtype,
        "What you receive into is float32, whatever dtype the tensor has: `torch.empty(n)` makes it so. "
        "`torch.empty_like(chunk)` takes length and dtype from a chunk.",
        symptom=another_dtype,
    ),
    Mistake(
        "returns what only the loop knows",
        wrong.returns_what_only_the_loop_knows,
        "A single rank makes no step, so a name that only the loop sets does not exist there. The chunk to return "
        "can be named without the loop: it is that of the rank itself.",
        symptom=raises("UnboundLocalError"),
    ),
    Mistake(
        "returns all chunks",
        wrong.returns_all_chunks,
        "You return all chunks. Only one of them is finished on this rank, and only that one is asked for: chunk r "
        "on rank r.",
        symptom=holds_every_chunk,
    ),
    Mistake(
        "drops the rest",
        wrong.drops_the_rest,
        "Your chunks all have the same length, so what is left over at the end belongs to nobody. "
        "`tensor_split` gives the first chunks one number more.",
        symptom=is_too_short,
    ),
    Mistake(
        "splits by torch.chunk",
        wrong.splits_by_torch_chunk,
        "`torch.chunk` rounds the length of a chunk up, so the last ranks get less or no chunk at all. Use "
        "`tensor_split`, which always makes as many chunks as you ask for.",
        symptom=says("index out of range"),
    ),
    Mistake(
        "wrong direction",
        wrong.receives_from_the_right,
        "You send to the right and wait for the right neighbour too, who sends to *its* right. What goes to the "
        "right arrives from the left. With two ranks you cannot see the difference.",
        symptom=deadlocked("exchange", "recv from rank"),
    ),
    Mistake(
        "sends the whole tensor each step",
        wrong.sends_everything_each_step,
        "The numbers are right, but the whole tensor goes round the ring: p times the bytes. Only one chunk has to "
        "travel at each step.",
        symptom=sends_more(1.6),
    ),
    Mistake(
        "receives into the buffer that is being sent",
        wrong.receives_into_the_buffer_it_sends,
        "You receive into the very tensor that you are sending. Until `wait()` has returned it belongs to the "
        "send. Use two tensors, one to send and one to receive.",
        symptom=says("changed before wait"),
    ),
    Mistake(
        "all send first",
        wrong.all_send_first,
        "Every rank sends first and none receives: your own exercise 04.1 has the cure. Start the send, receive, "
        "then wait; or call `comm.exchange`.",
        symptom=deadlocked("send"),
    ),
    Mistake(
        "through rank 0",
        wrong.through_rank_0,
        "The numbers are right, but everything goes through rank 0, which receives every tensor and sends every "
        "chunk: that is the hot spot. In a ring all ranks carry the same load.",
    ),
    Mistake(
        "straight to the owner",
        wrong.straight_to_the_owner,
        "The numbers, the bytes and the number of messages are right, but this is no ring: every rank sends to every "
        "other one. Pass the chunks on from neighbour to neighbour, adding on the way.",
    ),
    Mistake(
        "one rank after the other",
        wrong.one_rank_after_the_other,
        "Numbers and bytes are right, but within a step each rank waits for the one before it, and the others look "
        "on. Send and receive at the same time, as in 04.1.",
    ),
    *of_calls(ring_reduce_scatter),
)
