"""Exercise 07.3: what students write in place of the right thing; `one_and_one_mistakes.py` says what it is.

Floor 4, room `exercises`; the exercise is in `one_and_one.py`.
"""

from __future__ import annotations

from lockstep.parallel.pipeline import Action


def with_warm_up(warm_up):
    """The mistakes: 1F1B with `warm_up(rank, stages)` forwards first."""

    def rows(stages, micro_batches):
        made = []
        for r in range(stages):
            first = max(0, min(micro_batches, warm_up(r, stages)))
            row = [Action("F", r, i) for i in range(first)]
            for i in range(micro_batches):
                row += [Action("F", r, first + i)] if first + i < micro_batches else []
                row.append(Action("B", r, i))
            made.append(row)
        return made

    return rows


def warm_up_one_short(stages, micro_batches):
    return with_warm_up(lambda r, p: p - 2 - r)(stages, micro_batches)


def warm_up_one_long(stages, micro_batches):
    return with_warm_up(lambda r, p: p - r)(stages, micro_batches)


def equal_warm_up(stages, micro_batches):
    return with_warm_up(lambda r, p: p - 1)(stages, micro_batches)


def warm_up_the_wrong_way(stages, micro_batches):
    return with_warm_up(lambda r, p: r)(stages, micro_batches)


def no_warm_up(stages, micro_batches):
    return with_warm_up(lambda r, p: 0)(stages, micro_batches)


def backward_first(stages, micro_batches):
    rows = []
    for r in range(stages):
        warm_up = min(micro_batches, stages - 1 - r)
        row = [Action("F", r, i) for i in range(warm_up)]
        for i in range(micro_batches):
            row.append(Action("B", r, i))
            if warm_up + i < micro_batches:
                row.append(Action("F", r, warm_up + i))
        rows.append(row)
    return rows


def no_cool_down(stages, micro_batches):
    rows = []
    for r in range(stages):
        warm_up = min(micro_batches, stages - 1 - r)
        row = [Action("F", r, i) for i in range(warm_up)]
        for i in range(micro_batches - warm_up):
            row += [Action("F", r, warm_up + i), Action("B", r, i)]
        rows.append(row)
    return rows


def the_newest_back_first(stages, micro_batches):
    rows = []
    for r in range(stages):
        warm_up, held = min(micro_batches, stages - 1 - r), []
        row = []
        for i in range(micro_batches):
            row.append(Action("F", r, i))
            held.append(i)
            if i >= warm_up:
                row.append(Action("B", r, held.pop()))
        rows.append(row + [Action("B", r, i) for i in reversed(held)])
    return rows


def both_of_one_micro_batch(stages, micro_batches):
    rows = []
    for r in range(stages):
        warm_up = min(micro_batches, stages - 1 - r)
        row = [Action("F", r, i) for i in range(warm_up)]
        for i in range(warm_up, micro_batches):
            row += [Action("F", r, i), Action("B", r, i)]
        rows.append(row + [Action("B", r, i) for i in range(warm_up)])
    return rows


def warm_up_beyond_m(stages, micro_batches):
    rows = []
    for r in range(stages):
        warm_up = stages - 1 - r
        row = [Action("F", r, i) for i in range(warm_up)]
        for i in range(micro_batches):
            row += [Action("F", r, warm_up + i)] if warm_up + i < micro_batches else []
            row.append(Action("B", r, i))
        rows.append(row)
    return rows


def all_forward_first(stages, micro_batches):
    return [[Action(kind, r, i) for kind in "FB" for i in range(micro_batches)] for r in range(stages)]


def only_the_last_rank_goes_back(stages, micro_batches):
    return [*all_forward_first(stages, micro_batches)[:-1], no_warm_up(stages, micro_batches)[-1]]


def in_blocks(stages, micro_batches):
    """As many forwards as there is room for, then as many backwards."""
    rows = []
    for r in range(stages):
        size = stages - r
        blocks = [range(first, min(first + size, micro_batches)) for first in range(0, micro_batches, size)]
        rows.append([Action(kind, r, i) for block in blocks for kind in "FB" for i in block])
    return rows


def warm_up_of_four(stages, micro_batches):
    return with_warm_up(lambda r, p: 3 - r)(stages, micro_batches)


def warm_up_of_three_at_most(stages, micro_batches):
    return with_warm_up(lambda r, p: min(p - 1 - r, 3))(stages, micro_batches)
