"""A rank's second thread, in both worlds: it communicates while the rank does other things."""

import pytest
import torch

from lockstep.comm import CommunicationError
from lockstep.world import RankError, launch, simulate


def program(comm):
    """Rank 0 adds 1 to what the others send, beside its own work and a collective of all."""
    apart = comm.on_cpu()
    number = torch.full((3,), comm.rank)
    if comm.rank > 0:
        for _ in range(2):
            apart.send(number, 0)
            apart.recv(number, 0)
        return number.tolist(), comm.all_reduce(torch.ones(2)).tolist()

    def serve(mine):
        order = []
        for _ in range(2 * (mine.size - 1)):
            src = mine.recv(number)
            mine.send(number + 1, src)
            order.append(src)
        return sorted(order)

    handle = apart.beside(serve)
    with comm.span("own work", cost=0.01):
        total = comm.all_reduce(torch.ones(2))
    return handle.wait(), total.tolist()


def failing(comm):
    """What goes wrong in the second thread is raised where the rank waits for it."""
    apart = comm.on_cpu()
    if comm.rank == 0:
        apart.beside(lambda mine: mine.send(torch.ones(1), 7)).wait()


def in_processes(comm):
    values = program(comm)
    if comm.rank > 0:
        failing(comm)
    else:
        with pytest.raises(CommunicationError, match="7"):
            failing(comm)
    return values


@pytest.mark.parametrize("world", [launch, simulate])
def test_it_serves_beside_the_ranks_own_work(world):
    run = world(in_processes if world is launch else program, 3)
    assert run.values == [([1, 1, 2, 2], [3, 3]), ([3, 3, 3], [3, 3]), ([4, 4, 4], [3, 3])]
    received = [span for span in run.trace.spans if span.rank == 0 and span.name == "recv"]
    assert len(received) == 4 and all(span.stream == 1 for span in received)


def test_in_the_simulated_world_an_error_there_ends_the_run():
    with pytest.raises(RankError, match="rank 0.*7"):
        simulate(failing, 2)
