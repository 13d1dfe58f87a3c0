"""A run of the trainer that stops and goes on has the losses of one that never stopped."""

import shutil
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from lockstep.nn import MODELS
from lockstep.train import compressed, hybrid, train, trainer
from lockstep.train.sharded import zero
from lockstep.world import RankError
from lockstep.world import simulate as simulate_quickly

simulate = partial(simulate_quickly, timeout=60)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Two epochs of three steps; models of few numbers, one of them with all that has to be restored beside weights."""
    load = trainer.load

    def few(name, split, verbose):
        data, count = load(name, split, verbose=verbose), 96 if split == "train" else 50
        return replace(data, images=data.images[:count], labels=data.labels[:count])

    def hard(shape, classes):
        layers = nn.Linear(49, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, classes)
        return nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), *layers)

    def plain(shape, classes):
        return nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(49, 16), nn.ReLU(), nn.Linear(16, classes))

    monkeypatch.setattr(trainer, "load", few)
    monkeypatch.setitem(MODELS, "hard", hard)
    monkeypatch.setitem(MODELS, "plain", plain)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


run = partial(train, epochs=2, lr=0.1, verbose=False)


def stopped_after(step, folder):
    """The folder as a run leaves it that was stopped after that step."""
    for path in folder.glob("step-*"):
        if int(path.name[5:]) > step:
            shutil.rmtree(path)


def same(result, other, **near):
    assert result.losses == pytest.approx(other.losses, **near)
    assert result.accuracies == pytest.approx(other.accuracies, **near)
    for name, value in other.weights.items():
        torch.testing.assert_close(result.weights[name], value, rtol=near.get("rel", 0), atol=near.get("rel", 0))


@pytest.mark.parametrize(
    ("strategy", "every", "stop"),
    [("none", 2, 4), ("naive", 2, 4), ("ddp", None, 3), ("zero1", 2, 4), (zero(2, "bf16"), 1, 5), ("zero3", 2, 4),
     (zero(3, "fp16"), None, 3), ("tensor", 2, 4)],
)  # fmt: skip
def test_what_goes_on_is_bit_for_bit_what_never_stopped(tmp_path, strategy, every, stop):
    """With dropout's generator, batch norm's statistics, momentum and the schedule, amid an epoch and between two."""
    on = (lambda **more: [run(None, strategy, "hard", seed=3, **more)]) if strategy == "none" else (
        lambda **more: simulate(partial(run, strategy=strategy, model="hard", **more), 2, seed=3).values)  # fmt: skip
    undisturbed = on()
    for result, other in zip(on(checkpoint_dir=tmp_path, checkpoint_every=every), undisturbed, strict=True):
        same(result, other, abs=0, rel=0)
    stopped_after(stop, tmp_path)
    again = on(checkpoint_dir=tmp_path, checkpoint_every=every, resume=True)
    for result, other in zip(again, undisturbed, strict=True):
        assert len(result.losses) == 6 and len(result.accuracies) == 2
        same(result, other, abs=0, rel=0)
    finished = on(checkpoint_dir=tmp_path, checkpoint_every=every, resume=True)[0]  # has nothing left to do
    same(finished, undisturbed[0], abs=0, rel=0)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ((3, "zero2"), [(1, "zero3"), (2, "zero1"), (4, "ddp"), (None, "none"), (4, hybrid("data=2,pipeline=2"))]),
        ((4, hybrid("tensor=2,pipeline=2")), [(None, "none"), (2, "split")]),
    ],
)
def test_another_number_of_ranks_or_another_strategy_goes_on(tmp_path, first, then):
    undisturbed = run(None, "none", "plain", seed=0)
    begin = partial(run, strategy=first[1], model="plain", checkpoint_dir=tmp_path, checkpoint_every=1, seed=0)
    simulate(begin, first[0])
    for ranks, strategy in then:
        stopped_after(5, tmp_path)
        on = partial(run, strategy=strategy, model="plain", checkpoint_dir=tmp_path, seed=0, resume=True)
        for result in simulate(on, ranks).values if ranks else [on(None)]:
            same(result, undisturbed, rel=1e-5)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "has checkpoints of an earlier run: go on from the last with resume=True or --resume, or choose another"),
        ({"resume": True, "batch": 16}, "is of a run with batch=32, and this one has 16: only the same run can go on"),
        ({"resume": True, "seed": 1}, "is of a run with seed=0, and this one has 1"),
        ({"resume": True, "epochs": 3}, "is of a run with epochs=2, and this one has 3"),
        ({"resume": True, "model": "hard"}, "the checkpoint is of another model"),
        ({"checkpoint_every": 0}, "checkpoint_every must be a whole number of steps of at least 1, not 0"),
    ],
)
def test_a_run_that_is_another_one_is_refused(tmp_path, arguments, says):
    run(None, "none", "plain", seed=0, checkpoint_dir=tmp_path)
    with pytest.raises(ValueError, match=says):
        run(**{"strategy": "none", "model": "plain", "seed": 0, "checkpoint_dir": tmp_path} | arguments)


def test_what_makes_no_checkpoints_says_so(tmp_path):
    with pytest.raises(ValueError, match="resume needs a checkpoint_dir"):
        run(resume=True)
    with pytest.raises(RankError, match="leaves its ranks apart between steps.*checkpoints are for none, naive, ddp"):
        simulate(partial(run, strategy="async", model="plain", checkpoint_dir=tmp_path), 2)
    with pytest.raises(RankError, match="what a compressor carries from step to step .* is in no checkpoint"):
        simulate(partial(run, strategy=compressed("topk:0.1", True), model="plain", checkpoint_dir=tmp_path), 2)
    with pytest.raises(ValueError, match="precision 'bf16' needs ranks, be it one"):
        run(strategy=zero(1, "bf16"), model="plain")
    with pytest.raises(ValueError, match="there is no precision 'fp8'; there are fp32, bf16, fp16"):
        zero(1, "fp8")
