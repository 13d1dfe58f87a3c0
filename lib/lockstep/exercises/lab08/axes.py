"""Exercise 08.1: ranks folded into named axes, with a communicator along each.

Floor 4, room `exercises`; solutions are in `axes_right.py` and `axes_mistakes.py`, the judge is in `axes_judge.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from lockstep.exercises.exercise import Case, Exercise, on_ranks
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab08.axes_judge import ask_the_groups, right_mesh
from lockstep.exercises.lab08.axes_mistakes import MISTAKES
from lockstep.exercises.lab08.axes_right import mesh, mesh_by_what_is_fixed, mesh_from_a_table, mesh_stub
from lockstep.exercises.observe import Simulate


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
    mistakes=by_first_failure(OBSERVE, JUDGE, MISTAKES),
)
