"""One batch ahead, and what follows from that: order, state, errors, threads."""

import threading

import pytest
import torch

from lockstep.data import DistributedSampler, Loader, prefetch


def loader():
    numbers = torch.arange(20)
    return Loader((numbers, 10 * numbers), 6, DistributedSampler(20, seed=3))


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("prefetch")]


def test_the_next_batch_is_made_while_this_one_is_used_and_never_more():
    made, asked = [], [threading.Event() for _ in range(5)]

    def batches():
        for i in range(5):
            asked[i].set()
            made.append(i)
            yield torch.tensor(i)

    for i, batch in enumerate(prefetch(batches())):
        assert batch.item() == i
        if i < 4:
            assert asked[i + 1].wait(60), "batch i is in use, and the next one is being made"
        assert len(made) <= i + 2
    assert not threads()


def test_a_loader_gives_the_same_batches_and_counts_what_was_handed_out():
    plain, ahead = loader(), loader()
    for (x, y), (a, b) in zip(plain, prefetch(ahead, "cpu"), strict=True):
        assert torch.equal(x, a) and torch.equal(y, b)
        assert plain.state_dict() == ahead.state_dict()
    stopped, again = loader(), loader()
    seen = []
    for x, _ in prefetch(stopped):
        seen += x.tolist()
        if len(seen) == 12:
            break
    again.load_state_dict(stopped.state_dict())
    seen += [one for x, _ in prefetch(again) for one in x.tolist()]
    assert sorted(seen) == list(range(20))


def test_an_error_comes_where_its_batch_would_have_come_and_the_thread_ends():
    def batches():
        yield 1
        yield 2
        raise OSError("the disk is gone")

    seen = []
    with pytest.raises(OSError, match="the disk is gone"):
        for batch in prefetch(batches()):
            seen.append(batch)
    assert seen == [1, 2] and not threads()
    left = prefetch(iter(range(5)))
    assert next(left) == 0
    left.close()
    assert not threads() and list(prefetch([])) == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="copies on a stream of their own need a GPU")
def test_batches_are_on_the_gpu_when_they_are_used():
    for (x, y), (a, b) in zip(loader(), prefetch(loader(), "cuda"), strict=True):
        assert a.is_cuda and torch.equal(x, (a * 1).cpu()) and torch.equal(y, (b * 1).cpu())
