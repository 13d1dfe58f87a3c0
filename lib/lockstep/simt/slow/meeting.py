"""Threads that wait for each other: what a barrier, a shuffle or a vote gives to each.

Floor 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.simt import rules
from lockstep.simt.errors import BarrierError
from lockstep.simt.places import WARP
from lockstep.simt.slow.numbers import Number

NOTHING = object()  # the answer of a barrier without a value


@dataclass(frozen=True)
class Waiting:
    """A thread at a meeting: `scope` is "block" or "warp", `members` the warp's lanes that its mask names."""

    scope: str
    how: str
    line: int
    members: int | None
    value: Number
    argument: Number | None


def answers(waiting: dict[int, Waiting]) -> dict[int, object]:
    """A block's barrier has opened: the number of true predicates, whether all, whether any."""
    yes = sum(bool(waits.value) for waits in waiting.values())
    results = {
        "syncthreads": NOTHING,
        "syncthreads_count": Number(yes, rules.INT32),
        "syncthreads_and": Number(int(yes == len(waiting)), rules.INT32),
        "syncthreads_or": Number(int(yes > 0), rules.INT32),
    }
    return {number: results[waits.how] for number, waits in waiting.items()}


def together(executor, waiting: dict[int, Waiting], ended: set[int]) -> dict[int, object]:
    """Answers for warps in which everybody whom a mask names has arrived at the same line."""
    found: dict[int, object] = {}
    for first in range(0, executor.places.threads, WARP):
        lanes = range(first, min(first + WARP, executor.places.threads))
        here = {n - first: waiting[n] for n in lanes if n in waiting and waiting[n].scope == "warp"}
        if here:
            members = next(iter(here.values())).members
            named = {n - first for n in lanes if members >> (n - first) & 1}
            arrived = {lane for lane, waits in here.items() if waits.line == next(iter(here.values())).line}
            if named & {n - first for n in ended}:
                raise BarrierError("a lane that a mask names has ended")
            if named == arrived == set(here):
                found |= {first + lane: answer for lane, answer in _meet(executor, first, here).items()}
    return found


def _meet(executor, first: int, here: dict[int, Waiting]) -> dict[int, object]:
    how = next(iter(here.values())).how
    yes = {lane for lane, waits in here.items() if waits.value}
    if how == "syncwarp":
        for lane in here:
            executor.syncs[first + lane] += 1
        return dict.fromkeys(here, NOTHING)
    if how == "ballot_sync":
        bits = sum(1 << lane for lane in yes)
        return dict.fromkeys(here, Number(bits, rules.INT32))
    if how in ("all_sync", "any_sync", "eq_sync"):
        alike = len({bool(waits.value == next(iter(here.values())).value) for waits in here.values()}) == 1
        truth = {"all_sync": len(yes) == len(here), "any_sync": bool(yes), "eq_sync": alike}[how]
        return dict.fromkeys(here, Number(truth))
    found = {}
    for lane, waits in here.items():
        argument = int(waits.argument)
        source = {
            "shfl_sync": argument % WARP,
            "shfl_up_sync": lane - argument,
            "shfl_down_sync": lane + argument,
            "shfl_xor_sync": lane ^ argument,
        }[how]
        source = source if 0 <= source < WARP else lane
        if source not in here:
            raise BarrierError(f"lane {lane} reads lane {source}, which does not take part")
        found[lane] = here[source].value
    return found
