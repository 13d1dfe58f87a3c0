"""A pipeline step beside torch.distributed.pipelining, and the simulator's prediction beside what was measured.

    python bench/pipeline.py                   two stages of one thread each, four micro-batches
    python bench/pipeline.py --pairs 400       more pairs, narrower intervals
    python bench/pipeline.py --seeds 5         the predictions, measured five times
    python bench/pipeline.py --only fused      of ours only the schedules that have this word in their name

Both have the same two stages in the same two processes and take steps in turn, in random order: forward and backward of
one batch, no optimizer. The ratio of a pair is ours by torch's, of the slower rank; printed are the median with its
95 % interval (bootstrap over pairs), and torch's against torch's in the same run, which says what the machine alone
does. "At most 1.00 x" holds when the upper end is below 1.03.

Predictions: each schedule is calibrated in every other step: the span of each action; the work before it that is no
span (posting, sending and receiving messages that are there already); and, as the median over all steps, a message that
a rank waited for, from the end of the span that gave it to the start of the one that used it, so that waking the rank
is in it. Every such step is simulated with its own costs, and the median of the idle shares (of both ranks, in the
makespan) is set beside the median of the steps between. Printed beside it is what mean costs predict: of actions of
unequal length the longest is waited for, and a mean does not know which that is.
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
Step = dict[Action, Span]
"""The span of each action."""


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
    steps = measured({name: schedules[name] for name in ("1F1B", "zero bubble")}, rounds)
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


def marked_steps(comm: Communicator, schedules: dict[str, Schedule], rounds: int) -> list[tuple[str, float]]:
    """(schedule, when its step began) of every step; the spans are in the run's trace."""
    images, labels = batch()
    ours, marks, order = pipelines(comm, schedules), [], random.Random(1)
    for _ in range(rounds):
        for name in order.sample(list(ours), len(ours)):
            comm.barrier()
            marks.append((name, comm.now()))
            ours[name].step(images, labels)
    return marks


def measured(schedules: dict[str, Schedule], rounds: int) -> dict[str, list[Step]]:
    """{schedule: the spans of each of its steps} from one run."""
    run = launch(marked_steps, RANKS, schedules, rounds, timeout=3600)
    found = defaultdict(list)
    for name, spans in _steps(run.trace, run.values[0])[3 * len(schedules) :]:  # the first ones warm up
        found[name].append(_by_action(schedules[name], spans))
    return dict(found)


def predictions(schedules: dict[str, Schedule], rounds: int) -> Iterator[tuple[str, float, float, float]]:
    """(schedule, predicted idle share, predicted from mean costs, measured idle share) from one run."""
    for name, steps in measured(schedules, rounds).items():
        schedule, calibration = schedules[name], steps[::2]
        costs, (pauses, message) = _costs(schedule, calibration), _gaps(schedule, calibration)
        mean_step = {
            part: (costs[part.kind, part.chunk], pauses.get((part.kind, part.chunk), 0.0)) for part in schedule.parts()
        }
        yield (
            name,
            median(_predicted(schedule, _own_costs(schedule, step, pauses), message) for step in calibration),
            _predicted(schedule, mean_step, message),
            median(map(_idle, steps[1::2])),
        )


def _own_costs(schedule: Schedule, step: Step, pauses: Costs) -> dict[Action, tuple[float, float]]:
    """(seconds of its span, seconds before it that its rank does not wait) of each action of one step."""
    before = {action: gap for action, gap, waited in _pauses(schedule, step) if not waited}
    return {
        part: (span.seconds, before.get(part, pauses.get((part.kind, part.chunk), 0.0))) for part, span in step.items()
    }


def _predicted(schedule: Schedule, step: dict[Action, tuple[float, float]], message: float) -> float:
    """Idle share of the simulated step; what comes before an action occupies its rank, and counts as idle."""
    rows = [
        [
            [sum(step.get(Action(kind, c, i), (0.0,))) for i in range(schedule.micro_batches)]
            for c in range(schedule.chunks)
        ]
        for kind in "FBIW"
    ]
    makespan = schedule.simulate(*rows, transfer=message).makespan - step[schedule.parts(0)[0]][1]
    return 1 - sum(seconds for seconds, _ in step.values()) / (RANKS * makespan)


def _by_action(schedule: Schedule, spans: list[Span]) -> Step:
    """The span of each action of a step: those of a rank come in the order of its actions."""
    found = {}
    for rank in range(RANKS):
        found |= zip(schedule.parts(rank), [span for span in spans if span.rank == rank], strict=True)
    return found


def _costs(schedule: Schedule, steps: list[Step]) -> Costs:
    """Seconds of each kind of action on each chunk."""
    return _typical([[((part.kind, part.chunk), span.seconds) for part, span in step.items()] for step in steps])


def _pauses(schedule: Schedule, step: Step) -> Iterator[tuple[Action, float, bool]]:
    """(action, seconds, whether its rank waited): since what it needed was given if it waited, else since it was free."""
    transfers = Transfers(schedule)
    given = {transfers.given(part): span.end for part, span in step.items()}
    for rank in range(RANKS):
        for last, part in pairwise(schedule.parts(rank)):
            need, free = transfers.needed(part), step[last].end
            waited = need is not None and given[need] > free
            yield part, step[part].start - (given[need] if waited else free), waited


def _gaps(schedule: Schedule, steps: list[Step]) -> tuple[Costs, float]:
    """Seconds before an action whose rank waits for nothing; and what a message that is waited for takes besides."""
    found = [list(_pauses(schedule, step)) for step in steps]
    pauses = _typical([[((part.kind, part.chunk), gap) for part, gap, waited in step if not waited] for step in found])
    moving = [
        mean(max(0.0, gap - pauses.get((part.kind, part.chunk), 0.0)) for part, gap, _ in waits)
        for step in found
        if (waits := [each for each in step if each[2]])
    ]
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


def _idle(step: Step) -> float:
    spans = step.values()
    makespan = max(span.end for span in spans) - min(span.start for span in spans)
    return 1 - sum(span.seconds for span in spans) / (RANKS * makespan)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    print(f"{RANKS} ranks, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, torch {torch.__version__}")
    schedules = {name: each for name, each in known().items() if options.only in name}
    if options.only in FUSED:
        schedules[FUSED] = fused()
        print(schedules[FUSED])
    if not schedules:
        parser.error(f"--only {options.only}: of ours there are {', '.join([*OURS, FUSED])}")
    ranks = launch(steps_in_turn, RANKS, schedules, options.pairs, timeout=3600).values
    slower = {name: np.maximum(*(np.array(rank[name]) for rank in ranks)) for name in ranks[0]}
    for name, seconds in slower.items():
        print(f"{name:<24}{np.median(seconds) * 1e3:>9.2f} ms")
    for name in (*(f"our {name}" for name in schedules), "torch 1F1B again"):
        other = "torch GPipe" if name == "our GPipe" else "torch 1F1B"
        middle, low, high = interval(slower[name] / slower[other])
        print(f"{name:>24} / {other:<14}{middle:.3f} [{low:.3f}, {high:.3f}]", flush=True)
    for seed in range(options.seeds):
        for name, predicted, of_means, idle in predictions(schedules, max(20, options.pairs // 4)):
            print(
                f"run {seed}: {name:<19} idle predicted {predicted:.3f}, measured {idle:.3f}, "
                f"difference {idle - predicted:+.3f} (from mean costs: {idle - of_means:+.3f})"
            )


if __name__ == "__main__":
    main()
