"""Batches for a rank: the right images, also with worker processes inside a rank, also after a stop in the middle."""

import time
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import Dataset

from lockstep.data import Cache, DistributedSampler, Loader, Normalize, OneHot, load
from lockstep.data import cache as cache_module
from lockstep.world import launch


class Squares(Dataset):
    """(i, i squared, a dictionary) as one reads them from a disk; counts its reads."""

    def __init__(self, n=10):
        self.n, self.reads = n, 0

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        self.reads += 1
        return torch.full((2, 3), index, dtype=torch.float32), index * index


def test_batches_are_those_of_the_sampler_and_leave_the_programs_random_numbers_alone():
    images = load("digits", verbose=False)
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    loader = Loader(images, 100, DistributedSampler(images.labels, 1, 2))
    batches = list(loader)
    assert torch.equal(torch.rand(2), expected)
    assert len(batches) == len(loader) == 15
    for (x, y), indices in zip(batches, DistributedSampler(images.labels, 1, 2).batches(100), strict=True):
        assert torch.equal(x, images.images[indices]) and torch.equal(y, images.labels[indices])


def test_a_rank_without_an_image_gets_an_empty_batch_as_often_as_the_others_get_one():
    data = (torch.arange(10.0).reshape(5, 2), torch.arange(5))
    for source in (data, Squares(5)):
        parts = [[len(batch[0]) for batch in Loader(source, 4, DistributedSampler(5, rank, 3))] for rank in range(3)]
        assert parts == [[2, 1], [1, 0], [1, 0]]
    empty = list(Loader(Squares(5), 4, DistributedSampler(5, 2, 3)))[1]
    assert empty[0].shape == (0, 2, 3) and empty[1].dtype == torch.int64


def test_stopping_and_going_on_sees_each_image_once_whatever_was_made_ready_ahead():
    loader = Loader(Squares(), 2, workers=1, prefetch=3)
    seen = []
    for number, (_, squares) in enumerate(loader):
        seen += squares.tolist()
        if number == 1:
            time.sleep(0.2)  # the worker is ahead now
            break
    state = loader.state_dict()
    assert state["done"] == 4
    following = Loader(Squares(), 2)
    following.load_state_dict(state)
    seen += [square for _, squares in following for square in squares.tolist()]
    assert sorted(seen) == [i * i for i in range(10)]


def in_a_rank(comm):
    """Workers inside a rank, with a cache that they share; a second pass reads nothing any more."""
    cached = Cache(Squares(12))
    loader = Loader(cached, 4, DistributedSampler(12, comm.rank, comm.size), workers=2)
    seen = [sorted(square for _, squares in loader for square in squares.tolist()) for _ in range(2)]
    return seen, cached.kept


@pytest.mark.timeout(60)
def test_worker_processes_inside_a_rank_share_one_cache():
    values = launch(in_a_rank, 2).values
    for turn in range(2):
        assert sorted(values[0][0][turn] + values[1][0][turn]) == [i * i for i in range(12)]
    assert all(6 <= kept <= 12 for _, kept in values)


def test_a_cache_reads_each_item_once():
    source = Squares(4)
    cached = Cache(source)
    for _ in range(3):
        assert [(x.mean().item(), y.item()) for x, y in (cached[i] for i in range(4))] == [(i, i * i) for i in range(4)]
    assert source.reads == 1 + 4 and cached.kept == len(cached) == 4
    cached[0][0].zero_()
    cached[1][0].zero_()
    assert cached[1][0].mean() == 1  # what is handed out is not what is kept
    with pytest.raises(ValueError, match=r"item 1 has torch.float32 of shape \(2,\) where item 0 has .* shape \(1,\)"):
        Cache([torch.zeros(1), torch.zeros(2)])[1]


def test_too_little_shared_memory_is_said_before_it_crashes(monkeypatch):
    monkeypatch.setattr(cache_module.shutil, "disk_usage", lambda path: SimpleNamespace(free=2000))
    monkeypatch.setattr(cache_module, "SHARED", cache_module.Path("/"))
    with pytest.raises(MemoryError, match="100 items of this data set need 0 MiB of shared memory"):
        Cache(Squares(100))
    with pytest.warns(UserWarning, match="9 workers with 2 batches of 0 MiB do not fit .*: 5 are used"):
        loader = Loader(Squares(100), 4, workers=9)
    assert loader._workers == 5


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"batch": 0}, "batch must be a whole number of at least 1, not 0"),
        ({"batch": 4, "workers": -1}, "workers must be"),
        ({"batch": 4, "prefetch": 0}, "prefetch must be"),
        ({"batch": 4, "sampler": DistributedSampler(9)}, "for 9 images, the data has 10"),
        ({"data": (torch.zeros(3), torch.zeros(4)), "batch": 1}, r"equally long, not \[3, 4\]"),
    ],
)
def test_a_loader_that_cannot_be_is_answered_with_a_sentence(arguments, says):
    with pytest.raises(ValueError, match=says):
        Loader(**{"data": Squares()} | arguments)


def test_normalize_and_its_inverse():
    torch.manual_seed(0)
    images = torch.rand(20, 3, 4, 4) * torch.tensor([1.0, 5.0, 0.0]).reshape(3, 1, 1) + 2
    normalize = Normalize.of(images)
    x = normalize(images)
    assert torch.allclose(x.mean((0, 2, 3)), torch.zeros(3), atol=1e-5)
    assert torch.allclose(x.std((0, 2, 3)), torch.tensor([1.0, 1.0, 0.0]), atol=1e-5)
    assert torch.allclose(normalize.inverse(x), images, atol=1e-5)
    assert normalize(images[:0]).shape == (0, 3, 4, 4)
    assert set(normalize.state_dict()) == {"mean", "deviation"}
    for mean, deviation in (([0.0], [0.0]), ([0.0], [1.0, 2.0]), ([float("nan")], [1.0])):
        with pytest.raises(ValueError):
            Normalize(mean, deviation)


def test_one_hot_and_its_inverse():
    labels = torch.tensor([2, 0, 1, 2])
    rows = OneHot(3)(labels)
    assert rows.tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]] and rows.dtype == torch.float32
    assert torch.equal(OneHot(3).inverse(rows), labels)
    assert OneHot(3)(labels[:0]).shape == (0, 3)
    for bad in (lambda: OneHot(0), lambda: OneHot(3)(torch.tensor([3])), lambda: OneHot(3)(torch.tensor([0.0]))):
        with pytest.raises(ValueError):
            bad()
    with pytest.raises(ValueError, match=r"rows of 3 numbers are expected, not of shape \(2, 4\)"):
        OneHot(3).inverse(torch.zeros(2, 4))
