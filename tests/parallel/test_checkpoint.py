"""Checkpoints: loaded by any number of ranks, whole or refused with a sentence, the last good one always there."""

import json
import os
import random
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint
from test_zero import mlp, plain_sgd
from torch import nn
from toy_models import TOYS, adam, samples, sgd

from lockstep.parallel import (
    CheckpointError,
    DistributedDataParallel,
    Replicated,
    SyncBatchNorm2d,
    ZeRO,
    load_checkpoint,
    save_checkpoint,
)
from lockstep.parallel.checkpoint import all_checkpoints, latest_checkpoint
from lockstep.parallel.checkpoint.held import Piece
from lockstep.parallel.checkpoint.storage import write_pieces
from lockstep.parallel.checkpoint.together import on_every_rank
from lockstep.world import launch
from lockstep.world import simulate as simulate_quickly

simulate = partial(simulate_quickly, timeout=60)
TOY_NAMES = ("batch norm over all", "channels last", "tied")


def made(comm, name, stage, precision="fp32", unit_bytes=400):
    """Another start on every rank and in every world, so that what is equal has been loaded."""
    # Adam makes steps of the noise that is the gradient of a bias before batch norm.
    optimizer = sgd if "norm" in name else adam
    model = TOYS[name].build()
    model = model if precision != "fp32" else model.double()
    if TOYS[name].sync_norm:
        SyncBatchNorm2d.convert(model, comm)
    if stage == 0:
        ddp = DistributedDataParallel(model, comm)
        return ddp, Replicated(model, optimizer([p for p in model.parameters() if p.requires_grad]), comm)
    zero = ZeRO(model, optimizer, comm, stage, unit_bytes, precision)
    return zero, zero


def go_on(comm, model, training, first, last):
    """Steps `first` to `last`, each rank with its part of twelve images, and the losses of all of them."""
    losses = []
    for step in range(first, last):
        images, labels = samples(step, 12)
        mine = slice(comm.rank * 12 // comm.size, (comm.rank + 1) * 12 // comm.size)
        dtype = torch.float64 if next(model.module.parameters()).dtype is torch.float64 else torch.float32
        loss = nn.functional.cross_entropy(model(images[mine].to(dtype)), labels[mine], reduction="sum") / 12
        (loss * comm.size).backward()
        if isinstance(training, ZeRO):
            training.step()
        else:
            training.optimizer.step()
            training.optimizer.zero_grad()
        losses.append(comm.all_reduce(loss.detach().double()).item())
    return losses


def state_of(training):
    if isinstance(training, ZeRO):
        return training.full_state_dict()
    return {name: value.detach().clone() for name, value in training.model.state_dict().items()}


def save(comm, folder, cases):
    """By case (name, stage, precision): (state when saved, losses afterwards, last state)."""
    found = {}
    for case in cases:
        model, training = made(comm, *case)
        go_on(comm, model, training, 0, 2)
        at = save_checkpoint(
            folder / "-".join(map(str, case)), training, 2, {"lr": [0.1]}, {"mine": torch.tensor(comm.rank)}
        )
        assert at.name == "step-000000002"
        found[case] = state_of(training), go_on(comm, model, training, 2, 4), state_of(training)
    return found


def load(comm, folder, cases, stage_for):
    found = {}
    for case in cases:
        name, stage, precision = case
        model, training = made(comm, name, stage_for(stage), precision, unit_bytes=700)
        at = load_checkpoint(folder / "-".join(map(str, case)), training)
        start = state_of(training)
        found[case] = start, go_on(comm, model, training, at.step, 4), state_of(training), at.extra, at.of_rank
    return found


EXACT = [(name, 1 + i % 3, "fp32") for i, name in enumerate(TOY_NAMES)]
LOW = [("tied", 3, "bf16"), ("frozen", 2, "fp16")]


@pytest.mark.parametrize(("saved_by", "loaded_by"), [((simulate, 4), [1, 2, 3, 4]), ((launch, 2), [3])])
def test_any_number_of_ranks_goes_on_from_where_four_were(tmp_path, saved_by, loaded_by):
    """A checkpoint of shards that loads at the same number of ranks only is fault 19."""
    world, ranks = saved_by
    cases = EXACT + LOW if world is simulate else EXACT[1:2]
    saved = world(save, ranks, tmp_path, cases).values[0]
    for p in loaded_by:
        # At three, stages load each other's: 1 becomes 2, 2 becomes 3, 3 becomes data parallelism without shards.
        stage_for = (lambda s: (s + 1) % 4) if p == 3 else (lambda s: s)
        ranks_values = simulate(load, p, tmp_path, cases if p < ranks else cases[:1], stage_for, seed=p).values
        for rank, values in enumerate(ranks_values):
            for case, (start, losses, end, extra, of_rank) in values.items():
                (start_then, losses_then, end_then), name = saved[case], f"{case} at {p}"
                assert extra == {"lr": [0.1]} and of_rank == ({"mine": torch.tensor([rank])} if p == ranks else {})
                assert all(torch.equal(start[key], start_then[key]) for key in start_then), name
                # Sums of unlike parts of a batch differ in their last digits, and those of two bytes have few.
                close = 1e-12 if case[2] == "fp32" else 3e-2
                assert losses == pytest.approx(losses_then, rel=close), name
                for key in end_then:
                    torch.testing.assert_close(end[key], end_then[key], rtol=close, atol=close, msg=f"{name} {key}")


def saved_alone(folder, steps=(1,), build=mlp, optimizer=plain_sgd, keep=2):
    model = build()
    training = Replicated(model, optimizer(model.parameters()))
    for step in steps:
        training.optimizer.zero_grad()
        model(torch.ones(2, 31)).sum().backward()
        training.optimizer.step()
        save_checkpoint(folder, training, step, {"step": step}, keep=keep)
    return training


def test_a_save_that_was_broken_off_leaves_the_last_one_and_is_swept_up(tmp_path, monkeypatch):
    training = saved_alone(tmp_path, steps=(1, 2))
    whole = {name: value.clone() for name, value in training.model.state_dict().items()}
    with monkeypatch.context() as patched:  # killed with everything written, and the new name not given
        patched.setattr("pathlib.Path.rename", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        nn.init.zeros_(training.model[0].weight)
        with pytest.raises(KeyboardInterrupt):
            save_checkpoint(tmp_path, training, 3)
    assert [path.name for path in all_checkpoints(tmp_path)] == ["step-000000001", "step-000000002"]
    assert (tmp_path / ".step-000000003.partial").is_dir()
    at = load_checkpoint(tmp_path, training)
    assert (at.step, at.extra, at.ranks) == (2, {"step": 2}, 1)
    assert all(torch.equal(value, whole[name]) for name, value in training.model.state_dict().items())
    save_checkpoint(tmp_path, training, 3, keep=1)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000003"]


def torn(path):
    file = path / "__0_0.distcp"
    file.write_bytes(file.read_bytes()[:-100])


def flipped(path):
    file = path / "__0_0.distcp"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def other_format(path):
    (path / "lockstep.json").write_text(json.dumps({"format": 7}))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (
            torn,
            r"step-000000002 is torn: its file __0_0.distcp has [\d,]+ bytes, where [\d,]+ were written. The one before",
        ),
        (flipped, "has other bytes than were written. The one before it is .*step-000000001: load that"),
        (lambda path: (path / ".metadata").unlink(), "its file .metadata is gone. The one before it is"),
        (lambda path: (path / "lockstep.json").write_text("{"), "lockstep.json is torn"),
        (lambda path: (path / "lockstep.json").unlink(), "no checkpoint of lockstep, or parts are gone"),
        (other_format, "is of format 7; this version of lockstep reads format 1"),
    ],
)
def test_a_torn_checkpoint_is_refused_and_the_one_before_it_can_be_loaded(tmp_path, damage, says):
    saved_alone(tmp_path, steps=(1, 2))
    damage(latest_checkpoint(tmp_path))

    def program(comm):
        zero = ZeRO(mlp(), plain_sgd, comm, 3, 3000)
        before = zero.full_state_dict()
        try:
            load_checkpoint(tmp_path, zero)
        except CheckpointError as error:
            untouched = all(torch.equal(value, before[name]) for name, value in zero.full_state_dict().items())
            return str(error), untouched, load_checkpoint(tmp_path / "step-000000001", zero).step

    (said, untouched, step), other = simulate(program, 2).values
    assert untouched and step == 1 and other[0] == said
    with pytest.raises(CheckpointError, match=says):
        raise CheckpointError(said)


@pytest.mark.parametrize(
    ("build", "optimizer", "says"),
    [
        (lambda: mlp()[:5], plain_sgd, "its trained parameter 5.weight does not exist here"),
        (lambda: mlp().append(nn.Linear(31, 1)), plain_sgd, "the trained parameter 6.weight does not exist there"),
        (lambda: mlp().append(nn.BatchNorm1d(31, affine=False)), plain_sgd, "buffer or frozen .* 6.running_mean does not"),
        (lambda: nn.Sequential(*(nn.Linear(31, 30) for _ in range(6))), plain_sgd,
         r"trained parameter 0.weight has shape \(31, 31\), and here \(30, 31\)"),
        (lambda: mlp().double(), plain_sgd, "has dtype float32, and here float64"),
        (mlp, torch.optim.Adam, "of a run with SGD, and here the optimizer is Adam"),
        (mlp, lambda parameters: torch.optim.SGD([{"params": [p]} for p in parameters], lr=1), "has 1 groups .* has 12"),
    ],
)  # fmt: skip
def test_what_belongs_to_another_model_is_refused_by_name(tmp_path, build, optimizer, says):
    saved_alone(tmp_path)
    model = build()
    with pytest.raises(CheckpointError, match=says):
        load_checkpoint(tmp_path, Replicated(model, optimizer(model.parameters())))


def test_what_cannot_be_saved_is_a_sentence(tmp_path):
    training = saved_alone(tmp_path, steps=(5,))
    with pytest.raises(CheckpointError, match="has step-000000005 already, and this one is of step 4"):
        save_checkpoint(tmp_path, training, 4)
    with pytest.raises(CheckpointError, match="there is no checkpoint in .*nowhere"):
        load_checkpoint(tmp_path / "nowhere", training)
    with pytest.raises(CheckpointError, match="a Sequential cannot be checkpointed: give a ZeRO, or Replicated"):
        save_checkpoint(tmp_path, training.model, 6)
    with pytest.raises(CheckpointError, match="not JSON's"):
        save_checkpoint(tmp_path, training, 6, {"loss": torch.tensor(1.0)})
    with pytest.raises(ValueError, match="step is -1"):
        save_checkpoint(tmp_path, training, -1)
    lbfgs = Replicated(training.model, torch.optim.LBFGS(training.model.parameters()))
    lbfgs.optimizer.step(lambda: training.model(torch.ones(1, 31)).sum() * 0)
    with pytest.raises(CheckpointError, match="LBFGS keeps .* only what it keeps for each element"):
        save_checkpoint(tmp_path, lbfgs, 6)
    assert [path.name for path in all_checkpoints(tmp_path)] == ["step-000000005"]


def test_what_fails_on_one_rank_fails_on_all():
    """Or the others would wait for it in their next collective."""

    def program(comm):
        def work():
            if comm.rank == 1:
                raise OSError("No space left on device")

        try:
            on_every_rank(comm, work)
        except CheckpointError as error:
            return str(error)

    assert simulate(program, 3).values == ["rank 1: OSError: No space left on device"] * 3


def test_machines_without_a_common_folder_are_told_so(tmp_path):
    """Each would have its own files in a folder of the same name, and none the whole."""

    def program(comm):
        try:
            write_pieces(comm, tmp_path / f"machine{comm.rank}", [Piece("row", torch.ones(2), 2 * comm.rank, 4)])
        except CheckpointError as error:
            return str(error)

    said = simulate(program, 2).values
    assert "rank 0: __1_0.distcp, which another rank wrote to" in said[0] and said[1] == said[0]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_torchs_own_tools_can_read_it(tmp_path):
    training = saved_alone(tmp_path, optimizer=partial(torch.optim.Adam, lr=0.1))
    state = {"parameter/3.weight": torch.empty(31 * 31), "optimizer/exp_avg/3.weight": torch.empty(31 * 31)}
    torch.distributed.checkpoint.load(state, checkpoint_id=tmp_path / "step-000000001", no_dist=True)
    weight = training.model[3].weight
    assert torch.equal(state["parameter/3.weight"].view(31, 31), weight)
    assert torch.equal(state["optimizer/exp_avg/3.weight"].view(31, 31), training.optimizer.state[weight]["exp_avg"])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="ranks are forked")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_rank_that_is_killed_during_a_save_leaves_a_whole_checkpoint(tmp_path, monkeypatch):
    """Two of the kills of bench/checkpoint_kill.py: one while ranks write, one when the save has, as a rule, ended."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "bench")
    import checkpoint_kill

    moments = iter([0.02, 0.3])
    monkeypatch.setattr(random.Random, "uniform", lambda *_: next(moments))
    assert sum(checkpoint_kill.kill_again_and_again(tmp_path, 2, 2, 2, random.Random(1)).values()) == 2
