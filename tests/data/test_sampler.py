"""Who takes which image: all ranks together each one once, in an order that is new in every pass."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from lockstep.data import DistributedSampler, permutation


def ranks(n_or_labels, size, **arguments):
    return [DistributedSampler(n_or_labels, rank, size, **arguments) for rank in range(size)]


@settings(max_examples=60, deadline=None)
@given(n=st.integers(0, 40), size=st.integers(1, 6), batch=st.integers(1, 45), classes=st.integers(0, 4))
def test_steps_are_disjoint_cover_the_images_and_are_as_many_on_every_rank(n, size, batch, classes):
    data = torch.arange(n) % classes if classes and n else n
    order = DistributedSampler(data).order().tolist()
    steps = list(zip(*[sampler.batches(batch) for sampler in ranks(data, size)], strict=True))
    assert sorted(order) == list(range(n))
    for number, step in enumerate(steps):
        together = [index for part in step for index in part]
        assert sorted(together) == sorted(order[number * batch : (number + 1) * batch])
        assert max(map(len, step)) - min(map(len, step)) <= 1
    assert len(steps) == -(-n // batch)


@settings(max_examples=40, deadline=None)
@given(n=st.integers(0, 40), size=st.integers(1, 6), stratified=st.booleans())
def test_single_indices_are_disjoint_and_cover_the_images(n, size, stratified):
    parts = [list(sampler) for sampler in ranks(torch.arange(n) % 3 if stratified and n else n, size)]
    assert sorted(index for part in parts for index in part) == list(range(n))
    assert [len(part) for part in parts] == [len(sampler) for sampler in ranks(n, size)]


def test_each_pass_has_an_order_of_its_own_also_without_set_epoch():
    """torch's sampler repeats the first order for ever when set_epoch is forgotten."""
    forgetful, careful = DistributedSampler(50, 1, 2), DistributedSampler(50, 1, 2)
    passes = [list(forgetful) for _ in range(3)]
    for epoch in range(3):
        careful.set_epoch(epoch)
        assert list(careful) == passes[epoch] == permutation(50, 0, epoch)[1::2].tolist()
    assert len({tuple(each) for each in passes}) == 3
    careful.set_epoch(1)
    assert list(careful) == passes[1]
    next(iter(forgetful))  # a pass that was left early is over, too
    assert forgetful.epoch == 3 and list(forgetful) == permutation(50, 0, 4)[1::2].tolist()


def test_another_seed_is_another_order_and_torch_s_loader_takes_the_sampler():
    one, other = DistributedSampler(50, seed=1), DistributedSampler(50, seed=2)
    assert list(one) != list(other)
    batches = list(DataLoader(torch.arange(50), batch_size=8, sampler=DistributedSampler(50, 1, 3)))
    assert torch.cat(batches).tolist() == permutation(50, 0, 0)[1::3].tolist()


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_stratified_steps_have_each_class_in_its_share_on_every_rank(size):
    """Classes of very unequal size, and one of two thirds: taking every third of an even pattern would miss it."""
    labels = torch.tensor([0] * 600 + [1] * 200 + [2] * 90 + [3] * 10)[permutation(900, 9)]
    for step in zip(*[sampler.batches(90) for sampler in ranks(labels, size, seed=4)], strict=True):
        whole = torch.bincount(labels[sum(step, [])], minlength=4)
        assert (whole - torch.tensor([60, 20, 9, 1])).abs().max() <= 1
        for part in step:
            assert (torch.bincount(labels[part], minlength=4) - whole / size).abs().max() <= 1
    for sampler in ranks(labels, size):
        counts = torch.bincount(labels[list(sampler)], minlength=4)
        assert (counts - torch.tensor([600, 200, 90, 10]) / size).abs().max() <= 1


@pytest.mark.parametrize("data", [47, torch.arange(47) % 5])
def test_a_pass_goes_on_in_the_middle_on_another_number_of_ranks(data):
    before = ranks(data, 3)
    walks = [sampler.batches(10) for sampler in before]
    taken = [index for _ in range(2) for walk in walks for index in next(walk)]
    states = [sampler.state_dict() for sampler in before]
    assert states[0] == states[2] and states[0]["done"] == 20
    after = ranks(data, 2)
    for sampler in after:
        sampler.load_state_dict(states[0])
        sampler.set_epoch(0)  # what a training loop calls for the epoch that it is in
    rest = [list(sampler.batches(10)) for sampler in after]
    assert sorted(taken + [index for steps in rest for step in steps for index in step]) == list(range(47))
    assert [len(steps) for steps in rest] == [3, 3]
    assert after[0].state_dict()["done"] == 47
    after[0].load_state_dict(after[0].state_dict())  # a whole pass: the next one is new
    assert sum(len(step) for step in after[0].batches(10)) == 24 and after[0].epoch == 1


def test_single_indices_go_on_in_the_middle():
    for data in (11, torch.arange(11) % 2):
        whole = list(DistributedSampler(data, 1, 2))
        sampler = DistributedSampler(data, 1, 2)
        walk = iter(sampler)
        first = [next(walk), next(walk)]
        again = DistributedSampler(data, 1, 2)
        again.load_state_dict(sampler.state_dict())
        assert first + list(again) == whole


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: DistributedSampler(5, 2, 2), "rank 2 of 2 does not exist"),
        (lambda: DistributedSampler(5, 0, 0), "size must be a whole number of at least 1, not 0"),
        (lambda: DistributedSampler(-5), "number of images must be a whole number of at least 0, not -5"),
        (lambda: DistributedSampler(5.0), "not 5.0"),
        (lambda: DistributedSampler(torch.tensor([0.5])), "labels must be whole numbers from 0 on"),
        (lambda: DistributedSampler(torch.tensor([-1, 0])), "with a negative one"),
        (lambda: DistributedSampler(5, seed=-1), "seed must be"),
        (lambda: DistributedSampler(5).set_epoch(-1), "epoch must be"),
        (lambda: DistributedSampler(5).batches(0), "batch must be a whole number of at least 1, not 0"),
        (
            lambda: DistributedSampler(5).load_state_dict(DistributedSampler(6).state_dict()),
            "n=5, the state was saved with 6",
        ),
        (lambda: load_singles_elsewhere(), "another number of ranks"),
    ],
)
def test_what_cannot_be_is_answered_with_a_sentence(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def load_singles_elsewhere():
    sampler, other = (
        DistributedSampler(torch.zeros(9, dtype=torch.int64), 0, 3),
        DistributedSampler(torch.zeros(9).long()),
    )
    next(iter(sampler))
    other.load_state_dict(sampler.state_dict())
    list(other)
