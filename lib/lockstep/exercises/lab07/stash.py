"""07.6 `stashed_version`: which weights a micro-batch meets in PipeDream.

Floor 4, room `exercises`. Narayanan et al. 2019, "PipeDream", section 3.3.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.judge import same_value
from lockstep.exercises.lab05.likeness import by_first_failure
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


def without_stashing(micro_batch, rank, stages, vertical_sync):
    return stashed_version(micro_batch, rank, stages, vertical_sync)[0], micro_batch


def always_the_newest(micro_batch, rank, stages, vertical_sync):
    return micro_batch, micro_batch


def one_too_old(micro_batch, rank, stages, vertical_sync):
    version = max(0, micro_batch - (stages if vertical_sync else stages - rank))
    return version, version


def from_the_wrong_end(micro_batch, rank, stages, vertical_sync):
    version = max(0, micro_batch - (stages - 1 if vertical_sync else rank))
    return version, version


def below_zero(micro_batch, rank, stages, vertical_sync):
    version = micro_batch - (stages - 1 if vertical_sync else stages - 1 - rank)
    return version, version


def ignores_vertical_sync(micro_batch, rank, stages, vertical_sync):
    return stashed_version(micro_batch, rank, stages, False)


def always_in_sync(micro_batch, rank, stages, vertical_sync):
    return stashed_version(micro_batch, rank, stages, True)


def in_sync_with_the_last(micro_batch, rank, stages, vertical_sync):
    return stashed_version(micro_batch, stages - 1 if vertical_sync else rank, stages, False)


def there_and_back(micro_batch, rank, stages, vertical_sync):
    version = max(0, micro_batch - 2 * (stages - 1 - (0 if vertical_sync else rank)))
    return version, version


def versions_kept(micro_batch, rank, stages, vertical_sync):
    return stages - rank, stages - rank


def one_number(micro_batch, rank, stages, vertical_sync):
    return stashed_version(micro_batch, rank, stages, vertical_sync)[0]


def version_cases(rng: np.random.Generator) -> Iterator[Case]:
    """Before and after the warm-up, on the first, a middle and the last rank."""
    places = [
        (0, 0, 1),
        (0, 0, 2),
        (3, 1, 2),
        (3, 0, 2),
        (1, 0, 3),
        (2, 0, 4),
        (5, 0, 4),
        (6, 1, 4),
        (6, 2, 4),
        (6, 3, 4),
    ]
    places += [(int(rng.integers(8, 20)), int(rng.integers(1, 6)), 8)]
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
    mistakes=by_first_failure(
        Call(),
        JUDGE,
        (
            Mistake(
                "updates between forward and backward",
                without_stashing,
                "Your backward uses weights that have been updated since the forward: the gradient is then of no "
                "function at all. Stashing keeps the forward's version for it.",
            ),
            Mistake(
                "always the newest",
                always_the_newest,
                "You give every micro-batch all the updates of those before it. When its forward runs, some of them are "
                "still on their way back: as many as there are ranks after this one.",
            ),
            Mistake(
                "one too old",
                one_too_old,
                "One update too few: before its first pair rank r does p - 1 - r forwards, and the last rank none. There "
                "the weights are always up to date.",
            ),
            Mistake(
                "counts ranks from the wrong end",
                from_the_wrong_end,
                "Your first rank has the newest weights and your last the oldest. The last rank goes back at once; the "
                "first waits longest for its gradients.",
            ),
            Mistake(
                "versions below zero",
                below_zero,
                "There is no version before 0: the first micro-batches meet the weights that training began with.",
            ),
            Mistake(
                "ignores vertical sync",
                ignores_vertical_sync,
                "With vertical sync all ranks use the version that rank 0 used, though the later ranks have newer ones.",
            ),
            Mistake(
                "always in sync",
                always_in_sync,
                "You use rank 0's version everywhere. Without vertical sync each rank uses the newest that it has, and "
                "later ranks have newer ones.",
            ),
            Mistake(
                "in sync with the last rank",
                in_sync_with_the_last,
                "With vertical sync all use the version of rank 0, the oldest. That of the last rank does not exist yet "
                "on the others.",
            ),
            Mistake(
                "counts the way there and back",
                there_and_back,
                "You count the ranks after this one twice. A micro-batch takes two ways, but while it is away forwards "
                "and backwards take turns: it misses one update for each rank after this one.",
            ),
            Mistake(
                "how many versions are kept",
                versions_kept,
                "p - r is how many versions rank r keeps, not which one a micro-batch uses. That depends on the "
                "micro-batch.",
            ),
            Mistake(
                "one number",
                one_number,
                "Return a pair: the forward's version and the backward's. That they are the same is the point of stashing.",
            ),
        ),
    ),
)
