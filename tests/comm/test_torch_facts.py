"""What torch and gloo do by themselves, which the labs tell of, and what the communicator does instead."""

import pytest
import torch
from torch import distributed, nn

from lockstep.world import RankError, RunError, launch

pytestmark = pytest.mark.timeout(120)
MIB = 2**20


def gloo_alone(comm):
    """On four ranks: what gloo's sum is, and what becomes of an int8 and of a message into a larger buffer."""
    own = torch.rand(1000, generator=torch.Generator().manual_seed(comm.rank))
    total = own.clone()
    distributed.all_reduce(total)
    small = torch.full((2,), 100 if comm.rank < 2 else 0, dtype=torch.int8)
    distributed.all_reduce(small)
    received = torch.zeros(8)
    if comm.rank == 0:
        distributed.send(torch.ones(4), dst=1)
    elif comm.rank == 1:
        distributed.recv(received, src=0)
    return own, total, small, received


def test_gloo_by_itself():
    values = launch(gloo_alone, 4).values
    totals = [total for _, total, _, _ in values]
    assert all(torch.equal(total, totals[0]) for total in totals), "bitwise equal on all ranks"
    in_rank_order = sum(own for own, _, _, _ in values)
    apart = (totals[0] - in_rank_order).abs().max()
    assert 0 < apart < 2e-6, "another order of additions is rounded otherwise"
    assert values[0][2].tolist() == [-56, -56], "100 + 100 wraps in int8"
    assert values[1][3].tolist() == [1, 1, 1, 1, 0, 0, 0, 0], "half a buffer is filled, and nobody says so"


def both_send_first(comm):
    peer = 1 - comm.rank
    distributed.send(torch.zeros(1024), dst=peer)  # 4 KB
    distributed.recv(torch.zeros(1024), src=peer)


def into_a_larger_buffer(comm):
    if comm.rank == 0:
        comm.send(torch.ones(4), 1)
    else:
        comm.recv(torch.zeros(8), 0)


def sum_that_does_not_fit(comm):
    comm.all_reduce(torch.full((2,), 100, dtype=torch.int8))


def test_two_ranks_that_both_send_first_wait_for_ever_even_with_4_kilobytes(monkeypatch):
    monkeypatch.setattr("lockstep.world.supervise.IDLE_FOR", 0.5)
    with pytest.raises(RunError, match="deadlock"):
        launch(both_send_first, 2, timeout=30)


@pytest.mark.parametrize(
    ("program", "sentence"),
    [(into_a_larger_buffer, r"float32\[8\].*float32\[4\]|float32\[4\].*float32\[8\]"), (sum_that_does_not_fit, "int8")],
)
def test_the_communicator_says_so(program, sentence):
    with pytest.raises(RankError, match=sentence):
        launch(program, 2)


def buckets_of_ddp(comm, **options):
    """MiB of torch's buckets in its first and in its second iteration; twelve layers of 4 MiB."""
    model = nn.Sequential(*(nn.Linear(1024, 1024, bias=False) for _ in range(12)))
    wrapped = nn.parallel.DistributedDataParallel(model, **options)
    seen = []

    def watched(state, bucket):
        seen[-1].append(bucket.buffer().nbytes // MIB)
        return distributed.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])

    wrapped.register_comm_hook(None, watched)
    for _ in range(2):
        seen.append([])
        wrapped(torch.ones(1, 1024)).sum().backward()
    return seen


def test_torch_closes_a_bucket_when_it_has_reached_the_cap():
    # One bucket holds everything at first; from the second iteration on they follow the order in which gradients became
    # ready, and by default the first of them is small.
    both = launch(lambda comm: (buckets_of_ddp(comm), buckets_of_ddp(comm, bucket_cap_mb=25)), 2).values[0]
    assert both == ([[48], [4, 28, 16]], [[48], [28, 20]])
