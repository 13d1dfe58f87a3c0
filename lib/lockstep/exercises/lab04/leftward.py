"""The rings of lab 04 that turn to the left: right answers, and the mistakes whose sentence depends on the direction.

Floor 4, room `exercises`; read `variants.py` first. A wrong ring to the left is a wrong ring to the right seen in a
mirror: ranks and chunks are counted the other way round (`Mirror`), so that no mistake is written twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import torch

from lockstep.exercises.exercise import Mistake
from lockstep.exercises.lab04 import all_gather_mistakes, reduce_scatter_mistakes, reduce_scatter_wrong
from lockstep.exercises.lab04.steps import behaves_like, deadlocked


class Mirror:
    """A communicator in which rank r is called -r (modulo p), so that right is left."""

    def __init__(self, comm: Any) -> None:
        self.comm, self.size, self.rank = comm, comm.size, -comm.rank % comm.size

    def exchange(self, sends: list, recvs: list) -> None:
        turned = [[(tensor, -other % self.size) for tensor, other in pairs] for pairs in (sends, recvs)]
        self.comm.exchange(*turned)


def turned(items: Any) -> list:
    """Item i in the place of -i (modulo their number)."""
    return [items[-i % len(items)] for i in range(len(items))]


def mirrored_chunk(wrong: Callable[..., Any]) -> Callable[..., Any]:
    """A mistake of 04.2 that is written with `ring`, the other way round."""

    @wraps(wrong)
    def fn(comm, tensor):
        return wrong(Mirror(comm), Chunks(tensor))

    return fn


class Chunks:
    """As much of a tensor as the mistakes of 04.2 ask for; its chunks are counted the other way round."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def clone(self) -> Chunks:
        return Chunks(self.tensor.clone())

    def tensor_split(self, parts: int) -> list[torch.Tensor]:
        return turned(self.tensor.tensor_split(parts))

    @classmethod
    def __torch_function__(cls, function: Callable[..., Any], types: Any, args: tuple, kwargs: Any = None) -> list:
        return turned(function(args[0].tensor, *args[1:]))  # `torch.tensor_split(tensor, parts)`


def mirrored_join(wrong: Callable[..., Any]) -> Callable[..., Any]:
    """A mistake of 04.3, the other way round."""

    @wraps(wrong)
    def fn(comm, chunk, sizes):
        mirrored = turned(sizes)
        return torch.cat(turned(wrong(Mirror(comm), chunk, mirrored).split(mirrored)))

    return fn


def joined(chunks: Mapping[int, torch.Tensor]) -> torch.Tensor:
    """Chunks by number, joined in order."""
    return torch.cat([chunks[number] for number in sorted(chunks)])


def ring_reduce_scatter(comm, tensor):
    r, p = comm.rank, comm.size
    chunks = tensor.clone().tensor_split(p)
    for s in range(p - 1):
        outgoing, incoming = chunks[(r + s + 1) % p], chunks[(r + s + 2) % p]
        arrived = torch.empty_like(incoming)
        comm.exchange([(outgoing, (r - 1) % p)], [(arrived, (r + 1) % p)])
        incoming += arrived
    return chunks[r]


def with_a_travelling_sum(comm, tensor):
    """The partial sum is one tensor that moves to the left; chunks stay as they are."""
    p = comm.size
    chunks = tensor.tensor_split(p)
    own = (comm.rank + 1) % p
    travelling = chunks[own].clone()
    while own != comm.rank:
        own = (own + 1) % p
        handle = comm.isend(travelling, (comm.rank - 1) % p)
        arrived = torch.zeros_like(chunks[own])
        comm.recv(arrived, (comm.rank + 1) % p)
        handle.wait()
        travelling = arrived + chunks[own]
    return travelling


def ring_all_gather(comm, chunk, sizes):
    r, p = comm.rank, comm.size
    chunks = [chunk.new_empty(size) for size in sizes]
    chunks[r] = chunk
    for s in range(p - 1):
        comm.exchange([(chunks[(r + s) % p], (r - 1) % p)], [(chunks[(r + s + 1) % p], (r + 1) % p)])
    return torch.cat(chunks)


def into_one_tensor(comm, chunk, sizes):
    p = comm.size
    whole = chunk.new_zeros(sum(sizes))
    places = whole.split(list(sizes))
    places[comm.rank].copy_(chunk)
    for owner in range(comm.rank + 1, comm.rank + p):
        sending = comm.isend(places[(owner - 1) % p], (comm.rank - 1) % p)
        comm.recv(places[owner % p], (comm.rank + 1) % p)
        sending.wait()
    return whole


def receives_from_the_left(comm, tensor):
    r, p = comm.rank, comm.size
    chunks, left = tensor.clone().tensor_split(p), (r - 1) % p
    for s in range(p - 1):
        incoming = chunks[(r + s + 2) % p]
        arrived = torch.empty_like(incoming)
        comm.exchange([(chunks[(r + s + 1) % p], left)], [(arrived, left)])
        incoming += arrived
    return chunks[r]


# Those of 04.2 and 04.3 that speak of a direction, or whose symptom knows one.
OF_THE_RIGHT_REDUCE_SCATTER = (
    "chunk index off by one", "counts the chunks in the wrong direction", "sends the same chunk every time",
    "sends every owner's chunk to the right", "overwrites instead of adding", "wrong direction",
    "returns a chunk that is not finished",
)  # fmt: skip
OF_THE_RIGHT_ALL_GATHER = (
    "sends its own chunk each time", "chunk index off by one", "counts the chunks in the wrong direction",
    "one step too few",
)  # fmt: skip

REDUCE_SCATTER_HINTS = (
    (
        "Follow one chunk. Rank r has to end with chunk r, so at the last step chunk r comes in. Where is it one step "
        "earlier, and at which rank does its journey to the left begin?"
    ),
    (
        "With four ranks rank 0 passes on chunks 1, 2, 3, in this order: at every step the one that it has just added to. "
        "What does rank 1 pass on? Write the chunk's number with `comm.rank` and the step."
    ),
    (
        "At step s (from 0) rank r sends chunk r + s + 1, counted modulo p, to the left. What comes from the right belongs "
        "to the chunk one above that. Receive it into a tensor of its own and add."
    ),
)
ALL_GATHER_HINTS = (
    (
        "This is the reduce-scatter without adding: what came in at one step goes out at the next. Which chunk can a rank "
        "send at the first step?"
    ),
    "At step s (from 0) chunk r + s goes to the left, and chunk r + s + 1 comes from the right, both modulo p.",
)

_chunk, _join = mirrored_chunk, mirrored_join
OF_REDUCE_SCATTER = (
    Mistake(
        "chunk index off by one",
        _chunk(reduce_scatter_wrong.starts_with_its_own_chunk),
        "The chunk you return is summed completely, but it is that of the rank before. A chunk that sets out at its own "
        "rank comes to rest one rank short of it; let each rank start with the chunk after its own.",
    ),
    Mistake(
        "returns a chunk that is not finished",
        _chunk(reduce_scatter_wrong.returns_the_wrong_chunk),
        "What you return is your own part of the chunk and nothing more: no other rank's numbers have been added to it. "
        "Your chunks end their journey at another rank: follow chunk 0 through a ring of three ranks, to the left.",
        symptom=reduce_scatter_mistakes.returns_its_own_part,
    ),
    Mistake(
        "counts the chunks in the wrong direction",
        _chunk(reduce_scatter_wrong.counts_the_chunks_up),
        "The index of your chunk falls with the steps. What goes on to the left at a step is what came from the right at "
        "the step before, and that chunk's number is one higher.",
    ),
    Mistake(
        "sends the same chunk every time",
        _chunk(reduce_scatter_wrong.sends_the_same_chunk),
        "You send one and the same chunk to the left at every step. A partial sum has to go on: send what you added to at "
        "the step before.",
        symptom=behaves_like("value", _chunk(reduce_scatter_mistakes.sends_the_same_chunk_and_adds_to_others)),
    ),
    Mistake(
        "overwrites instead of adding",
        _chunk(reduce_scatter_wrong.overwrites),
        "What arrives from the right takes the place of your own numbers, so they are lost. Receive into a tensor of its "
        "own, then add it to your chunk.",
    ),
    Mistake(
        "wrong direction",
        receives_from_the_left,
        "You send to the left and wait for the left neighbour too, who sends to *its* left. What goes to the left arrives "
        "from the right. With two ranks you cannot see the difference.",
        symptom=deadlocked("exchange", "recv from rank"),
    ),
)  # fmt: skip
OF_ALL_GATHER = (
    Mistake(
        "sends its own chunk each time",
        _join(all_gather_mistakes.sends_its_own_chunk_into_every_place),
        "At every step you send your own chunk, so your left neighbour gets it again and again, and the rank after it "
        "never. Pass on what came in at the step before.",
    ),
    Mistake(
        "chunk index off by one",
        _join(all_gather_mistakes.starts_off_by_one),
        "At the first step you send a chunk to the left that you do not have yet. All that a rank has at the start is its "
        "own chunk, with its own number.",
    ),
    Mistake(
        "counts the chunks in the wrong direction",
        _join(all_gather_mistakes.counts_up),
        "Your chunk's number falls with the steps, but what came from the right is the chunk with the number one higher, "
        "and that is what goes on to the left.",
        symptom=behaves_like("value", _join(all_gather_mistakes.counts_both_up)),
    ),
    Mistake(
        "one step too few",
        _join(all_gather_mistakes.one_step_too_few),
        "One chunk is missing on every rank: that of its left neighbour, which has the longest way. It takes one step "
        "fewer than there are ranks.",
    ),
)  # fmt: skip
