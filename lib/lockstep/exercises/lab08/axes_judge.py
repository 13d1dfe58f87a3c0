"""Exercise 08.1: what is asked of a mesh, and what is wrong with one.

Floor 4, room `exercises`; the exercise is in `axes.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from lockstep.comm import Communicator
from lockstep.exercises.exercise import Case
from lockstep.exercises.judge import Finding
from lockstep.exercises.observe import Observation
from lockstep.exercises.plain import short


def ask_the_groups(fn: Callable[..., Any], comm: Communicator, axes: dict[str, int]) -> dict[str, Any]:
    """Coordinates, and for each axis this rank's number in its group and the members, who are asked."""
    result = fn(comm, dict(axes))
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise TypeError(f"return two things, coordinates and groups; this is {result!r:.60}")
    coordinates, groups = result
    for what, found in (("coordinates", coordinates), ("groups", groups)):
        if not isinstance(found, dict) or set(found) != set(axes):
            raise TypeError(f"{what} is a dictionary with one entry for each axis; this is {found!r:.60}")
    places = {name: _whole_number(name, coordinates[name]) for name in axes}
    found = {}
    for name in axes:
        group = groups[name]
        if not isinstance(group, Communicator):
            raise TypeError(f"groups[{name!r}] is what `comm.split` returns; this is {group!r:.60}")
        found[name] = [group.rank, group.all_gather(torch.tensor([comm.rank])).tolist()]
    return {"coordinates": places, "groups": found}


def _whole_number(name: str, coordinate: Any) -> int:
    try:
        return operator.index(coordinate)
    except TypeError:
        raise TypeError(f"coordinates[{name!r}] is a whole number; this is {coordinate!r:.60}") from None


def right_mesh(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """Coordinates of every rank first, then who is in its groups, then its number in them."""
    for what in ("coordinates", "members", "number"):
        for rank, (got, want) in enumerate(zip(seen.value, expected.value, strict=True)):
            for name in case.args[0]:
                g, w = (_part(one, what, name) for one in (got, want))
                if g != w:
                    return _finding(what, rank, name, g, w, seen.value)
    return None


def _part(one: dict[str, Any], what: str, name: str) -> Any:
    if what == "coordinates":
        return one["coordinates"][name]
    number, members = one["groups"][name]
    return sorted(members) if what == "members" else number


def _finding(what: str, rank: int, name: str, got: Any, want: Any, evidence: Any) -> Finding:
    words = {
        "coordinates": f"Rank {rank} is at {name} = {want}, and you say {got}.",
        "members": f"Rank {rank}'s group along {name!r} has the ranks {short(want)}; yours has {short(got)}.",
        "number": f"Rank {rank} is number {want} of its group along {name!r}, in the order of the axis; yours says {got}.",
    }
    return Finding(words[what], short(want), short(got), (what, evidence))
