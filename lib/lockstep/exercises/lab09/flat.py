"""09.2 `shard_flat`: a rank's shard of some tensors, as a flat tensor that is padded until it divides.

Floor 4, room `exercises`. Judged by its numbers, and by the memory that it keeps alive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.judge import Finding
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.observe import Call, Observation
from lockstep.exercises.plain import dtype_name, short
from lockstep.exercises.symptoms import says


def shard_flat(tensors, rank, size):
    flat = torch.cat([tensor.detach().flatten() for tensor in tensors])
    shard = -(-len(flat) // size)
    padded = F.pad(flat, (0, shard * size - len(flat)))
    return padded[rank * shard : (rank + 1) * shard].clone()


def piece_by_piece(tensors, rank, size):
    """Never makes the whole flat tensor."""
    shard = (sum(t.numel() for t in tensors) + size - 1) // size
    own = torch.zeros(shard, dtype=tensors[0].dtype)
    begin = 0
    for tensor in tensors:
        first = max(rank * shard, begin)
        last = min((rank + 1) * shard, begin + tensor.numel())
        if first < last:
            own[first - rank * shard : last - rank * shard] = tensor.detach().reshape(-1)[first - begin : last - begin]
        begin += tensor.numel()
    return own


def by_chunks(tensors, rank, size):
    flat = nn.utils.parameters_to_vector(tensors).detach()
    while flat.numel() % size:
        flat = torch.cat([flat, flat.new_zeros(1)])
    return torch.stack(flat.chunk(size))[rank].clone()


def shard_flat_stub(tensors, rank, size):
    raise NotImplementedError("this rank's shard of all tensors, flat and padded")


def no_padding(tensors, rank, size):
    return torch.cat([t.detach().flatten() for t in tensors]).tensor_split(size)[rank].clone()


def floors(tensors, rank, size):
    flat = torch.cat([t.detach().flatten() for t in tensors])
    shard = len(flat) // size
    return flat[rank * shard : (rank + 1) * shard].clone()


def shards_each_tensor(tensors, rank, size):
    return torch.cat([shard_flat([tensor], rank, size) for tensor in tensors])


def whole_tensors(tensors, rank, size):
    held = [[] for _ in range(size)]
    for tensor in sorted(tensors, key=lambda t: -t.numel()):
        min(held, key=lambda own: sum(t.numel() for t in own)).append(tensor)
    return torch.cat([t.detach().flatten() for t in held[rank]]) if held[rank] else tensors[0].detach().new_zeros(0)


def pads_with_what_is_there(tensors, rank, size):
    flat = torch.cat([t.detach().flatten() for t in tensors])
    shard = -(-len(flat) // size)
    padded = torch.cat([flat] * (size + 1))[: shard * size]
    return padded[rank * shard : (rank + 1) * shard].clone()


def pads_with_ones(tensors, rank, size):
    flat = torch.cat([t.detach().flatten() for t in tensors])
    shard = -(-len(flat) // size)
    padded = torch.cat([flat, flat.new_ones(shard * size - len(flat))])
    return padded[rank * shard : (rank + 1) * shard].clone()


def pads_in_front(tensors, rank, size):
    flat = torch.cat([t.detach().flatten() for t in tensors])
    padded = F.pad(flat, (-len(flat) % size, 0))
    return padded.chunk(size)[rank].clone()


def pads_a_shard_too_many(tensors, rank, size):
    flat = torch.cat([t.detach().flatten() for t in tensors])
    padded = F.pad(flat, (0, size - len(flat) % size))
    return padded.chunk(size)[rank].clone()


def every_nth(tensors, rank, size):
    flat = torch.cat([t.detach().flatten() for t in tensors])
    return F.pad(flat, (0, -len(flat) % size))[rank::size].clone()


def keeps_the_history(tensors, rank, size):
    flat = torch.cat([t.flatten() for t in tensors])
    return F.pad(flat, (0, -len(flat) % size)).chunk(size)[rank].clone()


def keeps_a_view(tensors, rank, size):
    flat = torch.cat([t.detach().flatten() for t in tensors])
    return F.pad(flat, (0, -len(flat) % size)).chunk(size)[rank]


def in_float32(tensors, rank, size):
    return shard_flat([t.detach().float() for t in tensors], rank, size)


def pads_the_last_rank_alone(tensors, rank, size):
    flat = torch.cat([t.detach().flatten() for t in tensors])
    shard = -(-len(flat) // size)
    own = flat[rank * shard : (rank + 1) * shard].clone()
    return F.pad(own, (0, shard - len(own))) if rank == size - 1 else own


def pads_more_than_needed(tensors, rank, size):
    flat = torch.cat([t.detach().flatten() for t in tensors])
    return F.pad(flat, (0, -len(flat) % (2 * size))).chunk(size)[rank].clone()


def changes_the_tensors(tensors, rank, size):
    own = shard_flat(tensors, rank, size)
    for tensor in tensors:
        tensor.data.zero_()
    return own


def all_shards_at_once(tensors, rank, size):
    return list(torch.stack([shard_flat(tensors, r, size) for r in range(size)]))


def the_same_everywhere(tensors, rank, size):
    return shard_flat(tensors, 0, size)


def stacks(tensors, rank, size):
    return torch.stack(list(tensors)).flatten().chunk(size)[rank].clone()


CHANGED = "the tensors are not what they were before the call"


def on_each_rank(fn: Callable[..., Any], tensors: list[Tensor], size: int) -> list[Any]:
    """For each rank what it gets, the bytes of memory behind it, whether it is a parameter's, and whether it has a history.

    Raises ValueError where the tensors are changed.
    """
    parameters = [nn.Parameter(tensor.clone()) for tensor in tensors]
    found = []
    for rank in range(size):
        own = fn(parameters, rank, size)
        held = own.untyped_storage().nbytes() if isinstance(own, Tensor) else 0
        shares = isinstance(own, Tensor) and any(
            own.untyped_storage().data_ptr() == p.untyped_storage().data_ptr() for p in parameters if own.numel()
        )
        history = isinstance(own, Tensor) and own.grad_fn is not None
        found.append((own, held, shares, history))
        if not all(map(torch.equal, parameters, tensors)):
            raise ValueError(CHANGED)
    return found


def right_shards(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """Equal lengths, the right numbers, zeros behind them, and no memory but the shard's own."""
    got, want = ([own for own, *_ in one.value] for one in (seen, expected))
    for rank, (mine, right) in enumerate(zip(got, want, strict=True)):
        sentence = _wrong(rank, mine, right)
        if sentence:
            return Finding(sentence, short(right), short(mine), (got,))
    for rank, (own, held, shares, history) in enumerate(seen.value):
        if history:
            words = (
                f"The numbers are right, but rank {rank}'s shard has a history: autograd goes on into the parameters."
            )
            return Finding(words, "a tensor without a history", "one with a `grad_fn`", "history")
        if shares:
            words = f"Rank {rank}'s shard lies in the memory of a parameter: when one changes, so does the other."
            return Finding(words, "memory of its own", "a view of a parameter", ("shares", rank))
        if held > own.nbytes:
            words = (
                f"The numbers are right, but rank {rank}'s shard of {own.nbytes} bytes is a view that keeps {held} bytes "
                "alive."
            )
            return Finding(words, f"{own.nbytes} bytes", f"{held} bytes", ("view", held))
    return None


def _wrong(rank: int, mine: Any, right: Tensor) -> str:
    if not isinstance(mine, Tensor):
        return f"Rank {rank}: a 1-D tensor is asked for, not {short(mine)}."
    if mine.shape != right.shape:
        return f"Rank {rank}: the shard has shape {list(mine.shape)}; every rank's has {list(right.shape)}."
    if mine.dtype != right.dtype:
        return f"Rank {rank}: the shard is {dtype_name(mine)}, the tensors are {dtype_name(right)}."
    if not torch.equal(mine, right):
        at = int((mine != right).nonzero()[0])
        return f"Rank {rank}: element {at} of the shard is not the right one."
    return ""


def cases(rng: np.random.Generator) -> Iterator[Case]:
    for size, shapes, dtype, words in (
        (1, [(2, 2)], torch.float32, ""),
        (2, [(3,), (1,)], torch.float32, "divides"),
        (2, [(2, 3), (3,)], torch.float32, ""),
        (3, [(5,), (2, 2), (1,)], torch.float64, "float64"),
        (2, [(2, 2), (3,)], torch.float16, "float16"),  # padding in float32 would not show beside float64
        (4, [(3, 3), (3,), (1, 3), (2,)], torch.float32, ""),
        (4, [(4, 2), (8,)], torch.float32, "divides"),
        (8, [(2,), (3,)], torch.float32, "fewer numbers than ranks"),
    ):
        tensors = [torch.tensor(rng.normal(size=shape), dtype=dtype) + 2 for shape in shapes]
        many = f"{size} rank{'s' * (size > 1)}, {sum(t.numel() for t in tensors)} numbers in {len(tensors)} tensor{'s' * (len(tensors) > 1)}"
        yield Case(f"{many}, {words}" if words else many, (tensors, size))


def padding_is_not_zero(case: Case, seen: Observation, expected: Observation) -> bool:
    """All real numbers are in their places, and behind them there is something."""
    if seen.error is not None:
        return False
    got, want = ([own for own, *_ in one.value] for one in (seen, expected))
    if any(not isinstance(g, Tensor) or g.shape != w.shape for g, w in zip(got, want, strict=True)):
        return False
    n = sum(tensor.numel() for tensor in case.args[0])
    got, want = torch.cat(got), torch.cat(want)
    return torch.equal(got[:n], want[:n]) and bool((got[n:] != 0).any())


def without_padding(case: Case, seen: Observation, expected: Observation) -> bool:
    """A `view` refuses, or the shards are all numbers and nothing else, in unequal lengths."""
    if seen.error is not None:
        return "invalid for input of size" in seen.error.message
    sizes = [len(own) if isinstance(own, Tensor) and own.dim() else 0 for own, *_ in seen.value]
    return sum(sizes) == sum(tensor.numel() for tensor in case.args[0]) and len(set(sizes)) > 1


OBSERVE = Call(on_each_rank)

SHARD_FLAT = Exercise(
    id="09.2",
    title="One flat tensor, one shard each",
    function="shard_flat",
    points=2,
    asks=(
        "Lay the tensors end to end as one flat tensor, pad it with zeros at its end until `size` divides it, and return "
        "the shard of `rank`: a 1-D tensor of the same dtype, as long on every rank, in memory of its own. Pad no more "
        "than needed. The tensors may be parameters; the shard has no history."
    ),
    reference=shard_flat,
    also_right=(piece_by_piece, by_chunks),
    stub=shard_flat_stub,
    cases=cases,
    observe=OBSERVE,
    judge=right_shards,
    equivalent_mutants=(  # zeros that no shard reaches
        "line 4: padded = F.pad(flat, (0, shard * size - len(flat))) -> padded = F.pad(flat, (0, shard * size + len(flat)))",
    ),
    hints=(
        "Five numbers on two ranks: how long is each shard, how many zeros are there, and where?",
        "`torch.cat` of the flattened tensors gives the flat one. The shard has its length divided by `size`, rounded up; "
        "in Python `-(-a // b)` rounds up. Cut from `rank` times that on.",
        "A slice is a window: as long as it lives, all of the flat tensor does. `.clone()` gives the shard memory of its "
        "own. And `.detach()` takes a parameter's history off.",
        "`padded = F.pad(flat, (0, shard * size - len(flat)))` puts the zeros behind.",
    ),
    mistakes=by_first_failure(
        OBSERVE,
        right_shards,
        (
            Mistake(
                "padding leaks into the norm",
                pads_with_what_is_there,
                "The padding is not zero. It would count in every norm, and the optimizer would train it: pad with zeros, "
                "which add nothing and stay what they are.",
                symptom=padding_is_not_zero,
            ),
            Mistake(
                "pads in front",
                pads_in_front,
                "You put the zeros in front, so all numbers move. Padding goes to the end, where the last shard is.",
            ),
            Mistake(
                "a shard's worth of padding too many",
                pads_a_shard_too_many,
                "Where the length divides already, you still add `size` zeros. `n % size` is 0 there, and `size - 0` is not "
                "nothing: `-n % size` is.",
            ),
            Mistake(
                "no padding",
                no_padding,
                "Your shards have unequal lengths. A reduce-scatter and an all-gather want equal ones; pad until the length "
                "divides.",
                symptom=without_padding,
            ),
            Mistake(
                "floor for ceil",
                floors,
                "You round the shard's length down, and the last numbers belong to no rank: nobody would ever train them. "
                "Round up and pad.",
            ),
            Mistake(
                "shard boundaries by tensor",
                shards_each_tensor,
                "You cut each tensor by itself. Then there is padding in every one of them, and a shard is many small "
                "pieces. Join first, cut once: a boundary may well go through the middle of a parameter.",
            ),
            Mistake(
                "optimizer state per parameter instead of shard",
                whole_tensors,
                "You give whole tensors to ranks. The rank with the largest layer then holds most: in VGG-16 one layer has "
                "three quarters of all parameters. Cut the flat tensor, through parameters where it has to be.",
            ),
            Mistake(
                "every size-th number",
                every_nth,
                "You deal the numbers out like cards. A collective gives and takes contiguous pieces: rank 0 has the first "
                "shard, rank 1 the next.",
            ),
            Mistake(
                "keeps the whole alive",
                keeps_a_view,
                "Your shard is a window into the whole flat tensor, and keeps all of it in memory: nothing has been saved. "
                "Give it memory of its own.",
            ),
            Mistake(
                "keeps the history",
                keeps_the_history,
                "The shard has a history: it was computed from parameters that require a gradient, and keeps all of that alive. "
                "The optimizer needs a tensor that begins anew: `.detach()` the tensors first.",
            ),
            Mistake(
                "changes the dtype",
                in_float32,
                "The shard has another dtype than the tensors. It has to be theirs; padding takes it over with `F.pad`, or "
                "with `new_zeros`.",
            ),
            Mistake(
                "pads the last rank alone",
                pads_the_last_rank_alone,
                "Only the last rank's shard is padded. With few numbers and many ranks, several ranks at the end lack numbers: "
                "pad the flat tensor, then cut.",
            ),
            Mistake(
                "pads more than needed",
                pads_more_than_needed,
                "You pad further than to the next multiple of `size`, and every rank's shard gets longer for it.",
            ),
            Mistake(
                "changes the tensors",
                changes_the_tensors,
                "You write into the tensors that you were given: they are the model. Copy what you need, and change the copy.",
                symptom=says(CHANGED),
            ),
            Mistake(
                "all shards at once",
                all_shards_at_once,
                "You return the shards of all ranks. Each rank calls the function for itself, and asks for its own.",
            ),
            Mistake(
                "the same shard everywhere",
                the_same_everywhere,
                "Every rank gets rank 0's shard. Where does `rank` come in?",
            ),
            Mistake(
                "expects equal shapes",
                stacks,
                "`torch.stack` wants equal shapes, and layers have different ones. Flatten each tensor, then join them with "
                "`torch.cat`.",
                symptom=says("stack expects each tensor to be equal size"),
            ),
        ),
    ),
)  # fmt: skip
