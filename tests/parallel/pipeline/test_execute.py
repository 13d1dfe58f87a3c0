"""Every schedule on real and simulated ranks gives the gradients of one process."""

import random

import pytest
import torch
from staged_models import alone, batch, corrupted, gradients, resnet, skips
from torch.nn import functional as F

from lockstep.hardware import Link
from lockstep.parallel.pipeline import (
    DeferredBatchNorm2d,
    InvalidSchedule,
    Pipeline,
    Schedule,
    dualpipev,
    fuse_backward,
    gpipe,
    interleaved,
    looped_bfs,
    naive,
    one_f_one_b,
    pipedream,
    zbv,
    zero_bubble,
)
from lockstep.world import RankError, launch, simulate

NETS = {"resnet": resnet, "skips": skips}


def schedules(p):
    """With different numbers of micro-batches; name, schedule, settings of the pipeline."""
    return [
        (naive(p, 2), {}),
        (gpipe(p, 3), {"checkpoint": True}),
        (interleaved(p, p, 2), {}),
        (one_f_one_b(p, 4), {}),
        (dualpipev(p, 2 * p), {}),
        (interleaved(p, p, 2), {"ordered": True}),
        (zbv(p, 4), {}),
        (looped_bfs(p, 2, 2), {}),
        (zero_bubble(p, 3, 2), {"checkpoint": True}),
        (zero_bubble(p, 4), {}),
        (fuse_backward(zero_bubble(p, 4), 8, 12, 7, 6), {}),
    ]


def cases(p):
    """Every schedule with the ResNet, every other one with skips as well."""
    for number, (schedule, settings) in enumerate(schedules(p)):
        for net in ("resnet", "skips")[: 1 + number % 2]:
            yield (number, net), NETS[net](schedule.chunks), schedule, settings


def run_all(comm, some):
    """Per case: this rank's (loss, {chunk: gradients}, {chunk: buffers}) after two steps on one batch."""
    found = {}
    for case, stages, schedule, settings in list(cases(comm.size))[some]:
        mine = [c for c, rank in schedule.placement.items() if rank == comm.rank]
        stages = [stage if c in mine else None for c, stage in enumerate(stages)]
        pipeline = Pipeline(stages, comm, schedule, F.cross_entropy, **settings)
        images, labels = batch(11)
        pipeline.step(images, labels)
        loss = pipeline.step(images if 0 in mine else None, labels if schedule.chunks - 1 in mine else None)
        buffers = {c: [b.clone() for b in stages[c].buffers()] for c in mine}
        found[case] = loss, {c: gradients(stages[c]) for c in mine}, buffers
    return found


def judge(values, p, some):
    for case, stages, schedule, settings in list(cases(p))[some]:
        results = [value[case] for value in values]
        loss, grads, buffers = alone(stages, *batch(11), schedule.micro_batches, steps=2)
        what = f"{schedule.name}, {case}, {p} ranks, {settings}"
        last = schedule.placement[schedule.chunks - 1]
        assert [rank for rank, result in enumerate(results) if result[0] is not None] == [last], what
        assert results[last][0].item() == pytest.approx(loss, rel=1e-10), what
        mine = []
        for at in (1, 2):
            by_chunk = {c: kept for result in results for c, kept in result[at].items()}
            mine += [each for c in range(schedule.chunks) for each in by_chunk[c]]
        for one, other in zip(mine, grads + buffers, strict=True):
            assert (one is None) == (other is None), what
            assert one is None or torch.allclose(one, other, rtol=1e-9, atol=1e-12), what


# All of them on three processes; on other numbers of ranks every third, beginning with another one each time.
@pytest.mark.parametrize(
    ("world", "p", "some"),
    [
        (launch, 3, slice(None)),
        (launch, 2, slice(0, None, 3)),
        (launch, 4, slice(1, None, 3)),
        (simulate, 1, slice(0, None, 4)),
        (simulate, 4, slice(2, None, 3)),
    ],
    ids=lambda value: getattr(
        value, "__name__", value if isinstance(value, int) else f"from {getattr(value, 'start', None)}"
    ),
)
def test_ranks_find_the_gradients_of_one(world, p, some):
    judge(world(run_all, p, some, timeout=60).values, p, some)


def sized(comm, micro_batches, sizes):
    """(loss, gradients, buffers) of this rank's chunk, whose batch norm collects, with micro-batches of those sizes."""
    stages = [DeferredBatchNorm2d.convert(stage) for stage in resnet(2)]
    images, labels = batch(5)
    loss = Pipeline(stages, comm, gpipe(2, micro_batches), F.cross_entropy).step(images, labels, sizes)
    return loss, gradients(stages[comm.rank]), list(stages[comm.rank].buffers())


def test_a_micro_batch_without_samples_contributes_nothing():
    values = simulate(sized, 2, 3, [3, 0, 2]).values, simulate(sized, 2, 2, [3, 2]).values
    for with_none, without in zip(*values, strict=True):
        torch.testing.assert_close(with_none, without)


# Time


def timed(comm, schedule, costs):
    """One step in which actions cost what the simulator is told; a link takes whole seconds for a message."""
    stages = [torch.nn.Linear(1, 1) for _ in range(schedule.chunks)]
    pipeline = Pipeline(stages, comm, schedule, F.mse_loss, cost=lambda part: costs[part.kind][part.chunk])
    batch = torch.zeros(schedule.micro_batches, 1)
    pipeline.step(batch, batch)  # which also tells the shapes
    comm.barrier()
    begun = comm.now()
    pipeline.step(batch, batch)
    return comm.now() - begun


@pytest.mark.parametrize("seconds", [0.25, 1.5])
def test_a_simulated_run_takes_what_the_simulator_predicts(seconds):
    # Two ways to the same number: every message and span of the executor on a virtual clock, and the play through.
    for schedule in (
        gpipe(3, 4),
        one_f_one_b(4, 5),
        zero_bubble(3, 5),
        zbv(2, 5),
        interleaved(3, 3, 2),
        looped_bfs(2, 3, 3),
    ):
        rising = [1 + 0.125 * c for c in range(schedule.chunks)]
        costs = {kind: [by * one for one in rising] for kind, by in {"F": 1, "B": 2, "I": 1.25, "W": 0.75}.items()}
        link = Link(seconds, float("inf"))
        run = simulate(timed, schedule.ranks, schedule, costs, cluster=link)
        predicted = schedule.simulate(*costs.values(), transfer=seconds)
        # A rank ends when its last message has been received; another may still compute.
        assert max(run.values) == pytest.approx(predicted.makespan, rel=1e-9), schedule.name


# Errors


def build(comm, which):
    stages = [torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)]
    if which == "ranks":
        Pipeline(stages[:1] * 3, comm, gpipe(3, 2), F.mse_loss)
    elif which == "stages":
        Pipeline(stages[:1], comm, gpipe(2, 2), F.mse_loss)
    elif which == "none":
        Pipeline([stages[0], None], comm, gpipe(2, 2), F.mse_loss)
    elif which == "tied":
        Pipeline([stages[0], stages[0]], comm, gpipe(2, 2), F.mse_loss)
    elif which == "optimizer":
        Pipeline(stages, comm, pipedream(2, 2), F.mse_loss)
    elif which == "schedules":
        Pipeline(stages, comm, gpipe(2, 2 + comm.rank), F.mse_loss)
    elif which == "invalid":
        Pipeline(stages, comm, Schedule.of([["0F0", "0B0"], ["1B0", "1F0"]]), F.mse_loss)
    elif which == "few":
        Pipeline(stages, comm, gpipe(2, 4), F.mse_loss).step(torch.ones(3, 2), torch.ones(3, 2))
    elif which == "unequal":
        Pipeline(stages, comm, gpipe(2, 2), F.mse_loss).step(torch.ones(3, 2), torch.ones(4, 2))
    elif which == "nothing":
        Pipeline(stages, comm, gpipe(2, 2), F.mse_loss).step()
    elif which == "in place":
        Pipeline([stages[0], torch.nn.ReLU(inplace=True)], comm, gpipe(2, 2), F.mse_loss).step(*torch.ones(2, 3, 2))
    elif which == "loss":
        Pipeline(stages, comm, gpipe(2, 2), lambda y, t: y - t).step(torch.ones(3, 2), torch.ones(3, 2))


@pytest.mark.parametrize(
    "which, said",
    [
        ("ranks", "GPipe is for 3 ranks, and there are 2"),
        ("stages", "GPipe has 2 chunks, and stages holds 1 modules"),
        ("none", "stage 1 is None: rank 1 has it"),
        ("tied", "stages 0 and 1 share the parameter weight"),
        ("optimizer", "PipeDream updates weights between micro-batches: give optimizer="),
        ("schedules", "rank 1 has another schedule than rank 0"),
        ("invalid", r"Rank 1 does 1B0 \(backward\) before 1F0"),
        ("few", "a batch of 3 samples: 4 micro-batches need at least one sample each"),
        ("unequal", r"inputs and targets have \[3, 4\] samples"),
        ("nothing", r"rank (0 has chunk 0, so it needs the inputs|1 has chunk 1, so it needs the targets)"),
        ("in place", "a stage changes its input in place, .*: use inplace=False in its first layer"),
        ("loss", "it must be one number"),
    ],
)
def test_mistakes_get_a_sentence_and_nothing_hangs(which, said):
    with pytest.raises(RankError, match=said):
        simulate(build, 2, which)


def run_corrupted(comm, schedules):
    """How many of the schedules were refused; the others ran."""
    refused = 0
    for schedule in schedules:
        try:
            pipeline = Pipeline([torch.nn.Linear(2, 2) for _ in range(schedule.chunks)], comm, schedule, F.mse_loss)
        except InvalidSchedule:
            refused += 1
            continue
        pipeline.step(torch.ones(6, 2), torch.ones(6, 2))
    return refused


def test_no_corrupted_schedule_is_run_into_a_hang():
    draw = random.Random(1)
    tried = [corrupted(make(3, 3), draw) for make in (one_f_one_b, zero_bubble, zbv) for _ in range(12)]
    assert simulate(run_corrupted, 3, tried).values == [sum(not schedule.prove() for schedule in tried)] * 3
