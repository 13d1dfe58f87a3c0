"""Exercise 07.6: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; the exercise is in `stash.py`.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Mistake


def both(version):
    """Forward and backward with the same version, which is never below 0."""
    return max(0, version), max(0, version)


def one_after_the_other(micro_batch, rank, stages):
    """The newest that `rank` has, which is the right one without vertical sync."""
    return max(0, micro_batch - (stages - 1 - rank))


def without_stashing(micro_batch, rank, stages, vertical_sync):
    return one_after_the_other(micro_batch, 0 if vertical_sync else rank, stages), micro_batch


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
    return both(one_after_the_other(micro_batch, rank, stages))


def always_in_sync(micro_batch, rank, stages, vertical_sync):
    return both(one_after_the_other(micro_batch, 0, stages))


def in_sync_with_the_last(micro_batch, rank, stages, vertical_sync):
    return both(one_after_the_other(micro_batch, stages - 1 if vertical_sync else rank, stages))


def there_and_back(micro_batch, rank, stages, vertical_sync):
    version = max(0, micro_batch - 2 * (stages - 1 - (0 if vertical_sync else rank)))
    return version, version


def versions_kept(micro_batch, rank, stages, vertical_sync):
    return stages - rank, stages - rank


def one_number(micro_batch, rank, stages, vertical_sync):
    return one_after_the_other(micro_batch, 0 if vertical_sync else rank, stages)


def one_too_new(micro_batch, rank, stages, vertical_sync):
    return both(micro_batch - (stages - 2 - (0 if vertical_sync else rank)))


def backward_one_newer(micro_batch, rank, stages, vertical_sync):
    version = one_after_the_other(micro_batch, 0 if vertical_sync else rank, stages)
    return version, version + 1


def always_four_stages(micro_batch, rank, stages, vertical_sync):
    return both(micro_batch - (3 - (0 if vertical_sync else rank)))


def once_a_round(micro_batch, rank, stages, vertical_sync):
    return both(micro_batch // stages)


def sync_the_wrong_way_round(micro_batch, rank, stages, vertical_sync):
    return both(one_after_the_other(micro_batch, rank if vertical_sync else 0, stages))


def first_version_for_the_first_p(micro_batch, rank, stages, vertical_sync):
    return both(0 if micro_batch < stages else one_after_the_other(micro_batch, 0 if vertical_sync else rank, stages))


def always_the_first(micro_batch, rank, stages, vertical_sync):
    return 0, 0


def sync_in_backward_only(micro_batch, rank, stages, vertical_sync):
    newest = one_after_the_other(micro_batch, rank, stages)
    return newest, one_after_the_other(micro_batch, 0, stages) if vertical_sync else newest


def sync_in_forward_only(micro_batch, rank, stages, vertical_sync):
    newest = one_after_the_other(micro_batch, rank, stages)
    return one_after_the_other(micro_batch, 0, stages) if vertical_sync else newest, newest


def sync_when_all_have_begun(micro_batch, rank, stages, vertical_sync):
    synced = vertical_sync and micro_batch >= stages
    return both(one_after_the_other(micro_batch, 0 if synced else rank, stages))


MISTAKES = (
    Mistake(
        "version 0 for the first p",
        first_version_for_the_first_p,
        "You let the first p micro-batches meet version 0 on every rank. A later rank begins with fewer forwards, p - 1 - r, "
        "and after these it has updates; the last rank has one before its second micro-batch.",
    ),
    Mistake(
        "sync when all have begun",
        sync_when_all_have_begun,
        "With vertical sync the first micro-batches, too, meet what they met on rank 0: version 0, also where a later rank "
        "has a newer one.",
    ),
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
        "p - r is how many versions rank r keeps, not which one a micro-batch uses. That depends on the micro-batch.",
    ),
    Mistake(
        "one number",
        one_number,
        "Return a pair: the forward's version and the backward's. That they are the same is the point of stashing.",
    ),
    Mistake(
        "one too new",
        one_too_new,
        "One update too many: when a forward runs, one update is still missing for each rank after this one, p - 1 - r of "
        "them, and none on the last rank.",
    ),
    Mistake(
        "backward one newer",
        backward_one_newer,
        "Your backward uses a version after the one of its forward. Stashing keeps the forward's version for it; the update "
        "comes after the backward.",
    ),
    Mistake(
        "always four stages",
        always_four_stages,
        "You reckon with four stages. `stages` says how many there are.",
    ),
    Mistake(
        "one update a round",
        once_a_round,
        "You count one update for `stages` micro-batches. There is one after every backward, so after the warm-up the version "
        "grows with every micro-batch.",
    ),
    Mistake(
        "sync the wrong way round",
        sync_the_wrong_way_round,
        "With `vertical_sync` and without it are the wrong way round: with it every rank uses the version of rank 0.",
    ),
    Mistake(
        "always the first",
        always_the_first,
        "You give version 0 to all. It is that of the warm-up; after it a rank updates its weights after every backward.",
    ),
    Mistake(
        "sync in backward only",
        sync_in_backward_only,
        "With vertical sync your backward uses rank 0's version, and your forward its own. Both have to use the same, that "
        "of rank 0.",
    ),
    Mistake(
        "sync in forward only",
        sync_in_forward_only,
        "With vertical sync your forward uses rank 0's version, and your backward this rank's own. Both have to use the "
        "same: the stashed one, that of rank 0.",
    ),
)
