"""The trainer: exactly the big batch whatever the ranks, and a sentence for whatever cannot be trained."""

import json
import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from torch import nn

from lockstep.data import shard
from lockstep.nn import LeNet
from lockstep.train import (
    STRATEGIES,
    averaged_by,
    compressed,
    hybrid,
    parameter_server,
    pipeline,
    train,
    trainer,
    wrapped_by,
)
from lockstep.train.command import main
from lockstep.train.step import Apart
from lockstep.train.trainer import evaluate
from lockstep.world import RankError, launch
from lockstep.world import simulate as simulate_quickly
from lockstep.world.child import run_child

simulate = partial(simulate_quickly, timeout=60)  # real seconds, for machines that do much else
STEPS = (7, 7, 5, 2)  # images in each whole batch: not divisible, and at last fewer than ranks


@pytest.fixture(autouse=True)
def one_thread():
    """More threads than free cores wait for each other: these tests took twenty times as long on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def few_images(monkeypatch):
    """Four steps instead of twenty, where each must be right and none has to learn."""
    monkeypatch.setattr(trainer, "FAST_IMAGES", 128)


class Toy(nn.Module):
    """All that goes wrong in data parallelism: tied, frozen, unused and rarely used parameters, and a buffer."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.mix = nn.Linear(36, 36)
        self.again = nn.Linear(36, 36, bias=False)
        self.again.weight = self.mix.weight
        self.frozen = nn.Linear(36, 36).requires_grad_(False)
        self.unused = nn.Linear(3, 3)
        self.rare = nn.Linear(36, 3)
        self.out = nn.Linear(36, 3)
        self.register_buffer("scale", torch.rand(36) + 0.5)

    def forward(self, x):
        h = self.again(torch.tanh(self.mix(self.conv(x).flatten(1)))) + self.frozen(x.flatten(1).repeat(1, 4))
        logits = self.out(torch.tanh(h * self.scale))
        rarely = x[:, 0, 0, 0] > 1  # a few images only: on most ranks this head has no gradient
        if rarely.any():
            logits = logits.index_add(0, rarely.nonzero()[:, 0], self.rare(h[rarely]))
        return logits


def mean_of_gradients(model, comm, samples):
    """What a student may write for lab 05."""
    total = comm.all_reduce(torch.tensor(samples))
    for parameter in model.parameters():
        used = parameter.grad is not None
        if comm.all_reduce(torch.tensor(int(used))):
            gradient = parameter.grad * samples / total if used else torch.zeros_like(parameter)
            parameter.grad = comm.all_reduce(gradient)


class Overlapped:
    """Another: starts a reduction from a hook as soon as a gradient is there; all ranks' gradients must come."""

    def __init__(self, model, comm, bucket_bytes):
        self.comm, self.started = comm, []
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(self.start)

    def start(self, parameter):
        self.started.append((parameter, self.comm.all_reduce(parameter.grad.clone(), "mean", async_op=True)))

    def finish(self):
        for parameter, handle in self.started:
            parameter.grad = handle.wait()
        self.started = []


EXACT = {
    "naive": STRATEGIES["naive"],
    "ddp": STRATEGIES["ddp"],
    "central": STRATEGIES["central"],
    "synchronous server": parameter_server(staleness=0),
    "a student's function": averaged_by(mean_of_gradients),
}


def toy_program(comm, strategy, state=None):
    """Train the toy; the state before, after, and the losses."""
    torch.set_default_dtype(torch.float64)
    toy = Toy()
    if state is not None:
        toy.load_state_dict(state)
    before = {name: value.clone() for name, value in toy.state_dict().items()}
    optimizer = torch.optim.SGD(toy.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    step = EXACT[strategy](comm, toy, optimizer)
    generator = torch.Generator().manual_seed(5)
    losses = []
    for count in STEPS:
        x, y = torch.randn(count, 1, 3, 3, generator=generator), torch.randint(3, (count,), generator=generator)
        part = range(count) if comm is None else shard(count, comm.rank, comm.size)
        losses.append(step(x[part.start : part.stop], y[part.start : part.stop], count))
    return before, toy.state_dict(), step.settle() if isinstance(step, Apart) else losses


def all_exact(comm):
    return [toy_program(comm, strategy) for strategy in EXACT]


def toy_oracle(state):
    """The same steps in one process on the whole batches, without our code."""
    torch.set_default_dtype(torch.float64)
    try:
        toy = Toy()
        toy.load_state_dict(state)
        optimizer = torch.optim.SGD(toy.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
        generator = torch.Generator().manual_seed(5)
        losses = []
        for count in STEPS:
            x, y = torch.randn(count, 1, 3, 3, generator=generator), torch.randint(3, (count,), generator=generator)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(toy(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return toy.state_dict(), losses
    finally:
        torch.set_default_dtype(torch.float32)


def same_state(one, other):
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=0, atol=1e-12, msg=name)


def check_exact(values):
    for strategy, results in zip(EXACT, zip(*values, strict=True), strict=True):
        befores = [before for before, _, _ in results]
        assert all(not torch.equal(befores[0]["out.weight"], other["out.weight"]) for other in befores[1:])
        expected, losses = toy_oracle(befores[0])
        for _, after, its_losses in results:
            same_state(after, expected)
            assert its_losses == pytest.approx(losses, abs=1e-12), strategy


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_every_exact_strategy_equals_the_whole_batch_in_one_process(world):
    check_exact(simulate(all_exact, world).values)


@pytest.mark.parametrize("strategy", ["zero1", "zero3"])
def test_sharded_training_goes_as_in_one_process(strategy, few_images):
    alone = train(fast=True, seed=4)
    for result in simulate(train, 2, strategy=strategy, fast=True, seed=4).values:
        assert result.losses == pytest.approx(alone.losses, rel=1e-4)
        assert result.accuracy == pytest.approx(alone.accuracy, abs=0.01)


def test_compressed_gradients_are_fewer_bytes_and_replicas_stay_equal(few_images):
    dense, sparse = (
        simulate(train, 2, strategy=strategy, fast=True, seed=4)
        for strategy in ("ddp", compressed("topk:0.01", feedback=True))
    )
    bytes_sent = [sum(message.bytes for message in run.trace.messages) for run in (dense, sparse)]
    weights = [result.weights for result in sparse.values]
    start = sum(weight.nbytes for weight in weights[0].values())  # rank 0's weights are copied to rank 1 once
    assert bytes_sent[1] - start < 0.1 * (bytes_sent[0] - start)
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert sparse.values[0].strategy == "ddp(compress='topk:0.01', feedback=True)"


ON_MESHES = [(2, "split"), (3, "tensor"), (4, hybrid("data=2,pipeline=2", "zero_bubble", micro_batches=5))]


def test_a_model_cut_over_a_mesh_trains_as_in_one_process(monkeypatch):
    """97 images in batches of 48 leave one image at the end: micro-batches and data ranks without any."""
    monkeypatch.setattr(trainer, "FAST_IMAGES", 97)
    alone = in_double(None, "none")
    for ranks, strategy in ON_MESHES:
        for result in simulate(in_double, ranks, strategy, seed=2).values:
            assert result.losses == pytest.approx(alone.losses, abs=1e-12) and len(alone.losses) == 3
            assert result.accuracy == alone.accuracy
            same_state(result.weights, alone.weights)


def in_double(comm, strategy):
    torch.set_default_dtype(torch.float64)
    try:
        return train(comm, strategy, fast=True, batch=48, seed=2)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    ("ranks", "arguments", "says"),
    [
        (3, {"strategy": hybrid("data=2,pipeline=2")}, "the mesh data=2,pipeline=2 has 4 ranks, and there are 3"),
        (2, {"strategy": "hybrid"}, "strategy 'hybrid' needs a mesh, such as"),
        (6, {"strategy": "pipeline"}, "1F1B on 6 ranks needs 6 stages, and LeNet can be cut into 5 at most"),
        (2, {"strategy": pipeline("dualpipev", 3)}, "at least 4"),
        (2, {"strategy": pipeline(micro_batches=8), "batch": 7}, "batch=7 is shared out to 1 data ranks with 8 micro-"),
    ],
)
def test_a_mesh_that_does_not_fit_is_answered_with_a_sentence(ranks, arguments, says):
    with pytest.raises(ValueError, match="has an axis 'modle': there are data, pipeline, tensor"):
        hybrid({"modle": 2})
    with pytest.raises(RankError, match=says):
        simulate(partial(train, fast=True, **arguments), ranks)


def in_processes(comm):
    """Everything that needs real ranks, in one launch."""
    seeded = train(comm, "ddp", fast=True)
    usual, trainer.FAST_IMAGES = trainer.FAST_IMAGES, 1280
    served = [train(comm, strategy, fast=True, batch=10, lr=0.05, seed=1) for strategy in ("async", "ssp")]
    trainer.FAST_IMAGES = usual
    torch.manual_seed(comm.rank)
    return seeded.losses, served, all_exact(comm)


@pytest.mark.stalls
def test_in_real_processes():
    values = launch(in_processes, 2, seed=1).values
    check_exact([exact for _, _, exact in values])
    for name, first, second in zip(("async", "ssp"), *[served for _, served, _ in values], strict=True):
        assert first.strategy == name and first.losses == second.losses and len(first.losses) == 128
        assert first.accuracies == second.accuracies
        same_state(first.weights, second.weights)
        # How soon it learns depends on how late gradients come, and so on the machine: of 64 steps 8 % were once all.
        assert sum(first.losses[-5:]) < 0.9 * sum(first.losses[:5])
    # launch decides the seed, unless the caller does
    assert values[0][0] == values[1][0] == pytest.approx(train(fast=True, seed=1).losses, rel=1e-4)
    assert values[0][0] != pytest.approx(train(fast=True, seed=2).losses, rel=1e-4)


def test_a_students_wrapper_trains_in_place_of_the_librarys():
    """640 images in batches of 213 leave one image for four ranks: three of them have none, and none may hang."""
    results = simulate(partial(train, strategy=wrapped_by(Overlapped), fast=True, batch=213), 4, seed=2).values
    alone = train(fast=True, batch=213, seed=2).losses
    assert results[0].strategy == "wrapped_by(Overlapped)" and len(alone) == 4
    for result in results:
        assert result.losses == pytest.approx(alone, rel=1e-5)
    with pytest.raises(ValueError, match=r"averaged_by\(mean_of_gradients\) trains on ranks: launch"):
        train(strategy=averaged_by(mean_of_gradients), fast=True)


def test_naive_sends_one_all_reduce_for_each_gradient_and_one_for_the_report(few_images):
    """LeNet has ten parameters, and the last 16 bytes count answers. A ring of two sends each byte once."""
    run = simulate(partial(train, strategy="naive", fast=True), 2)
    sent = [message.bytes for message in run.trace.messages if message.src == 0]
    start = 61706 * 4 + 8  # rank 0's parameters, and the seed of the order
    assert sum(sent) == start + 4 * (61706 * 4 + 11 * 8) + 16
    assert len(sent) == 2 + 4 * 11 * 2 + 2


def test_a_run_of_train_is_the_same_in_one_process_and_on_ranks(few_images):
    torch.set_default_dtype(torch.float64)
    try:
        alone = train(fast=True, seed=3)
    finally:
        torch.set_default_dtype(torch.float32)

    def in_double(comm):
        torch.set_default_dtype(torch.float64)
        return train(comm, "ddp", fast=True)

    shared = simulate(in_double, 3, seed=3).values
    assert len(alone.losses) == 4
    for result in shared:
        assert result.losses == pytest.approx(alone.losses, abs=1e-9)
        assert result.accuracy == alone.accuracy
        same_state(result.weights, alone.weights)


def test_result_says_what_was_done_and_the_weights_can_be_loaded(capsys):
    result = train(fast=True, seed=0)
    assert "mnist5k, split train: 4,000 images" in capsys.readouterr().out
    assert (result.images, len(result.losses), len(result.accuracies)) == (640, 20, 1)
    assert result.images_per_second == pytest.approx(640 / result.seconds)
    assert 0.05 < result.accuracy < 1 and "20 steps of 32 images" in repr(result)
    net = LeNet()
    net.load_state_dict(result.weights)


def test_training_leaves_the_callers_random_numbers_alone(few_images):
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    train(fast=True)
    assert torch.equal(torch.rand(3), expected)


def test_the_loss_falls_and_another_data_set_works():
    result = train(data="shapes32", fast=True, batch=32)
    assert sum(result.losses[-5:]) < sum(result.losses[:5])


class Marks(nn.Module):
    """Right for labels below `limit`, a buffer that differs by rank."""

    def __init__(self, limit):
        super().__init__()
        self.register_buffer("limit", torch.tensor(limit))

    def forward(self, x):
        labels = x[:, 0, 0, 0].long()
        return nn.functional.one_hot(torch.where(labels < self.limit, labels, (labels + 1) % 10), 10).float()


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_held_out_accuracy_counts_every_image_once_with_rank_0s_buffers(world):
    """Averaging the ranks' shares would be wrong for uneven shards, and each rank's own buffers are not the model's."""

    def program(comm):
        labels = torch.arange(10).repeat(5)[:47]
        return evaluate(comm, Marks(7 if comm.rank == 0 else 2), labels.float().reshape(-1, 1, 1, 1), labels)

    right = sum(label < 7 for label in torch.arange(10).repeat(5)[:47].tolist())
    assert simulate(program, world).values == [right / 47] * world


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            {"strategy": "dpp"},
            "no strategy 'dpp'; there are none, naive, ddp, central, async, ssp, zero1, zero2, zero3, split, tensor, "
            "pipeline, hybrid",
        ),
        ({"model": "resnet"}, "no model 'resnet'; there are lenet"),
        ({"data": "mnist"}, "no data set 'mnist'; there are mnist5k"),
        ({"data": "digits"}, "at least 12x12 pixels; these are 8x8"),
        ({"epochs": 0}, "epochs must be a whole number of at least 1, not 0"),
        ({"epochs": 1.5}, "not 1.5"),
        ({"batch": -4}, "batch must be a whole number of at least 1, not -4"),
        ({"batch": 4001}, "batch=4001 is more than the 4000 images"),
        ({"lr": 0}, "lr, the learning rate, must be a number above 0, not 0"),
        ({"lr": float("nan")}, "not nan"),
        ({"lr": "fast"}, "not 'fast'"),
        ({"seed": -1}, "seed must be an integer of at least 0, not -1"),
    ],
)
def test_an_argument_that_cannot_be_is_answered_with_a_sentence(arguments, says):
    with pytest.raises(ValueError, match=says):
        train(**arguments)


def test_more_ranks_than_images_in_a_batch():
    with pytest.raises(RankError, match="batch=2 leaves some of the 3 ranks without an image; choose at least 3"):
        simulate(partial(train, strategy="naive", batch=2), 3)


def test_one_process_strategy_on_two_ranks():
    with pytest.raises(RankError, match="strategy 'none' trains in one process, but there are 2 ranks; try 'ddp'"):
        simulate(partial(train, fast=True), 2)


def test_a_diverged_loss_stops_every_rank_with_a_sentence():
    with pytest.raises(FloatingPointError, match=r"the loss is (nan|inf).*at lr=1e\+20; try 1e\+19"):
        train(lr=1e20, fast=True)
    with pytest.raises(RankError, match="training has diverged"):
        simulate(partial(train, strategy="naive", lr=1e20, fast=True), 2)


UNDER_TORCHRUN = """
import contextlib, shutil, sys
from lockstep.train import command, trainer

trainer.FAST_IMAGES = 192  # six steps
folder = sys.argv[1]
with command._ranks_of_torchrun() as comm:  # opened once: starting the processes for each run takes seconds
    command._ranks_of_torchrun = lambda: contextlib.nullcontext(comm)
    for name, *more in (
        ["pipeline"],
        ["ddp", "--checkpoint-dir", f"{folder}/at", "--checkpoint-every", "4"],
        ["zero3", "--checkpoint-dir", f"{folder}/at", "--resume"],
        ["ddp", "--compress", "topk:0.1", "--feedback"],
    ):
        if name == "zero3" and comm.rank == 0:  # as if ddp had been stopped after step 4
            shutil.rmtree(f"{folder}/at/step-000000006")
        comm.barrier()
        file = f"{folder}/{name}{'_compressed' * ('--compress' in more)}.json"
        sys.argv[1:] = ["--strategy", name, *more, "--fast", "--seed", "4", "--json", file]
        with contextlib.suppress(SystemExit):
            command.main()
"""


@pytest.mark.timeout(300)
def test_under_torchrun_on_two_nodes_ranks_equal_one_process(tmp_path, capsys, monkeypatch):
    """Two agents as on two machines: they find each other, one trains, stops, another goes on, and both end."""

    def agent(script, port):  # in a fork of a process that has imported torch, which takes five seconds
        from torch.distributed.run import main as torchrun

        os.environ |= {"CI": "1", "OMP_NUM_THREADS": "1"}
        place = [f"--rdzv-endpoint=127.0.0.1:{port}", "--local-addr=127.0.0.1", "--rdzv-backend=c10d"]
        torchrun(["--nnodes=2", "--nproc-per-node=1", *place, str(script), str(script.parent)])

    script = tmp_path / "all.py"
    script.write_text(UNDER_TORCHRUN)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with ThreadPoolExecutor() as both:
        list(both.map(lambda _: run_child(agent, script, port, timeout=250), range(2)))
    output = capsys.readouterr().out
    assert output.count("held-out images right") == 4, output
    monkeypatch.setattr(trainer, "FAST_IMAGES", 192)
    alone = train(fast=True, seed=4)
    for name in ("pipeline", "ddp", "zero3"):
        two = json.loads((tmp_path / f"{name}.json").read_text())
        assert (two["ranks"], two["strategy"]) == (2, name) and "weights" not in two
        assert two["losses"] == pytest.approx(alone.losses, rel=1e-4), name
    compressed_losses = json.loads((tmp_path / "ddp_compressed.json").read_text())["losses"]
    assert compressed_losses == pytest.approx(alone.losses, rel=1e-2)
    assert compressed_losses != pytest.approx(alone.losses, rel=1e-4)


@pytest.fixture
def command(monkeypatch, capsys):
    """`python -m lockstep.train` with the given arguments; its exit status, output and errors."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["lockstep.train", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capsys.readouterr()

    return run


def test_command_trains_and_writes_what_it_found(command, tmp_path):
    status, output, _ = command("--fast", "--threads", "1", "--json", str(tmp_path / "one.json"))
    assert status == 0 and output.count("\n") == 2
    found = json.loads((tmp_path / "one.json").read_text())
    assert (found["strategy"], found["batch"], found["seed"], found["threads"]) == ("none", 32, 0, 1)
    assert found["accuracy"] == found["accuracies"][-1] and len(found["losses"]) == 20


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--strategy", "dpp"],
            "Error: there is no strategy 'dpp'; there are none, naive, ddp, central, async, ssp, zero1, zero2, zero3, "
            "split, tensor, pipeline, hybrid\n",
        ),
        (
            ["--strategy", "ddp", "--schedule", "gpipe"],
            "Error: strategy 'ddp' has no --schedule; it is for pipeline, hybrid\n",
        ),
        (
            ["--strategy", "pipeline", "--mesh", "data=2"],
            "Error: strategy 'pipeline' has no --mesh; it is for hybrid\n",
        ),
        (
            ["--strategy", "pipeline", "--schedule", "1f2b"],
            "Error: there is no schedule '1f2b'; there are naive, gpipe",
        ),
        (
            ["--strategy", "pipeline", "--micro-batches", "0"],
            "Error: micro_batches must be a whole number of at least 1",
        ),
        (["--strategy", "hybrid", "--mesh", "data=2,modle=2"], "Error: the mesh 'data=2,modle=2' has 'modle=2': write"),
        (
            ["--strategy", "ddp", "--precision", "bf16"],
            "Error: strategy 'ddp' has no --precision; it is for zero1, zero2",
        ),
        (
            ["--strategy", "zero1", "--compress", "topk:0.01"],
            "Error: strategy 'zero1' has no --compress; it is for ddp\n",
        ),
        (["--strategy", "ddp", "--compress", "top:1"], "Error: there is no compressor 'top'; there are int8, qsgd"),
        (["--strategy", "ddp", "--compress", "topk:2"], "Error: fraction is 2.0: it is a share of the elements"),
        (["--strategy", "ddp", "--compress", "topk:x"], "Error: 'topk:x': fraction is a number, such as topk:0.01\n"),
        (["--strategy", "ddp", "--feedback"], "Error: feedback is of a compressor: name one too, such as --compress"),
        (["--resume"], "Error: resume needs a checkpoint_dir"),
        (["--threads", "0"], "Error: --threads 0: a rank needs at least 1\n"),
        (["--data", "cifar10"], "Error on rank 0: cifar10 is neither in "),
        (["--json", "nowhere/x.json"], "Error: --json nowhere/x.json: there is no folder "),
    ],
)
def test_command_answers_with_a_sentence_before_it_trains(command, monkeypatch, tmp_path, arguments, says):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOCKSTEP_DATA", str(tmp_path))
    status, output, errors = command(*arguments)
    assert status == 2 and output == "" and errors.startswith(says)


def test_under_torchrun_only_rank_0_says_what_is_wrong_for_all(command, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    assert command("--threads", "0") == (2, "", "")
