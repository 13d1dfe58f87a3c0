"""Every schedule on real and simulated ranks gives the gradients of one process."""

import pytest
import torch
from staged_models import alone, batch, gradients, resnet, skips
from torch.nn import functional as F

from lockstep.parallel.pipeline import (
    Pipeline,
    dualpipev,
    gpipe,
    interleaved,
    looped_bfs,
    naive,
    one_f_one_b,
    zbv,
    zero_bubble,
)
from lockstep.world import launch, simulate

NETS = {"resnet": resnet, "skips": skips}


def schedules(p):
    """With different numbers of micro-batches; name, schedule, settings of the pipeline."""
    found = [
        (naive(p, 2), {}),
        (gpipe(p, 5), {"checkpoint": True}),
        (gpipe(p, 3), {"ordered": True}),
        (one_f_one_b(p, 7), {}),
        (zero_bubble(p, 6), {}),
        (zero_bubble(p, 4, 2), {"checkpoint": True}),
    ]
    if p < 5:
        found += [
            (interleaved(p, 2 * p, 2), {}),
            (interleaved(p, 2 * p, 2), {"ordered": True}),
            (looped_bfs(p, 3, 2), {}),
            (zbv(p, 5), {}),
            (dualpipev(p, 2 * p), {}),
            (dualpipev(p, 2 * p + 1), {"ordered": True}),
        ]
    return found


def run_all(comm):
    """Per schedule and net: this rank's (loss, {chunk: gradients}, {chunk: buffers}) after two steps on one batch."""
    found = {}
    for number, (schedule, settings) in enumerate(schedules(comm.size)):
        for net, build in NETS.items():
            stages = build(schedule.chunks)
            pipeline = Pipeline(stages, comm, schedule, F.cross_entropy, **settings)
            mine = [c for c, rank in schedule.placement.items() if rank == comm.rank]
            stages = [stage if c in mine else None for c, stage in enumerate(stages)]
            images, labels = batch(11)
            for _ in range(2):
                loss = pipeline.step(images, labels)
            found[number, net] = (
                loss,
                {c: gradients(stages[c]) for c in mine},
                {c: [b.clone() for b in stages[c].buffers()] for c in mine},
            )
    return found


def judge(values, p):
    for number, (schedule, settings) in enumerate(schedules(p)):
        for net, build in NETS.items():
            results = [value[number, net] for value in values]
            last = schedule.placement[schedule.chunks - 1]
            loss, grads, buffers = alone(build(schedule.chunks), *batch(11), schedule.micro_batches, steps=2)
            what = f"{schedule.name}, {net}, {p} ranks, {settings}"
            assert [r for r, result in enumerate(results) if result[0] is not None] == [last], what
            assert results[last][0].item() == pytest.approx(loss, rel=1e-10), what
            chunks = [
                {c: kept for result in results for c, kept in result[at].items()}[c]
                for at in (1, 2)
                for c in range(schedule.chunks)
            ]
            mine = [each for chunk in chunks for each in chunk]
            for one, other in zip(mine, grads + buffers, strict=True):
                assert (one is None) == (other is None), what
                assert one is None or torch.allclose(one, other, rtol=1e-9, atol=1e-12), what


@pytest.mark.parametrize("p", [2, 3, 4])
def test_processes_find_the_gradients_of_one(p):
    judge(launch(run_all, p).values, p)


@pytest.mark.parametrize("p", [1, 2, 4])
def test_simulated_ranks_find_the_gradients_of_one(p):
    judge(simulate(run_all, p, timeout=60).values, p)
