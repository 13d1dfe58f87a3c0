"""Exercise 08.1: right ways to fold ranks into named axes, and the skeleton.

Floor 4, room `exercises`; the exercise is in `axes.py`.
"""

from __future__ import annotations

import numpy as np


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
