"""One program, two worlds: the same values, and in the simulated one every byte is counted."""

import pytest
import torch

from lockstep.comm import CommunicationError
from lockstep.world import launch, simulate


def everything(comm):
    r, p = comm.rank, comm.size
    x = torch.arange(7.0) + r
    rows = list(range(p))
    sizes = [[(i + j) % 3 for j in range(p)] for i in range(p)]
    swap = torch.full((sum(sizes[r]), 2), r)
    part = comm.split(r % 2, key=-r)
    handle = comm.all_reduce(x.clone(), "mean", async_op=True)
    values = [
        comm.all_reduce(x.clone(), "product"),
        comm.all_reduce(torch.tensor([r], dtype=torch.int16)),
        comm.reduce_scatter(x),
        comm.reduce_scatter(x, "max", sizes=[7] + [0] * (p - 1)),
        comm.all_gather(x),
        comm.all_gather(torch.full((r, 1), r), sizes=rows),
        comm.all_to_all(swap, sizes[r], [sizes[i][r] for i in range(p)]),
        comm.broadcast(x.clone(), p - 1),
        comm.reduce(x.clone(), p - 1, "min"),
        comm.gather(x, p - 1) or [],
        comm.scatter(torch.empty(r + 1), [torch.ones(i + 1) * i for i in range(p)] if r == 0 else None),
        part.all_gather(torch.tensor(r)),
        handle.wait(),
    ]
    comm.barrier()
    return [value.tolist() if isinstance(value, torch.Tensor) else [v.tolist() for v in value] for value in values]


@pytest.mark.parametrize("p", [1, 3])
def test_the_same_values(p):
    assert launch(everything, p).values == simulate(everything, p).values


def test_simulated_bytes_come_out_of_the_algorithms():
    def program(comm):
        comm.all_reduce(torch.ones(8))
        comm.all_gather(torch.ones(3))
        comm.reduce_scatter(torch.ones(8), async_op=True).wait()

    for traffic in simulate(program, 4).traffic:
        assert (traffic.messages_sent, traffic.bytes_sent) == (6 + 3 + 3, 4 * (12 + 9 + 6))
        assert not traffic.nominal


def test_both_worlds_refuse_the_same_calls():
    def program(comm):
        said = []
        for call in (
            lambda: comm.all_reduce(torch.ones(2, dtype=torch.int8), "mean"),
            lambda: comm.all_reduce(torch.ones(2), "avg"),
            lambda: comm.broadcast(torch.ones(2), comm.size),
            lambda: comm.all_to_all(torch.ones(3)),
            lambda: comm.send(torch.ones(2).to("meta"), 1 - comm.rank),
        ):
            try:
                call()
                said.append("nothing")
            except CommunicationError as error:
                said.append(str(error))
        return said

    real, simulated = launch(program, 2).values, simulate(program, 2).values
    assert real == simulated and "nothing" not in real[0]
