"""Exercise 06.1: how mistakes that have many forms show, in gradients, in deadlocks and in shapes that do not fit.

Floor 4, room `exercises`; the mistakes are in `splitting_mistakes.py`. A case's first arguments are the widths before
each layer and behind the last, and the cuts: at a border the width says which layer was run last.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from lockstep.exercises.exercise import Case, Symptom
from lockstep.exercises.observe import Observation

MISFIT = re.compile(r"Rank (\d+) receives into \w+\[.*?(\d+)\], rank (\d+) sends \w+\[.*?(\d+)\]")


def nobody_waits_and_nobody_learns(case: Case, seen: Observation, expected: Observation) -> bool:
    """Only the last rank has gradients."""
    if seen.error is not None or case.ranks < 2:
        return False
    having = [any(g is not None for g in gradients.values()) for _, gradients in seen.value]
    return having[-1] and not any(having[:-1])


def waits_for_the_last(case: Case, seen: Observation, expected: Observation) -> bool:
    """Every rank but the last is in a receive from the next one, and the last has returned."""
    if seen.error is None or seen.error.type != "Deadlock":
        return False
    waits = dict(seen.error.waits)
    return sorted(waits) == list(range(case.ranks - 1)) and all("recv" in what for what in waits.values())


def nobody_learns(case: Case, seen: Observation, expected: Observation) -> bool:
    """No rank has any gradient."""
    return seen.error is None and all(g is None for _, gradients in seen.value for g in gradients.values())


def waits_crosswise(case: Case, seen: Observation, expected: Observation) -> bool:
    if seen.error is None or seen.error.type != "Deadlock":
        return False
    waits = dict(seen.error.waits)
    return len(waits) == case.ranks and all("recv" in what for what in waits.values())


def sends_facing_each_other(case: Case, seen: Observation, expected: Observation) -> bool:
    """Every rank that waits is in a send."""
    if seen.error is None or seen.error.type != "Deadlock":
        return False
    return all("send" in what for _, what in seen.error.waits)


def sends_past_its_neighbour(case: Case, seen: Observation, expected: Observation) -> bool:
    """Some rank waits in a send to a rank that is not beside it."""
    if seen.error is None or seen.error.type != "Deadlock":
        return False
    sends = [(rank, re.search(r"send of .* to rank (\d+)", what)) for rank, what in seen.error.waits]
    return any(found and abs(int(found[1]) - rank) > 1 for rank, found in sends)


def misfit(step: int, like: Callable[[list[int], list[int], int, int, int], bool]) -> Symptom:
    """A message to the rank `step` further on whose width is not what is received into.

    like(widths, bounds, sender, into, sent): what else has to hold of the two widths.
    """

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        found = MISFIT.search(seen.error.message) if seen.error is not None else None
        if not found:
            return False
        receiver, into, sender, sent = map(int, found.groups())
        widths, cuts, _ = case.args
        bounds = [0, *cuts, len(widths) - 1]
        return receiver - sender == step and like(list(widths), bounds, sender, into, sent)

    return symptom


runs_one_layer_more = misfit(1, lambda widths, bounds, rank, into, sent: sent == widths[bounds[rank + 1] + 1])
has_equally_many = misfit(
    1,
    lambda widths, bounds, rank, into, sent: (
        len(bounds) > 3 and sent == widths[(rank + 1) * bounds[-1] // (len(bounds) - 1)] != widths[bounds[rank + 1]]
    ),
)
receives_like_x = misfit(-1, lambda widths, bounds, rank, into, sent: into == widths[bounds[rank - 1]])
sends_the_output_gradient = misfit(-1, lambda widths, bounds, rank, into, sent: sent == widths[bounds[rank + 1]])


def stops_at_the_loss(last: bool, alone: bool) -> Symptom:
    """The loss cannot take what it is given, on the `last` rank or on another one; alone: on one of one rank."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        if seen.error is None or "size of tensor" not in seen.error.message:
            return False
        return (seen.error.rank == case.ranks - 1) is last and (case.ranks == 1) is alone

    return symptom
