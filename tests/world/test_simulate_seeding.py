"""What a rank's random numbers start from."""

import random

import numpy as np
import pytest
import torch

from lockstep.world.seeding import seed_cpu, seed_rank


@pytest.fixture(autouse=True)
def callers_generators():
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()
    yield
    torch.set_rng_state(states[0]), np.random.set_state(states[1]), random.setstate(states[2])


def draws():
    return torch.rand(3).tolist(), np.random.rand(3).tolist(), [random.random() for _ in range(3)]


def test_the_same_pair_gives_the_same_numbers_in_both_worlds():
    seed_rank(7, 3)
    process = draws()
    seed_cpu(7, 3)
    assert draws() == process


def test_neighbouring_seeds_and_ranks_share_nothing():
    # (0, 1) and (1, 0) would collide if a rank's seed were seed + rank.
    seen = set()
    for seed in range(4):
        for rank in range(4):
            seed_cpu(seed, rank)
            for numbers in draws():
                seen.add(tuple(numbers))
    assert len(seen) == 4 * 4 * 3


@pytest.mark.parametrize("bad", [-1, 1.5, True, "0"])
def test_a_seed_that_is_no_count_is_refused(bad):
    with pytest.raises(ValueError, match="seed must be an integer of at least 0"):
        seed_rank(bad, 0)
