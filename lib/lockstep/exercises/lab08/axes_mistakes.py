"""Exercise 08.1: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; the exercise is in `axes.py`, wrong solutions are in `axes_wrong.py`.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.lab08 import axes_wrong as wrong
from lockstep.exercises.lab08.axes_judge import right_mesh
from lockstep.exercises.observe import Observation
from lockstep.exercises.symptoms import is_deadlock, matches, says


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


MISTAKES = (
    Mistake(
        "transposed mesh",
        wrong.transposed,
        "Your mesh is transposed: the first axis varies fastest. Neighbouring ranks, which sit in one machine, would "
        "then share the first axis. Begin at the last one.",
    ),
    Mistake(
        "groups created by members only",
        wrong.made_by_members_only,
        "Each rank calls `split` for its own group alone, with the same color as everybody else, and so all ranks "
        "land in one group. `split` is one call by all ranks of `comm`; it is the color that says who belongs "
        "together. (In torch, a `new_group` that only its members call hangs.)",
    ),
    Mistake(
        "only the first line makes its groups",
        wrong.made_by_the_first_line_only,
        "Some ranks call `split` and others do not, so those who do wait for ever. Every rank takes part in every "
        "`split`, whichever group it ends up in, and in the same order.",
        symptom=_some_ranks_split,
    ),
    Mistake(
        "averages over the wrong axis",
        wrong.same_coordinate,
        "Your color is the coordinate on the axis itself. That joins the ranks which *agree* on it, so an average "
        "over your group goes over all other axes instead. A group along an axis differs on it and agrees on the "
        "others.",
    ),
    Mistake(
        "all coordinates in the color",
        wrong.with_all_coordinates,
        "Each rank has a color of its own, and so is alone. Leave the coordinate on the axis itself out of it: the "
        "members of a group differ there.",
    ),
    Mistake(
        "no remainder",
        wrong.without_remainders,
        "You divide by the ranks of the axes behind, and so count the axes in front as well. A coordinate is less "
        "than the size of its axis: take the remainder.",
    ),
    Mistake(
        "the stride of one axis",
        wrong.stride_of_one_axis,
        "Your step along an axis is the size of the one axis behind it. It is the product of *all* sizes behind.",
    ),
    Mistake(
        "axes in the order of their names",
        wrong.names_in_order,
        "You go through the axes in the order of their names. The dictionary has its own order, and the last one in it "
        "varies fastest.",
    ),
    Mistake(
        "no group along an axis of one rank",
        wrong.no_group_of_one,
        "An axis of size 1 has groups as well, of one rank each. Whoever goes over all axes then needs no exception.",
        symptom=says("is what `comm.split` returns; this is None"),
    ),
    Mistake(
        "groups before coordinates",
        wrong.groups_first,
        "You return the groups first. The coordinates come first, then the groups.",
        symptom=says("coordinates[", "is a whole number", "Communicator"),
    ),
    Mistake(
        "double-counts the tensor group",
        wrong.with_the_last_axis,
        "Your groups forget the last axis: who differs on it as well is in, too. An average over data would count "
        "each tensor group as often as it has ranks. All other coordinates belong into the color.",
    ),
    Mistake(
        "a tuple as color",
        wrong.tuple_as_color,
        "The idea is right: all other coordinates together say which group. But a color is one whole number. Make one "
        "of them, another for each set of coordinates, as a rank is made of its coordinates.",
        symptom=says("split: color is", "must be an integer"),
    ),
    Mistake(
        "neighbours for every axis",
        wrong.blocks_of_neighbours,
        "You group consecutive ranks, which is right for the last axis only. Along the others the members are as far "
        "apart as the axes behind have ranks.",
    ),
    Mistake(
        "counts backwards",
        wrong.backwards,
        "The right ranks are in each group, but in reverse order. Members are numbered by their coordinate; `key` "
        "decides the order.",
    ),
    Mistake(
        "returns the coordinates alone",
        wrong.coordinates_alone,
        "Two things are asked: the coordinates, and the groups along each axis.",
        symptom=says("return two things"),
    ),
    Mistake(
        "lists of members",
        wrong.members_instead,
        "A list says who is in the group. To talk to them a rank needs a communicator, which `comm.split` gives.",
        symptom=says("is what `comm.split` returns; this is ["),
    ),
    Mistake(
        "two groups with one color",
        wrong.colors_that_collide,
        "Two groups get one color and become one, as with a sum, where 1 + 0 and 0 + 1 are the same. Number them so "
        "that each set of other coordinates has a number of its own, whatever the sizes.",
        symptom=_joins_whole_groups,
    ),
)
