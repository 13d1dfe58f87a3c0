"""Exercise 08.1: ranks folded into named axes, with a communicator along each.

Floor 4, room `exercises`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from lockstep.comm import Communicator
from lockstep.exercises.exercise import Case, Exercise, Mistake, on_ranks
from lockstep.exercises.judge import Finding
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.observe import Observation, Simulate
from lockstep.exercises.plain import short
from lockstep.exercises.symptoms import is_deadlock, matches, says


def mesh(comm, axes):
    coordinates, groups, stride = {}, {}, 1
    for name in reversed(axes):
        coordinates[name] = comm.rank // stride % axes[name]
        first = comm.rank - coordinates[name] * stride
        groups[name] = comm.split(first, comm.rank)
        stride *= axes[name]
    return coordinates, groups


def mesh_from_a_table(comm, axes):
    table = np.arange(comm.size).reshape(tuple(axes.values()))
    place = [int(one[0]) for one in np.where(table == comm.rank)]
    groups = {}
    for axis, name in enumerate(axes):
        line = table[tuple(slice(None) if i == axis else at for i, at in enumerate(place))]
        groups[name] = comm.split(int(line.min()), place[axis])
    return dict(zip(axes, place, strict=True)), groups


def mesh_by_what_is_fixed(comm, axes):
    coordinates, rest = {}, comm.rank
    for name, size in list(axes.items())[::-1]:
        rest, coordinates[name] = divmod(rest, size)
    communicators = {}
    for name in axes:
        color = 0
        for other, size in axes.items():
            if other != name:
                color = color * size + coordinates[other]
        communicators[name] = comm.split(color, key=coordinates[name])
    return coordinates, communicators


def mesh_stub(comm, axes):
    raise NotImplementedError("return the coordinates and the groups of this rank, each by axis")


def _coordinates(rank, axes):
    found = {}
    for name in reversed(axes):
        rank, found[name] = divmod(rank, axes[name])
    return found


def transposed(comm, axes):
    coordinates, groups, stride = {}, {}, 1
    for name, size in axes.items():
        coordinates[name] = comm.rank // stride % size
        groups[name] = comm.split(comm.rank - coordinates[name] * stride, comm.rank)
        stride *= size
    return coordinates, groups


def made_by_members_only(comm, axes):
    mine, groups = _coordinates(comm.rank, axes), {}
    for name in axes:
        lines = {}
        for rank in range(comm.size):
            fixed = tuple(at for other, at in _coordinates(rank, axes).items() if other != name)
            lines.setdefault(fixed, []).append(rank)
        for members in lines.values():
            if comm.rank in members:
                groups[name] = comm.split(0, comm.rank)
    return mine, groups


def made_by_the_first_line_only(comm, axes):
    mine, groups = _coordinates(comm.rank, axes), {}
    for name in axes:
        others = [at for other, at in mine.items() if other != name]
        if not any(others):
            groups[name] = comm.split(0, mine[name])
    return mine, groups


def same_coordinate(comm, axes):
    mine = _coordinates(comm.rank, axes)
    return mine, {name: comm.split(mine[name], comm.rank) for name in axes}


def colors_that_collide(comm, axes):
    mine = _coordinates(comm.rank, axes)
    return mine, {name: comm.split(sum(mine.values()) - mine[name], comm.rank) for name in axes}


def with_the_last_axis(comm, axes):
    mine, last = _coordinates(comm.rank, axes), list(axes)[-1]
    groups = {}
    for name in axes:
        color = 0
        for other, size in axes.items():
            if other != name and (other != last or name == last):
                color = color * size + mine[other]
        groups[name] = comm.split(color, comm.rank)
    return mine, groups


def blocks_of_neighbours(comm, axes):
    return _coordinates(comm.rank, axes), {
        name: comm.split(comm.rank // size, comm.rank) for name, size in axes.items()
    }


def tuple_as_color(comm, axes):
    mine = _coordinates(comm.rank, axes)
    return mine, {
        name: comm.split(tuple(at for other, at in mine.items() if other != name), mine[name]) for name in axes
    }


def with_all_coordinates(comm, axes):
    return _coordinates(comm.rank, axes), {name: comm.split(comm.rank, comm.rank) for name in axes}


def without_remainders(comm, axes):
    coordinates, groups, stride = {}, {}, 1
    for name in reversed(axes):
        coordinates[name] = comm.rank // stride
        groups[name] = comm.split(comm.rank % stride, comm.rank)
        stride *= axes[name]
    return coordinates, groups


def stride_of_one_axis(comm, axes):
    coordinates, groups, stride = {}, {}, 1
    for name in reversed(axes):
        coordinates[name] = comm.rank // stride % axes[name]
        groups[name] = comm.split(comm.rank - coordinates[name] * stride, comm.rank)
        stride = axes[name]
    return coordinates, groups


def names_in_order(comm, axes):
    coordinates, groups = mesh(comm, {name: axes[name] for name in sorted(axes)})
    return coordinates, groups


def no_group_of_one(comm, axes):
    coordinates, groups = mesh_by_what_is_fixed(comm, axes)
    return coordinates, {name: group if axes[name] > 1 else None for name, group in groups.items()}


def groups_first(comm, axes):
    coordinates, groups = mesh(comm, axes)
    return groups, coordinates


def backwards(comm, axes):
    mine, groups = mesh_by_what_is_fixed(comm, axes)
    return mine, {name: group.split(0, -group.rank) for name, group in groups.items()}


def coordinates_alone(comm, axes):
    return _coordinates(comm.rank, axes)


def members_instead(comm, axes):
    mine = _coordinates(comm.rank, axes)
    groups = {}
    for name in axes:
        groups[name] = [
            rank
            for rank in range(comm.size)
            if all(at == mine[other] for other, at in _coordinates(rank, axes).items() if other != name)
        ]
    return mine, groups


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


def _joins_whole_groups(case: Case, seen: Observation, expected: Observation) -> bool:
    """Where members are wrong, several right groups have become one, on every rank."""
    found = None if seen.error is not None else right_mesh(case, seen, expected)
    if found is None or found.evidence[0] != "members":
        return False
    for name in case.args[0]:
        right = [set(one["groups"][name][1]) for one in expected.value]
        for own, one in zip(right, seen.value, strict=True):
            got = set(one["groups"][name][1])
            if not own <= got or any(not right[rank] <= got for rank in got):
                return False
    return True


def _some_ranks_split(case: Case, seen: Observation, expected: Observation) -> bool:
    return is_deadlock(case, seen, expected) or matches("calls split|calls all_gather.*calls split")(
        case, seen, expected
    )


def cases(rng: np.random.Generator) -> Iterator[Case]:
    drawn = [
        {"data": 2},
        {"data": 2, "tensor": int(rng.integers(3, 5))},
        # Names out of order, axes of one rank, one that is longer than small bases of a color.
        {"tensor": 1, "expert": 5, "data": 2, "pipeline": 1},
        {"data": 3, "pipeline": 2, "tensor": 2},  # more ranks in front of the middle axis than along it
    ]
    for axes in drawn:
        yield on_ranks(math.prod(axes.values()), axes, name=" x ".join(f"{name}={size}" for name, size in axes.items()))


OBSERVE, JUDGE = Simulate(ask_the_groups), right_mesh

MESH = Exercise(
    id="08.1",
    title="Ranks in a mesh",
    function="mesh",
    points=2,
    asks=(
        "`axes` maps the name of each axis to its size, and the sizes multiply to `comm.size`. The last axis varies fastest: "
        'with {"data": 2, "tensor": 3}, ranks 0, 1, 2 have data 0 and tensor 0, 1, 2. Return two dictionaries with an entry '
        "for each axis: this rank's coordinates, and its groups. A group is a communicator of the ranks that differ from "
        "this one on that axis alone, each with its coordinate as rank."
    ),
    reference=mesh,
    also_right=(mesh_from_a_table, mesh_by_what_is_fixed),
    stub=mesh_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    forbidden=("lockstep.comm.Mesh", "lockstep.comm.mesh.Mesh.__init__"),
    hints=(
        (
            "A clock does the same with seconds: how do you get hours, minutes and seconds out of 5,000 s? Which of the three "
            "varies fastest?"
        ),
        (
            "From the last axis to the first: the coordinate is the remainder of a division by the axis's size, and what is "
            "left goes on to the next axis."
        ),
        (
            "`comm.split(color, key)` is called by every rank, once for each axis. Those who give the same `color` get one "
            "communicator. Members of a group along one axis have all *other* coordinates in common: make one number of "
            "those, and no two groups may get the same."
        ),
        "With `stride`, the product of the sizes behind an axis: `first = comm.rank - coordinates[name] * stride` is a color.",
    ),
    mistakes=by_first_failure(
        OBSERVE,
        JUDGE,
        (
            Mistake(
                "transposed mesh",
                transposed,
                "Your mesh is transposed: the first axis varies fastest. Neighbouring ranks, which sit in one machine, would "
                "then share the first axis. Begin at the last one.",
            ),
            Mistake(
                "groups created by members only",
                made_by_members_only,
                "Each rank calls `split` for its own group alone, with the same color as everybody else, and so all ranks "
                "land in one group. `split` is one call by all ranks of `comm`; it is the color that says who belongs "
                "together. (In torch, a `new_group` that only its members call hangs.)",
            ),
            Mistake(
                "only the first line makes its groups",
                made_by_the_first_line_only,
                "Some ranks call `split` and others do not, so those who do wait for ever. Every rank takes part in every "
                "`split`, whichever group it ends up in, and in the same order.",
                symptom=_some_ranks_split,
            ),
            Mistake(
                "averages over the wrong axis",
                same_coordinate,
                "Your color is the coordinate on the axis itself. That joins the ranks which *agree* on it, so an average "
                "over your group goes over all other axes instead. A group along an axis differs on it and agrees on the "
                "others.",
            ),
            Mistake(
                "all coordinates in the color",
                with_all_coordinates,
                "Each rank has a color of its own, and so is alone. Leave the coordinate on the axis itself out of it: the "
                "members of a group differ there.",
            ),
            Mistake(
                "no remainder",
                without_remainders,
                "You divide by the ranks of the axes behind, and so count the axes in front as well. A coordinate is less "
                "than the size of its axis: take the remainder.",
            ),
            Mistake(
                "the stride of one axis",
                stride_of_one_axis,
                "Your step along an axis is the size of the one axis behind it. It is the product of *all* sizes behind.",
            ),
            Mistake(
                "axes in the order of their names",
                names_in_order,
                "You go through the axes in the order of their names. The dictionary has its own order, and the last one in it "
                "varies fastest.",
            ),
            Mistake(
                "no group along an axis of one rank",
                no_group_of_one,
                "An axis of size 1 has groups as well, of one rank each. Whoever goes over all axes then needs no exception.",
                symptom=says("is what `comm.split` returns; this is None"),
            ),
            Mistake(
                "groups before coordinates",
                groups_first,
                "You return the groups first. The coordinates come first, then the groups.",
                symptom=says("coordinates[", "is a whole number", "Communicator"),
            ),
            Mistake(
                "double-counts the tensor group",
                with_the_last_axis,
                "Your groups forget the last axis: who differs on it as well is in, too. An average over data would count "
                "each tensor group as often as it has ranks. All other coordinates belong into the color.",
            ),
            Mistake(
                "a tuple as color",
                tuple_as_color,
                "The idea is right: all other coordinates together say which group. But a color is one whole number. Make one "
                "of them, another for each set of coordinates, as a rank is made of its coordinates.",
                symptom=says("split: color is", "must be an integer"),
            ),
            Mistake(
                "neighbours for every axis",
                blocks_of_neighbours,
                "You group consecutive ranks, which is right for the last axis only. Along the others the members are as far "
                "apart as the axes behind have ranks.",
            ),
            Mistake(
                "counts backwards",
                backwards,
                "The right ranks are in each group, but in reverse order. Members are numbered by their coordinate; `key` "
                "decides the order.",
            ),
            Mistake(
                "returns the coordinates alone",
                coordinates_alone,
                "Two things are asked: the coordinates, and the groups along each axis.",
                symptom=says("return two things"),
            ),
            Mistake(
                "lists of members",
                members_instead,
                "A list says who is in the group. To talk to them a rank needs a communicator, which `comm.split` gives.",
                symptom=says("is what `comm.split` returns; this is ["),
            ),
            Mistake(
                "two groups with one color",
                colors_that_collide,
                "Two groups get one color and become one, as with a sum, where 1 + 0 and 0 + 1 are the same. Number them so "
                "that each set of other coordinates has a number of its own, whatever the sizes.",
                symptom=_joins_whole_groups,
            ),
        ),
    ),
)
