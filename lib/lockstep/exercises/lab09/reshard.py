"""09.6 `reshard`: the shards of a checkpoint, read by another number of ranks.

Floor 4, room `exercises`. How it is judged is in `reshard_judge.py`, right functions in `reshard_right.py`, wrong ones
in `reshard_wrong.py`, what they are told in `reshard_mistakes.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab09.reshard_judge import on_each_new_rank, right_shards
from lockstep.exercises.lab09.reshard_mistakes import MISTAKES
from lockstep.exercises.lab09.reshard_right import going_along, number_by_number, reshard, reshard_stub
from lockstep.exercises.observe import Call


def cases(rng: np.random.Generator) -> Iterator[Case]:
    for elements, old_size, size in ((6, 2, 3), (12, 4, 3), (10, 4, 3), (11, 3, 4), (9, 4, 1), (7, 1, 2), (5, 4, 8)):
        numbers = torch.tensor(rng.normal(size=elements), dtype=torch.float32) + 3
        name = f"{elements} numbers, saved by {old_size} rank{'s' * (old_size > 1)}, loaded by {size}"
        yield Case(name, (numbers, old_size, size))


OBSERVE = Call(on_each_new_rank)

RESHARD = Exercise(
    id="09.6",
    title="Saved by four, loaded by three",
    function="reshard",
    points=2,
    core=False,
    asks=(
        "A checkpoint holds `elements` numbers in the shards of `old_size` ranks, cut and padded as in 09.2. "
        "`read(source, start, stop)` gives numbers `start` to `stop - 1` of old rank `source`'s shard. Return the shard "
        "that `rank` of `size` ranks has, padded with zeros, and read no number that it does not need."
    ),
    reference=reshard,
    also_right=(going_along, number_by_number),
    stub=reshard_stub,
    cases=cases,
    observe=OBSERVE,
    judge=right_shards,
    equivalent_mutants=("line 7: if first < last: -> if first <= last:",),  # reads a piece of no numbers
    hints=(
        "Think of the flat tensor without any padding: numbers 0 to `elements - 1`. Which of them does the new rank have? "
        "And where in the old shards is number i of the flat tensor?",
        "Number i is in old shard `i // old`, at place `i % old`, where `old` is the length of an old shard. A new shard may "
        "begin in the middle of one, and end in the middle of another.",
        "Go along: from the place where you are, read to the end of the old shard or of your own, whichever comes first; "
        "then you are in the next one. Stop at `elements`: what comes behind is old padding.",
    ),
    mistakes=by_first_failure(OBSERVE, right_shards, MISTAKES),
)
