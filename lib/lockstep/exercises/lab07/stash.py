"""07.6 `stashed_version`: which weights a micro-batch meets in PipeDream.

Floor 4, room `exercises`. Narayanan et al. 2019, "PipeDream", section 3.3.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import same_value
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab07.stash_mistakes import MISTAKES
from lockstep.exercises.observe import Call


def stashed_version(micro_batch, rank, stages, vertical_sync):
    behind = stages - 1 if vertical_sync else stages - 1 - rank
    version = max(0, micro_batch - behind)
    return version, version


def by_going_through_the_list(micro_batch, rank, stages, vertical_sync):
    """Write down what the rank does, and count the updates before the micro-batch's forward."""
    at, updates, forwards = (0 if vertical_sync else rank), 0, 0
    for _ in range(stages - 1 - at):
        if forwards == micro_batch:
            return [0, 0]
        forwards += 1
    while forwards < micro_batch:
        forwards += 1
        updates += 1
    return [updates, updates]


def by_cases(micro_batch, rank, stages, vertical_sync):
    if vertical_sync:
        rank = 0
    after = stages - rank - 1
    if micro_batch <= after:
        return (0,) * 2
    return (micro_batch - after,) * 2


def stashed_version_stub(micro_batch, rank, stages, vertical_sync):
    raise NotImplementedError("the versions that forward and backward use")


def version_cases(rng: np.random.Generator) -> Iterator[Case]:
    """Before, in and after the warm-up, on the first, a middle and the last rank.

    The first tells mistakes apart: in smaller ones many of them give the same version.
    """
    places = [
        (12, 2, 7),
        (0, 0, 1),
        (0, 0, 2),
        (3, 1, 2),
        (3, 0, 2),
        (1, 0, 3),
        (2, 2, 4),
        (3, 3, 4),
        (2, 3, 7),
        (5, 0, 4),
    ]
    places += [(int(rng.integers(8, 20)), int(rng.integers(1, 6)), 8), (int(rng.integers(30, 90)), 3, 5)]
    for sync in (False, True):
        for micro_batch, rank, stages in places:
            words = f"micro-batch {micro_batch} on rank {rank} of {stages}{', vertical sync' if sync else ''}"
            yield Case(words, (micro_batch, rank, stages, sync))


JUDGE = same_value()

STASHED_VERSION = Exercise(
    id="07.6",
    title="Which weights a micro-batch meets",
    function="stashed_version",
    asks=(
        "In PipeDream a rank updates its weights after every backward. Version v is the weights after v updates. Return "
        "a pair: the version that forward of `micro_batch` uses on `rank` (of `stages`, counted from 0), and the one that "
        "its backward uses, with weight stashing. With `vertical_sync` every rank uses the version that rank 0 used."
    ),
    reference=stashed_version,
    also_right=(by_going_through_the_list, by_cases),
    stub=stashed_version_stub,
    cases=version_cases,
    observe=Call(),
    judge=JUDGE,
    hints=(
        "Take your 1F1B list of rank 0 of three and write an update behind every backward. How many stand before F4?",
        "Rank r runs p - 1 - r forwards before its first pair. From then on one update comes with every forward, so the "
        "distance stays. Stashing means that backward uses the version that forward has used.",
        "Forward of micro-batch i on rank r meets max(0, i - (p - 1 - r)). With vertical sync that of rank 0 counts.",
    ),
    mistakes=by_first_failure(Call(), JUDGE, MISTAKES),
)
