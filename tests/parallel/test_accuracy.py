"""Accuracy over uneven shards: every sample counts once."""

import pytest
import torch

from lockstep.parallel import distributed_accuracy
from lockstep.world import RankError, simulate

SHARES = {
    1: [(0, 47)],
    2: [(0, 40), (40, 47)],
    3: [(0, 1), (1, 1), (1, 47)],
    4: [(0, 20), (20, 21), (21, 40), (40, 47)],
}


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_the_share_is_exact_for_parts_of_any_size(world):
    """In the last part nearly all answers are right: a mean of shares would give another number."""
    labels = torch.arange(47) % 10
    guesses = torch.where(torch.arange(47) > 38, labels, (labels * 3) % 10)
    logits = torch.nn.functional.one_hot(guesses, 10).float()

    def program(comm):
        first, last = SHARES[comm.size][comm.rank]
        return distributed_accuracy(comm, logits[first:last], labels[first:last])

    right = sum(guess == label for guess, label in zip(guesses.tolist(), labels.tolist(), strict=True))
    run = simulate(program, world)
    assert run.values == [right / 47] * world
    assert distributed_accuracy(None, logits, labels) == right / 47
    assert len({span.detail["sequence"] for span in run.trace.spans if span.kind == "collective"}) == 1


def test_samples_that_do_not_fit_and_none_at_all():
    with pytest.raises(ValueError, match=r"not \(2, 3\) and \(3,\)"):
        distributed_accuracy(None, torch.zeros(2, 3), torch.zeros(3))
    with pytest.raises(RankError, match="no rank has a sample"):
        simulate(lambda comm: distributed_accuracy(comm, torch.zeros(0, 3), torch.zeros(0).long()), 2)
