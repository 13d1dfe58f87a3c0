"""Wrong functions for exercise 09.2, and by what some of them show.

Floor 4, room `exercises`; the exercise is in `flat.py`, what they are told in `flat_mistakes.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from lockstep.exercises.exercise import Case
from lockstep.exercises.lab09.flat_right import shard_flat
from lockstep.exercises.observe import Observation

CHANGED = "the tensors are not what they were before the call"


def flat(tensors):
    return torch.cat([t.detach().flatten() for t in tensors])


def padded(whole, size):
    return F.pad(whole, (0, -len(whole) % size))


def cut(whole, rank, size):
    return whole.chunk(size)[rank].clone()


def no_padding(tensors, rank, size):
    return flat(tensors).tensor_split(size)[rank].clone()


def floors(tensors, rank, size):
    whole = flat(tensors)
    return cut(whole[: len(whole) // size * size], rank, size)


def shards_each_tensor(tensors, rank, size):
    return torch.cat([shard_flat([tensor], rank, size) for tensor in tensors])


def whole_tensors(tensors, rank, size):
    held = [[] for _ in range(size)]
    for tensor in sorted(tensors, key=lambda t: -t.numel()):
        min(held, key=lambda own: sum(t.numel() for t in own)).append(tensor)
    return flat(held[rank]) if held[rank] else tensors[0].detach().new_zeros(0)


def pads_with_what_is_there(tensors, rank, size):
    whole = flat(tensors)
    return cut(whole.repeat(size + 1)[: -(-len(whole) // size) * size], rank, size)


def pads_in_front(tensors, rank, size):
    whole = flat(tensors)
    return cut(F.pad(whole, (-len(whole) % size, 0)), rank, size)


def pads_a_shard_too_many(tensors, rank, size):
    whole = flat(tensors)
    return cut(F.pad(whole, (0, size - len(whole) % size)), rank, size)


def every_nth(tensors, rank, size):
    return padded(flat(tensors), size)[rank::size].clone()


def keeps_the_history(tensors, rank, size):
    return cut(padded(torch.cat([t.flatten() for t in tensors]), size), rank, size)


def keeps_a_view(tensors, rank, size):
    return padded(flat(tensors), size).chunk(size)[rank]


def in_float32(tensors, rank, size):
    return shard_flat([t.detach().float() for t in tensors], rank, size)


def pads_the_last_rank_alone(tensors, rank, size):
    whole = flat(tensors)
    shard = -(-len(whole) // size)
    own = whole[rank * shard : (rank + 1) * shard].clone()
    return F.pad(own, (0, shard - len(own))) if rank == size - 1 else own


def pads_more_than_needed(tensors, rank, size):
    return cut(padded(flat(tensors), 2 * size), rank, size)


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
