"""Exercise 05.4: send each bucket while backward still computes the layers before it.

Floor 4, room `exercises`. How it is run and judged is in `overlap_judge.py`, the right classes in `overlap_right.py`,
the wrong ones in `overlap_mistakes.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lockstep.exercises.exercise import Case, Exercise, on_ranks
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab05.overlap_judge import JUDGE, OBSERVE
from lockstep.exercises.lab05.overlap_mistakes import MISTAKES
from lockstep.exercises.lab05.overlap_right import OverlappedDDP, OverlappedDDPStub, WithCounters, WithHooksOfTheGraph
from lockstep.exercises.lab05.toys import shards


def cases(rng: np.random.Generator) -> Iterator[Case]:
    drawn = (
        (1, "plain", 12, "two buckets"),
        (2, "tied", 4096, "one bucket, a tied and a frozen parameter, a buffer"),
        (2, "tied", 28, "two buckets, a tied and a frozen parameter, a buffer"),
    )
    for ranks, model, cap, words in drawn:
        yield on_ranks(ranks, model, cap, int(rng.integers(1, 100)), each=shards(rng, [6] * ranks), name=words)


OVERLAPPED = Exercise(
    id="05.4",
    title="Reductions behind the backward pass",
    function="OverlappedDDP",
    points=3,
    asks=(
        "A class. `OverlappedDDP(model, comm, bucket_bytes)` copies rank 0's parameters and buffers to all ranks and "
        "registers hooks: when the last gradient of a bucket is ready, one asynchronous all-reduce of the bucket "
        "starts, and backward goes on. `finish()`, called after backward, waits, puts the means over the ranks into "
        "`.grad`, and forgets the handles. While the attribute `sync` is False, backward only adds up gradients and "
        "nothing is sent."
    ),
    reference=OverlappedDDP,
    also_right=(WithCounters, WithHooksOfTheGraph),
    stub=OverlappedDDPStub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    equivalent_mutants=(
        "line 24: for parameter, part in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True): -> "
        "for parameter, part in zip(bucket, flat.split([p.numel() for p in bucket]), strict=False):",
    ),
    hints=(
        "Four duties: equal parameters at the start; knowing when a bucket is full; sending it without waiting; and "
        "bringing the result home. Which of them happen in the constructor, which in a hook, which in `finish`?",
        "A hook of `register_post_accumulate_grad_hook` is given its parameter. Count, for each bucket, how many of "
        "its gradients are ready. When all are, join them into one flat tensor and call "
        "`comm.all_reduce(flat, op='mean', async_op=True)`. Keep bucket, flat tensor and handle in a list.",
        "`finish` goes through that list: wait for the handle, split the flat tensor into pieces of `numel()` "
        "elements each, and copy every piece, with its parameter's shape, into `parameter.grad`. Then empty the list. "
        "The counts have to begin anew for the next step, too.",
        "The hook in three lines: `ready.append(parameter)`, `if len(ready) == len(bucket): ready.clear()`, and the "
        "asynchronous all-reduce of `torch.cat([p.grad.flatten() for p in bucket])`; first of all it asks `self.sync`.",
    ),
    mistakes=by_first_failure(OBSERVE, JUDGE, MISTAKES),
)
