"""Put the halves of a backward together again where nobody gains from their being apart.

Floor 2, room `parallel`. Two halves take longer than the whole: each goes through the saved activations once, and by
the second they have left the cache. Only some micro-batches earn that back: those whose input gradient is waited for,
or whose weight gradient fills a gap.
"""

from __future__ import annotations

from dataclasses import replace

from lockstep.parallel.pipeline.schedule import Action, Schedule
from lockstep.parallel.pipeline.timing import Costs


def fuse_backward(
    schedule: Schedule,
    forward: Costs,
    backward: Costs,
    input_gradient: Costs,
    weight_gradient: Costs,
    transfer: Costs = 0,
) -> Schedule:
    """`schedule` with a whole backward in place of two halves wherever that makes it no longer, at these costs.

    Costs in seconds as `Schedule.simulate` takes them. Micro-batches are tried one by one, again and again until none
    can be fused: a short schedule, not always the shortest, after p·m simulations and more. No rank holds more
    micro-batches than before.
    Raises InvalidSchedule and ValueError as `simulate` does.
    """

    def makespan(candidate: Schedule) -> float:
        return candidate.simulate(forward, backward, input_gradient, weight_gradient, transfer).makespan

    best, least, found = schedule, makespan(schedule), True
    while found:
        found = False
        for half in [part for part in best.parts() if part.kind == "I"]:
            candidate = _fused(best, half)
            if candidate is not None and (took := makespan(candidate)) <= least:
                best, least, found = candidate, took, True
    return best if best is schedule else replace(best, name=f"{schedule.name}, fused")


def _fused(schedule: Schedule, half: Action) -> Schedule | None:
    """The schedule with the whole backward where `half` is; None where either half is part of an overlap."""
    rank = schedule.placement[half.chunk]
    row, other = list(schedule.actions[rank]), Action("W", half.chunk, half.micro_batch)
    if half not in row or other not in row:
        return None
    row[row.index(half)] = Action("B", half.chunk, half.micro_batch)
    row.remove(other)
    return replace(schedule, actions=(*schedule.actions[:rank], tuple(row), *schedule.actions[rank + 1 :]))
