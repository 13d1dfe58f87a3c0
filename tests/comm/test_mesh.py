"""Meshes: coordinates against NumPy's own, groups in both worlds, torch's DeviceMesh, and which bytes go where."""

import numpy as np
import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh

from lockstep.comm import Mesh, MeshShape, bytes_by_axis, bytes_by_link
from lockstep.hardware import cluster
from lockstep.world import RankError, launch, simulate

AXES = {"data": 2, "pipeline": 3, "tensor": 2}


def test_coordinates_are_those_of_a_numpy_array():
    shape = MeshShape(AXES)
    table = np.arange(12).reshape(2, 3, 2)
    for rank in range(12):
        at = tuple(int(i) for i in np.argwhere(table == rank)[0])
        assert tuple(shape.coordinates(rank).values()) == at and shape.rank(shape.coordinates(rank)) == rank
        assert shape.group(rank, "pipeline") == tuple(table[at[0], :, at[2]])
        assert shape.group(rank, "tensor", "data") == tuple(table[:, at[1], :].flatten())
    assert shape.between(0, 11) == ("data", "pipeline", "tensor") and shape.between(4, 5) == ("tensor",)


def sums(comm):
    mesh = Mesh(comm, {"data": 2, "tensor": comm.size // 2})
    rank = torch.tensor(float(comm.rank))
    along = [mesh[axes].all_reduce(rank.clone()).item() for axes in ("data", "tensor", ("tensor", "data"))]
    return mesh.coordinates, (mesh["data"].rank, mesh["tensor"].rank), along, mesh["data", "tensor"].size


@pytest.mark.parametrize(("world", "ranks"), [(simulate, 8), (simulate, 2), (launch, 4)])
def test_each_axis_is_a_communicator(world, ranks):
    table = np.arange(ranks).reshape(2, -1)
    for rank, (coordinates, own, along, size) in enumerate(world(sums, ranks).values):
        row, column = divmod(rank, ranks // 2)
        assert coordinates == {"data": row, "tensor": column} and own == (row, column) and size == ranks
        assert along == [table[:, column].sum(), table[row].sum(), table.sum()]


def test_it_goes_to_torch_and_comes_back():
    def program(comm):
        mesh = Mesh(comm, {"data": 2, "tensor": 2})
        theirs = mesh.to_torch()
        back = Mesh.from_torch(comm, theirs)
        local = theirs.get_local_rank("data"), theirs.get_local_rank("tensor")
        try:
            Mesh.from_torch(comm, init_device_mesh("cpu", (4,)))
        except Exception as error:
            return back.shape.axes, local == tuple(mesh.coordinates.values()), str(error)

    for axes, same, error in launch(program, 4).values:
        assert axes == {"data": 2, "tensor": 2} and same and "has no names" in error


def test_bytes_by_axis_and_by_link():
    # Two nodes of two; a ring of two ranks along an axis sends n bytes a rank, half of n twice.
    def program(comm):
        mesh = Mesh(comm, {"data": 2, "tensor": 2})
        before = comm.traffic.bytes_sent
        mesh["data"].all_reduce(torch.ones(1000))
        mesh["tensor"].all_reduce(torch.ones(10))
        return before

    run = simulate(program, 4, cluster="2xA100 x 2")
    assert run.values == [0] * 4  # making groups costs no message here
    assert bytes_by_axis(run.trace.messages, MeshShape({"data": 2, "tensor": 2})) == {
        ("data",): 16000,
        ("tensor",): 160,
    }
    assert bytes_by_link(run.trace.messages, cluster("2xA100 x 2")) == {"within": 160, "between": 16000}


@pytest.mark.parametrize(
    ("axes", "says"),
    [
        ({"data": 3}, "the mesh data=3 has 3 ranks, and there are 2"),
        ({"data": 0}, "axis 'data' has size 0"),
        ({"data": 1.5}, "axis 'data' has size 1.5"),
        ({}, "at least one axis"),
    ],
)
def test_axes_that_make_no_mesh_are_a_sentence(axes, says):
    with pytest.raises(RankError, match=says):
        simulate(lambda comm: Mesh(comm, axes) and None, 2)


def test_wrong_questions_are_a_sentence():
    shape = MeshShape(AXES)
    for ask, error, says in (
        (lambda: shape.coordinates(12), ValueError, "its ranks are 0 to 11"),
        (
            lambda: shape.rank({"data": 0}),
            ValueError,
            "coordinates name data; the mesh data=2 x pipeline=3 x tensor=2 has",
        ),
        (lambda: shape.rank({"data": 2, "pipeline": 0, "tensor": 0}), ValueError, "data=2 is outside"),
        (lambda: shape.group(0, "model"), KeyError, "there is no axis 'model'"),
    ):
        with pytest.raises(error, match=says):
            ask()
