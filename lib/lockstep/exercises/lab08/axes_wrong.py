"""Exercise 08.1: wrong meshes that students write; their sentences are in `axes_mistakes.py`.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from lockstep.exercises.lab08.axes_right import mesh, mesh_by_what_is_fixed


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
