"""Data parallel training equals one process with the whole batch: both worlds, 1 to 4 ranks, adversarial toys."""

import pytest
import torch
from toy_models import TOYS, train_alone, train_as_rank

from lockstep.world import launch, simulate


def train_all(comm, names):
    return {name: train_as_rank(comm, TOYS[name]) for name in names}


def judge(run, p):
    for name in run.values[0]:
        toy = TOYS[name]
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


# All of them on two processes and on three simulated ranks; half of them on two or on four simulated ranks.
@pytest.mark.parametrize(
    ("world", "p", "names"),
    [
        (launch, 1, list(TOYS)[::5]),
        (launch, 2, list(TOYS)),
        (launch, 4, list(TOYS)[1::4]),
        (simulate, 1, list(TOYS)),
        (simulate, 2, list(TOYS)[::2]),
        (simulate, 3, list(TOYS)),
        (simulate, 4, list(TOYS)[1::2]),
    ],
    ids=lambda value: getattr(value, "__name__", len(value) if isinstance(value, list) else value),
)
def test_ranks_train_as_one_process_does(world, p, names):
    judge(world(train_all, p, names, timeout=60), p)
