"""Schedules with one chunk a rank: naive, GPipe, 1F1B and PipeDream.

Floor 2, room `parallel`. Legend: p stages, m micro-batches, r rank. With three stages and four micro-batches, F as
its number and B as its number in brackets:

    GPipe   rank 0   0 1 2 3  .   .   .  [3] [2] [1] [0]
            rank 1     0 1 2 3  .   .  [3] [2] [1] [0]
            rank 2       0 1 2 3  [3] [2] [1] [0]

    1F1B    rank 0   0 1 2 .   .  [0] 3 [1]  .  [2]  .  [3]
            rank 1     0 1 .  [0] 2  [1] 3  [2]  .  [3]
            rank 2       0 [0] 1  [1] 2  [2] 3  [3]
"""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.parallel.pipeline.schedule import Action, Schedule, counted


def naive(stages: int, micro_batches: int) -> Schedule:
    """One micro-batch at a time: forward through all stages, backward through all, then the next.

    At any time one rank works: makespan m p (F + B). Raises ValueError, as its siblings, for a number below 1.
    """
    _check(stages, micro_batches)
    rows = [[Action(kind, r, i) for i in range(micro_batches) for kind in "FB"] for r in range(stages)]
    return Schedule("naive", stages, micro_batches, tuple(map(tuple, rows)))


def gpipe(stages: int, micro_batches: int) -> Schedule:
    """All forward, then all backward in reverse order: makespan (m + p - 1)(F + B), m micro-batches in flight.

    Source: Huang et al. 2019, "GPipe", figure 2c.
    """
    _check(stages, micro_batches)
    there = range(micro_batches)
    rows = [[Action("F", r, i) for i in there] + [Action("B", r, i) for i in reversed(there)] for r in range(stages)]
    return Schedule("GPipe", stages, micro_batches, tuple(map(tuple, rows)))


def one_f_one_b(stages: int, micro_batches: int) -> Schedule:
    """As many forwards as there are stages after this one, then one forward and one backward in turn.

    The makespan of GPipe, and min(m, p - r) micro-batches in flight on rank r.
    Source: Fan et al. 2021, "DAPPLE", section 3; Narayanan et al. 2021, figure 4.
    """
    _check(stages, micro_batches)
    rows = [tuple(_one_f_one_b(r, stages, micro_batches)) for r in range(stages)]
    return Schedule("1F1B", stages, micro_batches, tuple(rows))


def pipedream(stages: int, micro_batches: int, vertical_sync: bool = False) -> Schedule:
    """1F1B whose weights are updated after every backward: no flush, and no two ranks with the same version.

    A micro-batch's backward uses the weights that its forward used (*weight stashing*). Micro-batch t, counted from
    0, meets version max(0, t - (p - 1 - r)) on rank r; with `vertical_sync` version max(0, t - (p - 1)) on all.
    Source: Narayanan et al. 2019, "PipeDream", section 3.3.
    """
    _check(stages, micro_batches)
    rows = []
    for r in range(stages):
        row = []
        for action in _one_f_one_b(r, stages, micro_batches):
            row.append(action)
            if action.kind == "B":
                row.append(Action("U", r, action.micro_batch))
        rows.append(tuple(row))
    return Schedule("PipeDream", stages, micro_batches, tuple(rows), vertical_sync)


def _one_f_one_b(r: int, p: int, m: int) -> Iterator[Action]:
    warm_up = min(m, p - 1 - r)
    for i in range(warm_up):
        yield Action("F", r, i)
    for i in range(m):
        if warm_up + i < m:
            yield Action("F", r, warm_up + i)
        yield Action("B", r, i)


def _check(stages: int, micro_batches: int) -> None:
    counted("stages", stages)
    counted("micro_batches", micro_batches)
