"""10.8 `local_sgd`: ranks train apart, and average their weights every few steps.

Floor 4, room `exercises`. Judged by the parameters that each step finds, which show when they were averaged, by those
that are left in the end, and by bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lockstep.comm import Communicator
from lockstep.exercises.compare import differs
from lockstep.exercises.exercise import Case, Exercise, on_ranks
from lockstep.exercises.judge import Finding, all_of
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab10.local_sgd_mistakes import MISTAKES
from lockstep.exercises.lab10.results import normal
from lockstep.exercises.observe import Observation, Simulate
from lockstep.exercises.plain import short


def local_sgd(comm, parameters, step, steps, every):
    for i in range(1, steps + 1):
        step(i - 1)
        if i % every == 0 or i == steps:
            for p in parameters:
                comm.all_reduce(p.data, op="mean")


def in_rounds(comm, parameters, step, steps, every):
    """One all-reduce of all parameters for each round of steps."""
    for first in range(0, steps, every):
        for i in range(first, min(first + every, steps)):
            step(i)
        flat = nn.utils.parameters_to_vector(parameters).detach()
        flat = comm.all_reduce(flat) / comm.size
        nn.utils.vector_to_parameters(flat, parameters)


def counting_down(comm, parameters, step, steps, every):
    left = every
    for i in range(steps):
        step(i)
        left -= 1
        if left == 0 or i == steps - 1:
            with torch.no_grad():
                for p in parameters:
                    mean = comm.all_reduce(p.detach().clone(), op="mean")
                    p.copy_(mean)
            left = every


def local_sgd_stub(comm, parameters, step, steps, every):
    raise NotImplementedError("steps of this rank's own, and an average every few of them")


def toy(
    fn: Callable[..., Any], comm: Communicator, targets: Sequence[Sequence[Tensor]], start: Sequence[Tensor], every: int
) -> dict[str, Any]:
    """Numbers of the steps that were taken, the parameters that each found, those in the end, and bytes sent.

    A step moves each parameter towards this rank's target, along a slope that is not linear: of linear ones the mean would
    not show when ranks were averaged.
    """
    parameters = [nn.Parameter(tensor.clone()) for tensor in start]
    taken, found = [], []

    def step(i: int) -> None:
        taken.append(i)
        found.append([p.detach().clone() for p in parameters])
        with torch.no_grad():
            for p, target in zip(parameters, targets[i % len(targets)], strict=True):
                p.grad = torch.tanh(2 * (p - target))
                p.sub_(p.grad, alpha=0.4)

    before = comm.traffic.bytes_sent
    fn(comm, list(parameters), step, len(targets), every)
    sent = comm.traffic.bytes_sent - before
    left, gradient = [p.detach().clone() for p in parameters], parameters[0].grad
    return {"left": left, "sent": sent, "taken": taken, "found": found, "gradient": gradient}


def takes_every_step(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    for rank, (one, right) in enumerate(zip(seen.value, expected.value, strict=True)):
        if one["taken"] != right["taken"]:
            said = f"Rank {rank} takes the steps {short(one['taken'])}; asked are {short(right['taken'])}."
            return Finding(
                said, short(right["taken"]), short(one["taken"]), ("taken", [o["taken"] for o in seen.value])
            )
    return None


def averages_when_due(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """What each step finds, and what is left after the last."""
    steps = len(case.each[0][0])
    for at in range(steps + 1):
        for rank, (one, right) in enumerate(zip(seen.value, expected.value, strict=True)):
            mine, wanted = ([*who["found"], who["left"]][at] for who in (one, right))
            difference = differs(mine, wanted, 1e-4, 1e-5)
            if difference is not None:
                when = f"when step {at} begins" if at < steps else f"after the last step, {steps - 1}"
                said = f"Rank {rank}: {when}, the parameters are not what they should be: {difference}."
                so_far = [[*o["found"], o["left"]][: at + 2] for o in seen.value]
                return Finding(said, short(wanted), short(mine), (at, so_far, [o["gradient"] for o in seen.value]))
    return None


def sends_now_and_then(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    got, want = (sum(one["sent"] for one in who.value) for who in (seen, expected))
    if got <= want + 8 * case.ranks:
        return None
    said = f"The parameters are right, but all ranks together send {got:,} bytes where {want:,} are enough."
    return Finding(said, f"{want:,} bytes", f"{got:,} bytes", ("sent", got))


def cases(rng: np.random.Generator) -> Iterator[Case]:
    for ranks, steps, every in ((2, 5, 2), (3, 2, 2)):
        shapes = [(3,), (2, 2)]
        each = [([[2 * normal(rng, *shape) for shape in shapes] for _ in range(steps)],) for _ in range(ranks)]
        start = [normal(rng, *shape) for shape in shapes]
        yield on_ranks(ranks, start, every, each=each, name=f"{steps} steps, an average every {every}")


OBSERVE = Simulate(toy)


JUDGE = all_of(takes_every_step, averages_when_due, sends_now_and_then)


LOCAL_SGD = Exercise(
    id="10.8",
    title="Steps of one's own",
    function="local_sgd",
    points=2,
    core=False,
    asks=(
        "Train with local SGD: call `step(i)` for `i` from 0 to `steps - 1`, each of which changes `parameters` in place with "
        "this rank's own images. After every `every` steps, and after the last step, replace the parameters by their mean over "
        "the ranks, in place. Send nothing else."
    ),
    reference=local_sgd,
    also_right=(in_rounds, counting_down),
    stub=local_sgd_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    hints=(
        "How many steps have been taken when `step(i)` returns? And what if `every` does not divide `steps`?",
        "`comm.all_reduce(p.data, op='mean')` averages a parameter in place, past autograd.",
    ),
    mistakes=by_first_failure(OBSERVE, JUDGE, MISTAKES),
)
