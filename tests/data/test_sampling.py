import pytest
import torch

from lockstep.data import permutation, shard


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("n", [0, 1, 5, 12, 100])
def test_shards_are_disjoint_cover_and_split_as_torch_does(n, size):
    parts = [shard(n, rank, size) for rank in range(size)]
    assert [i for part in parts for i in part] == list(range(n))
    assert [len(part) for part in parts] == [len(t) for t in torch.arange(n).tensor_split(size)]


@pytest.mark.parametrize(("rank", "size"), [(2, 2), (-1, 2), (0, 0)])
def test_a_rank_that_does_not_exist_has_no_shard(rank, size):
    with pytest.raises(ValueError, match=f"rank {rank} of {size} does not exist"):
        shard(10, rank, size)


def test_a_negative_number_of_images_is_refused():
    with pytest.raises(ValueError, match="-3 images"):
        shard(-3, 0, 1)


def test_permutation_holds_every_number_once_and_is_new_each_epoch():
    first, second = permutation(1000, 7, 0), permutation(1000, 7, 1)
    assert first.sort().values.tolist() == list(range(1000))
    assert not torch.equal(first, second)
    assert torch.equal(first, permutation(1000, 7, 0))
    assert first.dtype == torch.int64


def test_permutation_is_the_same_on_every_machine():
    assert permutation(12, 3, 1).tolist() == [0, 11, 6, 2, 1, 3, 7, 4, 10, 9, 8, 5]


def test_permutation_refuses_a_negative_seed():
    with pytest.raises(ValueError, match="0 or more"):
        permutation(5, -1)
