"""Data parallel training equals one process with the whole batch: both worlds, 1 to 4 ranks, adversarial toys."""

import pytest
import torch
from toy_models import TOYS, train_alone, train_as_rank

from lockstep.world import launch, simulate


def train_all(comm, names):
    return {name: train_as_rank(comm, TOYS[name]) for name in names}


def judge(run, p):
    for name, toy in TOYS.items():
        starts, ends, grads = zip(*(value[name] for value in run.values), strict=True)
        for rank in range(1, p):
            for mine, first in ((starts[rank], starts[0]), (ends[rank], ends[0])):
                assert all(torch.equal(mine[key], first[key]) for key in first), f"{name}: rank {rank} has drifted"
        state, oracle = train_alone(toy, p, starts[0])
        assert ends[0].keys() == state.keys()
        for key in state:
            assert torch.allclose(ends[0][key], state[key], rtol=toy.tolerance, atol=toy.tolerance), f"{name}: {key}"
        for mine in grads:
            for at, (one, other) in enumerate(zip(mine, oracle, strict=True)):
                assert (one is None) == (other is None), f"{name}: parameter {at} has {one}, the oracle {other}"
                if one is not None:
                    assert torch.allclose(one, other, rtol=toy.tolerance, atol=toy.tolerance), f"{name}: {at}"
        assert any(not torch.equal(starts[0][key], ends[0][key]) for key in state)


@pytest.mark.parametrize("p", [1, 2, 4])
def test_processes_train_as_one_process_does(p):
    judge(launch(train_all, p, list(TOYS)), p)


@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_simulated_ranks_train_as_one_process_does(p):
    judge(simulate(train_all, p, list(TOYS), timeout=60), p)
