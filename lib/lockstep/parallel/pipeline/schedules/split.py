"""Schedules with a split backward: the gradient of the weights waits until there would be nothing else to do.

Floor 2, room `parallel`. Legend: p stages, m micro-batches, r rank; F, I, W the seconds of a forward, an input gradient
and a weight gradient. Only the input gradient is needed by another rank, so W can fill the gaps:

    ZB-H1   rank 0   F0 F1 F2 .  .  I0 W0 F3 I1 W1 .  I2 W2 .  I3 W3
            rank 1      F0 F1 .  I0 F2 I1 W0 F3 I2 W1 .  I3 W2 W3
            rank 2         F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3
"""

from __future__ import annotations

from dataclasses import replace

from lockstep.parallel.pipeline.schedule import Action, Schedule, counted
from lockstep.parallel.pipeline.schedules.greedy import best_order
from lockstep.parallel.pipeline.schedules.lane import Lane


def zero_bubble(
    stages: int,
    micro_batches: int,
    memory: int | None = None,
    forward: float = 1,
    input_gradient: float = 1,
    weight_gradient: float = 1,
) -> Schedule:
    """1F1B with W put off: rank r owes r weight gradients, so that all ranks hold p micro-batches until W.

    That is ZB-H1: with F = I = W a makespan of 3m + p - 1, the least that p ranks can have. With `memory` a search
    for the shortest makespan under at most so many micro-batches on every rank, when actions take `forward`,
    `input_gradient` and `weight_gradient` and messages nothing; more than p helps where those three differ.
    Raises ValueError for a memory below 1 and costs that are not above 0.
    Source: Qi, Wan, Huang, Lin 2023, "Zero bubble pipeline parallelism", sections 2 and 3.
    """
    p, m = counted("stages", stages), counted("micro_batches", micro_batches)
    h1 = Schedule("ZB-H1", p, m, tuple(tuple(_h1(r, p, m)) for r in range(p)))
    if memory is None:
        return h1
    name, costs = f"zero bubble within {memory}", {"F": forward, "I": input_gradient, "W": weight_gradient}
    found = Schedule(name, p, m, best_order(p, m, counted("memory", memory), costs))
    if memory < p:
        return found
    took = [each.simulate(forward, 0, input_gradient, weight_gradient).makespan for each in (found, h1)]
    return found if took[0] <= took[1] else replace(h1, name=name)


def zbv(stages: int, micro_batches: int) -> Schedule:
    """Zero bubble with two chunks a rank, there and back in a V: the last rank hands over to itself.

    Every rank holds at most as much as 1F1B's first, and with F = I = W no rank pauses between its first and
    its last action. Source: Qi et al. 2023, "Zero bubble pipeline parallelism", section 6.
    """
    p, m = counted("stages", stages), counted("micro_batches", micro_batches)
    rows = [tuple(action for action in _v(r, p, max(m, 2 * p - 1)) if action.micro_batch < m) for r in range(p)]
    return Schedule("ZB-V", 2 * p, m, tuple(rows))


def _h1(r: int, p: int, m: int) -> list[Action]:
    lane, warm_up = Lane(r), min(m, p - 1 - r)
    row = [lane.forward() for _ in range(warm_up)]
    for i in range(m):
        if lane.forwards < m:
            row.append(lane.forward())
        row.append(lane.backward())
        if i >= r:
            row.append(lane.weight())
    return row + [lane.weight() for _ in range(min(r, m))]


def _v(r: int, p: int, m: int) -> list[Action]:
    there, back = Lane(r), Lane(2 * p - 1 - r)
    row = [there.forward() for _ in range(2 * (p - r) - 1)]
    for _ in range(r):
        row += [back.forward(), there.forward()]
    for _ in range(p - r):
        row += [back.forward(), back.backward(), back.weight()]
    while back.forwards < there.forwards or there.forwards < m:
        if there.forwards < m:
            row.append(there.forward())
        row += [there.backward(), there.weight(), back.forward(), back.backward(), back.weight()]
    for _ in range(r):
        row += [there.backward(), back.backward()]
    for _ in range(p - r):
        row += [there.backward(), there.weight()]
    return row + [lane.weight() for lane in (back, there) for _ in range(m - lane.weights)]
