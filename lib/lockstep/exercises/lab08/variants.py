"""The variants of lab 08: which axis of the mesh varies fastest.

Floor 4, room `exercises`; read `variants.py` of the room first. With the first axis fastest everything is as with the
last one and the axes in reverse order, so an answer to one is an answer to the other (`axes_reversed`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

import numpy as np

from lockstep.exercises.exercise import Exercise
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab08.axes import JUDGE, OBSERVE
from lockstep.exercises.lab08.axes_right import mesh, mesh_by_what_is_fixed
from lockstep.exercises.lab08.axes_wrong import transposed
from lockstep.exercises.variants import Variant

PARAMETER = "fastest axis"
LAST = 'the *last* axis varies fastest, as in the text: with {"data": 2, "tensor": 3}, ranks 0, 1, 2 have data 0.'
FIRST = (
    'the *first* axis varies fastest, other than in the text: with {"data": 2, "tensor": 3}, ranks 0 and 1 have tensor 0, '
    "and data 0 and 1."
)

# What the sentences of some mistakes become when the first axis varies fastest.
SENTENCES = {
    "transposed mesh": ("In your mesh the last axis varies fastest. In your variant it is the first one. Begin there."),
    "no remainder": (
        "You divide by the ranks of the axes in front, which vary faster, and so count the axes behind as well. A "
        "coordinate is less than the size of its axis: take the remainder."
    ),
    "the stride of one axis": (
        "Your step along an axis is the size of the one axis in front of it. It is the product of *all* sizes in front."
    ),
    "axes in the order of their names": (
        "You go through the axes in the order of their names. The dictionary has its own order, and the first one in it "
        "varies fastest."
    ),
    "double-counts the tensor group": (
        "Your groups forget the first axis: who differs on it as well is in, too. All other coordinates belong into the "
        "color."
    ),
    "neighbours for every axis": (
        "You group consecutive ranks, which is right for the first axis only. Along the others the members are as far "
        "apart as the axes in front have ranks."
    ),
}
OWN_SYMPTOM = (
    "only the first line makes its groups", "no group along an axis of one rank", "groups before coordinates",
    "a tuple as color", "returns the coordinates alone", "lists of members", "two groups with one color",
)  # fmt: skip


def axes_reversed(answer: Callable[..., Any]) -> Callable[..., Any]:
    """The answer to the other variant: the same function, given the axes in reverse order."""

    @wraps(answer)
    def turned(comm, axes):
        return answer(comm, dict(reversed(axes.items())))

    return turned


def mesh_from_the_first(comm, axes):
    coordinates, groups, stride = {}, {}, 1
    for name in axes:
        coordinates[name] = comm.rank // stride % axes[name]
        first = comm.rank - coordinates[name] * stride
        groups[name] = comm.split(first, comm.rank)
        stride *= axes[name]
    return coordinates, groups


def mesh_from_a_column_table(comm, axes):
    place = np.unravel_index(comm.rank, tuple(axes.values()), order="F")
    names = list(axes)
    groups = {}
    for at, name in enumerate(names):
        others = [int(one) for i, one in enumerate(place) if i != at]
        sizes = [axes[other] for i, other in enumerate(names) if i != at]
        color = int(np.ravel_multi_index(others, sizes, order="F")) if sizes else 0
        groups[name] = comm.split(color, int(place[at]))
    return {name: int(one) for name, one in zip(names, place, strict=True)}, groups


def first_fastest(exercise: Exercise) -> Exercise:
    """08.1 with the first axis varying fastest."""
    asks = exercise.asks.replace(
        'The last axis varies fastest: with {"data": 2, "tensor": 3}, ranks 0, 1, 2 have data 0 and tensor 0, 1, 2. ',
        "",
    )
    mistakes = []
    for one in exercise.mistakes:
        wrong = mesh if one.function is transposed else axes_reversed(one.function)
        symptom = one.symptom if one.name in OWN_SYMPTOM else None
        sentence = SENTENCES.get(one.name, one.sentence)
        mistakes.append(replace(one, function=wrong, symptom=symptom, sentence=sentence))
    return replace(
        exercise,
        asks=asks,
        reference=mesh_from_the_first,
        also_right=(axes_reversed(mesh_by_what_is_fixed), mesh_from_a_column_table),
        mistakes=by_first_failure(OBSERVE, JUDGE, mistakes),
        hints=(
            exercise.hints[0],
            "From the first axis to the last: the coordinate is the remainder of a division by the axis's size, and what "
            "is left goes on to the next axis.",
            exercise.hints[2],
            "With `stride`, the product of the sizes in front of an axis: `first = comm.rank - coordinates[name] * stride` "
            "is a color.",
        ),
    )


def as_in_the_text(exercise: Exercise) -> Exercise:
    """08.1 itself."""
    return exercise


MESH_AXES = (
    Variant(PARAMETER, "the last", LAST, as_in_the_text),
    Variant(PARAMETER, "the first", FIRST, first_fastest, as_asked=axes_reversed),
)

VARIANTS = {"08.1": MESH_AXES}
