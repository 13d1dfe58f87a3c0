"""A pipeline step beside torch.distributed.pipelining, and the simulator's prediction beside what was measured.

    python bench/pipeline.py                   two stages of one thread each, four micro-batches
    python bench/pipeline.py --pairs 400       more pairs, narrower intervals
    python bench/pipeline.py --seeds 5         the predictions, measured five times

Both have the same two stages in the same two processes and take steps in turn, in random order: forward and backward of
one batch, no optimizer. The ratio of a pair is ours by torch's, of the slower rank; printed are the median with its
95 % interval (bootstrap over pairs), and torch's against torch's in the same run, which says what the machine alone
does. "At most 1.00 x" holds when the upper end is below 1.03.

Predictions: each schedule is calibrated in every other step, always by the median over steps of a step's mean: the span
of each kind of action on each chunk; the work before it that is no span (posting, sending and receiving messages that
are there already); and a message that a rank waited for, from the end of the span that gave it to the start of the one
that used it, so that waking the rank is in it. Then the schedule is simulated, and its idle share (of both ranks, in the
makespan) set beside the median of the steps between. Printed beside it is what a message timed by there and back alone
predicts, as if moving it were no work: two ranks that only send wake each other sooner than two that compute.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from statistics import mean, median

import numpy as np
import torch
from data_parallel import interval
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.nn import functional as F

from lockstep.comm import Communicator
from lockstep.parallel.pipeline import (
    Pipeline,
    Schedule,
    fuse_backward,
    gpipe,
    interleaved,
    one_f_one_b,
    zbv,
    zero_bubble,
)
from lockstep.parallel.pipeline.schedule import NAMES, Action
from lockstep.parallel.pipeline.transfers import Transfers
from lockstep.trace import Span, Trace
from lockstep.world import launch

RANKS, MICRO_BATCHES, IMAGES, BLOCKS = 2, 4, 32, 8
Costs = dict[tuple[str, int], float]
"""Seconds by (kind of action, chunk)."""


def stages(chunks: int) -> list[nn.Module]:
    """A CNN of eight equal blocks for 3x16x16 images in `chunks` parts; the first has a stem besides, the last a head."""
    torch.manual_seed(0)
    blocks = [
        nn.Sequential(nn.Conv2d(24, 24, 3, padding=1, bias=False), nn.BatchNorm2d(24), nn.ReLU()) for _ in range(BLOCKS)
    ]
    blocks[0] = nn.Sequential(nn.Conv2d(3, 24, 1), *blocks[0])
    blocks[-1] = nn.Sequential(*blocks[-1], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10))
    many = BLOCKS // chunks
    return [nn.Sequential(*blocks[c * many : (c + 1) * many]) for c in range(chunks)]


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(IMAGES, 3, 16, 16, generator=generator), torch.randint(10, (IMAGES,), generator=generator)


OURS: dict[str, Callable[[int, int], Schedule]] = {
    "GPipe": gpipe,
    "1F1B": one_f_one_b,
    "interleaved": interleaved,
    "interleaved by 4": lambda p, m: interleaved(p, m, 4),
    "zero bubble": zero_bubble,
    "ZB-V": zbv,
}
FUSED = "zero bubble, fused"
TORCH = {"GPipe": ScheduleGPipe, "1F1B": Schedule1F1B}


def known() -> dict[str, Schedule]:
    """The schedules that need no measurement, by name."""
    return {name: make(RANKS, MICRO_BATCHES) for name, make in OURS.items()}


def fused(rounds: int = 10) -> Schedule:
    """Zero bubble for what actions take here: split where that pays, with one micro-batch more in memory than 1F1B."""
    schedules = known()
    steps, _ = measured({name: schedules[name] for name in ("1F1B", "zero bubble")}, rounds)
    whole = _costs(schedules["1F1B"], steps["1F1B"])
    halves = _costs(schedules["zero bubble"], steps["zero bubble"])
    message = _gaps(schedules["1F1B"], steps["1F1B"])[1]
    last = RANKS - 1  # chunk 0 gives no input gradient, so its backward is not split
    costs = [[whole[kind, c] for c in range(RANKS)] for kind in "FB"]
    costs += [[whole["B", 0], halves["I", last]], [0.0, halves["W", last]]]
    make = zero_bubble(RANKS, MICRO_BATCHES, RANKS + 1, whole["F", last], halves["I", last], halves["W", last])
    return fuse_backward(make, *costs, transfer=message)


def pipelines(comm: Communicator, schedules: dict[str, Schedule]) -> dict[str, Pipeline]:
    """Ours by name."""
    return {name: Pipeline(stages(each.chunks), comm, each, F.cross_entropy) for name, each in schedules.items()}


def steppers(comm: Communicator, schedules: dict[str, Schedule]) -> dict[str, Callable[[], object]]:
    """By name, what takes one step on this rank."""
    images, labels = batch()
    found: dict[str, Callable[[], object]] = {}
    for name, pipeline in pipelines(comm, schedules).items():
        found[f"our {name}"] = lambda pipeline=pipeline: pipeline.step(images, labels)
    for name, kind in [*TORCH.items(), ("1F1B again", Schedule1F1B)]:
        stage = PipelineStage(stages(RANKS)[comm.rank], comm.rank, RANKS, torch.device("cpu"))
        schedule = kind(stage, MICRO_BATCHES, loss_fn=F.cross_entropy)
        if comm.rank == 0:
            found[f"torch {name}"] = lambda schedule=schedule: schedule.step(images)
        else:
            found[f"torch {name}"] = lambda schedule=schedule: schedule.step(target=labels, losses=[])
    return found


def steps_in_turn(comm: Communicator, schedules: dict[str, Schedule], pairs: int) -> dict[str, list[float]]:
    """Seconds of this rank's steps, by name, in the same order of rounds."""
    todo, taken, order = steppers(comm, schedules), defaultdict(list), random.Random(0)
    for turn in range(-5, pairs):
        for name in order.sample(list(todo), len(todo)):
            comm.barrier()
            begun = time.perf_counter()
            todo[name]()
            if turn >= 0:
                taken[name].append(time.perf_counter() - begun)
    return dict(taken)


def marked_steps(
    comm: Communicator, schedules: dict[str, Schedule], rounds: int
) -> tuple[list[tuple[str, float]], float]:
    """((schedule, when its step began) of every step, seconds of a message); the spans are in the run's trace."""
    images, labels = batch()
    ours, marks, order = pipelines(comm, schedules), [], random.Random(1)
    for _ in range(rounds):
        for name in order.sample(list(ours), len(ours)):
            comm.barrier()
            marks.append((name, comm.now()))
            ours[name].step(images, labels)
    return marks, _transfer(comm, rounds)


def _transfer(comm: Communicator, rounds: int) -> float:
    """Median seconds that one activation takes to the other rank: half of there and back."""
    activation, taken = torch.ones(IMAGES // MICRO_BATCHES, 24, 16, 16), []
    for _ in range(rounds):
        comm.barrier()
        begun = time.perf_counter()
        for sender in range(RANKS):
            if comm.rank == sender:
                comm.send(activation, 1 - sender)
            else:
                comm.recv(activation, sender)
        taken.append((time.perf_counter() - begun) / 2)
    return median(taken)


def measured(schedules: dict[str, Schedule], rounds: int) -> tuple[dict[str, list[dict[Action, Span]]], float]:
    """({schedule: the spans of each of its steps}, seconds of a message timed alone) from one run."""
    run = launch(marked_steps, RANKS, schedules, rounds, timeout=3600)
    marks, alone = run.values[0]
    found = defaultdict(list)
    for name, spans in _steps(run.trace, marks)[3 * len(schedules) :]:  # the first ones warm up
        found[name].append(_by_action(schedules[name], spans))
    return dict(found), alone


def predictions(schedules: dict[str, Schedule], rounds: int) -> Iterator[tuple[str, float, float, float]]:
    """(schedule, predicted idle share, predicted with messages timed alone, measured idle share) from one run."""
    found, alone = measured(schedules, rounds)
    for name, steps in found.items():
        schedule, calibration = schedules[name], steps[::2]
        costs = _costs(schedule, calibration)
        yield (
            name,
            _predicted(schedule, costs, *_gaps(schedule, calibration)),
            _predicted(schedule, costs, {("F", 0): 0.0}, alone),
            median(map(_idle, steps[1::2])),
        )


def _predicted(schedule: Schedule, costs: Costs, before: Costs, message: float) -> float:
    """Idle share of the simulated schedule; what comes before an action occupies its rank, and counts as idle."""
    rows = [[costs.get((kind, c), 0.0) + before.get((kind, c), 0.0) for c in range(schedule.chunks)] for kind in "FBIW"]
    makespan = schedule.simulate(*rows, transfer=message).makespan - before["F", 0]
    return 1 - sum(costs[part.kind, part.chunk] for part in schedule.parts()) / (RANKS * makespan)


def _by_action(schedule: Schedule, spans: list[Span]) -> dict[Action, Span]:
    """The span of each action of a step: those of a rank come in the order of its actions."""
    found = {}
    for rank in range(RANKS):
        found |= zip(schedule.parts(rank), [span for span in spans if span.rank == rank], strict=True)
    return found


def _costs(schedule: Schedule, steps: list[dict[Action, Span]]) -> Costs:
    """Seconds of each kind of action on each chunk."""
    return _typical([[((part.kind, part.chunk), span.seconds) for part, span in step.items()] for step in steps])


def _gaps(schedule: Schedule, steps: list[dict[Action, Span]]) -> tuple[Costs, float]:
    """Seconds before an action whose rank waits for nothing; and what a message that is waited for takes besides."""
    transfers, before, waited = Transfers(schedule), [], []
    for step in steps:
        given = {transfers.given(part): span.end for part, span in step.items()}
        gaps, waits = [], []
        for rank in range(RANKS):
            for last, part in pairwise(schedule.parts(rank)):
                need, free, start = transfers.needed(part), step[last].end, step[part].start
                if need is not None and given[need] > free:
                    waits.append(((part.kind, part.chunk), start - given[need]))
                else:
                    gaps.append(((part.kind, part.chunk), start - free))
        before.append(gaps)
        waited.append(waits)
    pauses = {("F", 0): 0.0} | _typical(before)
    moving = [mean(max(0.0, seconds - pauses.get(which, 0.0)) for which, seconds in waits) for waits in waited if waits]
    return pauses, median(moving)


def _typical(steps: list[list[tuple[tuple[str, int], float]]]) -> Costs:
    """For each (kind, chunk) the median over steps of the step's mean."""
    means: dict[tuple[str, int], list[float]] = defaultdict(list)
    for step in steps:
        seconds = defaultdict(list)
        for which, each in step:
            seconds[which].append(each)
        for which, each in seconds.items():
            means[which].append(mean(each))
    return {which: median(each) for which, each in means.items()}


def _steps(trace: Trace, marks: list[tuple[str, float]]) -> list[tuple[str, list[Span]]]:
    """The computing spans of each step."""
    spans = [span for span in trace.spans if span.kind == "compute" and span.name in NAMES.values()]
    ends = [begun for _, begun in marks[1:]] + [float("inf")]
    return [
        (name, [span for span in spans if begun <= span.start < end])
        for (name, begun), end in zip(marks, ends, strict=True)
    ]


def _idle(step: dict[Action, Span]) -> float:
    spans = step.values()
    makespan = max(span.end for span in spans) - min(span.start for span in spans)
    return 1 - sum(span.seconds for span in spans) / (RANKS * makespan)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    print(f"{RANKS} ranks, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, torch {torch.__version__}")
    schedules = known() | {FUSED: fused()}
    print(schedules[FUSED])
    ranks = launch(steps_in_turn, RANKS, schedules, options.pairs, timeout=3600).values
    slower = {name: np.maximum(*(np.array(rank[name]) for rank in ranks)) for name in ranks[0]}
    for name, seconds in slower.items():
        print(f"{name:<24}{np.median(seconds) * 1e3:>9.2f} ms")
    for name in (*(f"our {name}" for name in schedules), "torch 1F1B again"):
        other = "torch GPipe" if name == "our GPipe" else "torch 1F1B"
        middle, low, high = interval(slower[name] / slower[other])
        print(f"{name:>24} / {other:<14}{middle:.3f} [{low:.3f}, {high:.3f}]", flush=True)
    for seed in range(options.seeds):
        for name, predicted, alone, idle in predictions(schedules, max(20, options.pairs // 4)):
            print(
                f"run {seed}: {name:<19} idle predicted {predicted:.3f}, measured {idle:.3f}, "
                f"difference {idle - predicted:+.3f} (messages timed alone: {idle - alone:+.3f})"
            )


if __name__ == "__main__":
    main()
