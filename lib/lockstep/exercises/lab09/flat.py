"""09.2 `shard_flat`: a rank's shard of some tensors, as a flat tensor that is padded until it divides.

Floor 4, room `exercises`. Judged by its numbers, and by the memory that it keeps alive. Right functions are
in `flat_right.py`, wrong ones in `flat_wrong.py`, what they are told in `flat_mistakes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import Finding
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab09.flat_mistakes import MISTAKES
from lockstep.exercises.lab09.flat_right import by_chunks, piece_by_piece, shard_flat, shard_flat_stub
from lockstep.exercises.lab09.flat_wrong import CHANGED
from lockstep.exercises.observe import Call, Observation
from lockstep.exercises.plain import dtype_name, short


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
    mistakes=by_first_failure(OBSERVE, right_shards, MISTAKES),
)
