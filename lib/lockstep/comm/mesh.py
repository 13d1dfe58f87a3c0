"""Ranks folded into named axes, as numbers into a box, with a communicator along each axis.

Floor 1, room `comm`. The word is *axis* for a direction of the mesh and *dim* for one of a tensor. The last axis varies
fastest: ranks that differ in it alone are neighbours by number, so it is the one that stays inside a node.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Self

import torch
import torch.distributed as dist

from lockstep.comm.communicator import Communicator
from lockstep.comm.errors import CommunicationError
from lockstep.hardware import Cluster
from lockstep.trace import Message

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class MeshShape:
    """The numbers of a mesh, without communication: `MeshShape({"data": 2, "tensor": 4})` has 8 ranks.

    Raises ValueError for an axis that is not a whole number of at least 1.
    """

    def __init__(self, axes: Mapping[str, int]) -> None:
        for name, size in axes.items():
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise ValueError(f"axis {name!r} has size {size!r}: it is a whole number of ranks, at least 1.")
        if not axes:
            raise ValueError('a mesh has at least one axis, such as {"data": 4}.')
        self.axes = dict(axes)
        self.ranks = math.prod(self.axes.values())

    def coordinates(self, rank: int) -> dict[str, int]:
        """Where `rank` is on each axis."""
        if not 0 <= rank < self.ranks:
            raise ValueError(f"rank {rank} is not in {self}: its ranks are 0 to {self.ranks - 1}.")
        found = {}
        for name, size in reversed(self.axes.items()):
            rank, found[name] = divmod(rank, size)
        return {name: found[name] for name in self.axes}

    def rank(self, coordinates: Mapping[str, int]) -> int:
        """The rank at `coordinates`, one for each axis."""
        if coordinates.keys() != self.axes.keys():
            raise ValueError(
                f"coordinates name {', '.join(coordinates) or 'nothing'}; {self} has {', '.join(self.axes)}."
            )
        rank = 0
        for name, size in self.axes.items():
            if not 0 <= coordinates[name] < size:
                raise ValueError(f"{name}={coordinates[name]} is outside {self}: it goes from 0 to {size - 1}.")
            rank = rank * size + coordinates[name]
        return rank

    def group(self, rank: int, *axes: str) -> tuple[int, ...]:
        """The ranks that are where `rank` is on all other axes, in order of rank."""
        self.check(axes)
        mine = self.coordinates(rank)
        fixed = [name for name in self.axes if name not in axes]
        return tuple(
            other for other in range(self.ranks) if all(self.coordinates(other)[name] == mine[name] for name in fixed)
        )

    def between(self, a: int, b: int) -> tuple[str, ...]:
        """The axes on which two ranks differ: those that a message between them goes along."""
        one, other = self.coordinates(a), self.coordinates(b)
        return tuple(name for name in self.axes if one[name] != other[name])

    def check(self, axes: Iterable[str]) -> None:
        """Raise KeyError for an axis that there is not."""
        for name in axes:
            if name not in self.axes:
                raise KeyError(f"there is no axis {name!r} in {self}")

    def __str__(self) -> str:
        return "the mesh " + " x ".join(f"{name}={size}" for name, size in self.axes.items())


class Mesh:
    """The ranks of `comm` as a mesh: `Mesh(comm, {"data": 2, "pipeline": 2, "tensor": 2})`.

    `mesh["data"]` is a communicator of the ranks that differ from this one on that axis alone, each with its coordinate
    as rank; `mesh["data", "pipeline"]` one over both axes. Collective: to build, and to ask for several axes the first
    time, since a group is made by all ranks and not by its members alone.
    Raises CommunicationError when axes do not multiply to the number of ranks, and what `MeshShape` raises.
    """

    def __init__(self, comm: Communicator, axes: Mapping[str, int]) -> None:
        self.comm, self.shape = comm, MeshShape(axes)
        if self.shape.ranks != comm.size:
            raise CommunicationError(
                f"{self.shape} has {self.shape.ranks} ranks, and there are {comm.size}: let the axes multiply to that."
            )
        self.coordinates = self.shape.coordinates(comm.rank)
        self._along: dict[tuple[str, ...], Communicator] = {}
        for name in axes:
            self[name]

    def __getitem__(self, axes: str | tuple[str, ...]) -> Communicator:
        chosen = (axes,) if isinstance(axes, str) else axes
        self.shape.check(chosen)
        chosen = tuple(name for name in self.shape.axes if name in chosen)  # in any order it is the same group
        if chosen not in self._along:
            group = self.shape.group(self.comm.rank, *chosen)
            self._along[chosen] = self.comm.split(group[0], self.comm.rank)
        return self._along[chosen]

    def to_torch(self) -> DeviceMesh:
        """The same mesh for torch's own parallel modules. Collective; in processes only, on all ranks of the run."""
        from torch.distributed.device_mesh import init_device_mesh

        if not dist.is_initialized() or dist.get_world_size() != self.comm.size:
            raise CommunicationError(
                "torch's DeviceMesh is over all ranks of a run of processes, and this mesh is not."
            )
        axes = self.shape.axes
        return init_device_mesh(self.comm.device.type, tuple(axes.values()), mesh_dim_names=tuple(axes))

    @classmethod
    def from_torch(cls, comm: Communicator, mesh: DeviceMesh) -> Self:
        """The mesh of a torch DeviceMesh with named dims, whose ranks are those of `comm` in order. Collective."""
        if mesh.mesh_dim_names is None:
            raise CommunicationError("the DeviceMesh has no names: give mesh_dim_names when you make it.")
        if not torch.equal(mesh.mesh.flatten().cpu(), torch.arange(comm.size)):
            raise CommunicationError(
                f"the DeviceMesh has ranks {mesh.mesh.tolist()}: only those that count up from 0 to {comm.size - 1} fit."
            )
        return cls(comm, dict(zip(mesh.mesh_dim_names, mesh.mesh.shape, strict=True)))


def bytes_by_axis(messages: Iterable[Message], shape: MeshShape) -> dict[tuple[str, ...], int]:
    """Bytes that went along each axis, or each set of axes at once: of a run's `trace.messages`."""
    found: dict[tuple[str, ...], int] = {}
    for message in messages:
        along = shape.between(message.src, message.dst)
        found[along] = found.get(along, 0) + message.bytes
    return found


def bytes_by_link(messages: Iterable[Message], cluster: Cluster) -> dict[str, int]:
    """Bytes `within` nodes and `between` them: of a run's `trace.messages`, were its ranks on `cluster`."""
    found = {"within": 0, "between": 0}
    for message in messages:
        same = cluster.node(message.src) == cluster.node(message.dst)
        found["within" if same else "between"] += message.bytes
    return found
