"""09.3 `zero1_step`: a step of stage 1, on this rank's shard, clipped and checked by all ranks together.

Floor 4, room `exercises`. Judged by the parameters after several steps, and by bytes: of the optimizer's state, of
gradients that are left, and of what is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from lockstep.comm import Communicator
from lockstep.exercises.compare import differs
from lockstep.exercises.exercise import Case, Exercise, on_ranks
from lockstep.exercises.judge import Finding, all_of
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab09.flat_right import shard_flat
from lockstep.exercises.lab09.stepping_mistakes import MISTAKES
from lockstep.exercises.lab09.stepping_right import with_flags, with_sizes, zero1_step, zero1_step_stub
from lockstep.exercises.lab09.toys import Momentum, numbers, sends
from lockstep.exercises.observe import Observation, Simulate
from lockstep.exercises.plain import short

SMALL = 64  # bytes: the numbers on which ranks agree, in whatever type


def some_steps(
    fn: Callable[..., Any],
    comm: Communicator,
    gradients: Sequence[Sequence[Tensor]],
    start: Sequence[Tensor],
    max_norm: float,
) -> dict[str, Any]:
    """Parameters, answer, bytes sent and gradients left after each step, and the optimizer's state in the end."""
    parameters = [nn.Parameter(tensor.clone()) for tensor in start]
    shard = nn.Parameter(shard_flat(parameters, comm.rank, comm.size))
    optimizer = Momentum([shard])
    after, said, sent, left, own = [], [], [], [], []
    for step in gradients:
        for parameter, gradient in zip(parameters, step, strict=True):
            parameter.grad = gradient.clone()
        answer, nbytes = sends(comm, lambda: fn(comm, parameters, shard, optimizer, max_norm))
        after.append([p.detach().clone() for p in parameters])
        said.append(answer)
        sent.append(nbytes)
        left.append(sum(p.grad.nbytes for p in parameters if p.grad is not None))
        own.append(0 if shard.grad is None else shard.grad.nbytes)
    return {"after": after, "said": said, "sent": sent, "left": left, "own": own, "state": optimizer.bytes}


def trains_like_one_process(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """The parameters after each step, then the answers."""
    for rank, (got, want) in enumerate(zip(seen.value, expected.value, strict=True)):
        for step, (g, w) in enumerate(zip(got["after"], want["after"], strict=True), 1):
            for index, (mine, right) in enumerate(zip(g, w, strict=True)):
                difference = differs(mine, right, 1e-4, 1e-6)
                if difference is not None:
                    said = f"Rank {rank}, step {step}: parameter {index} is not that of one process: {difference}."
                    return Finding(said, short(right), short(mine), ([one["after"] for one in seen.value],))
    for rank, (got, want) in enumerate(zip(seen.value, expected.value, strict=True)):
        difference = differs(got["said"], want["said"])
        if difference is not None:
            said = f"Rank {rank}: the answers, step by step, are not whether the step was taken: {difference}."
            return Finding(said, short(want["said"]), short(got["said"]), ("said", [one["said"] for one in seen.value]))
    return None


def saves_memory(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    got, want = (max(one["state"] for one in who.value) for who in (seen, expected))
    if got != want:
        said = (
            f"The parameters are right, but the optimizer keeps {got:,} bytes on a rank where a shard takes {want:,}."
        )
        return Finding(said, f"{want:,} bytes", f"{got:,} bytes", ("state", got))
    left = max(max(one["left"]) for one in seen.value)
    if left:
        said = f"The parameters are right, but {left:,} bytes of gradients are still there after the step."
        return Finding(said, "every `.grad` is None", f"{left:,} bytes", ("left", left > 0))
    own = max(max(one["own"]) for one in seen.value)
    if own:
        said = f"The parameters are right, but `shard.grad` is still there after the step, {own:,} bytes."
        return Finding(said, "`shard.grad` is None", f"{own:,} bytes", ("own", own > 0))
    return None


def sends_no_more(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    for rank, (got, want) in enumerate(zip(seen.value, expected.value, strict=True)):
        for step, (mine, least) in enumerate(zip(got["sent"], want["sent"], strict=True), 1):
            if mine > least + SMALL * case.ranks:
                said = (
                    f"The numbers are right, but rank {rank} sends {mine:,} bytes in step {step}; {least:,} are enough."
                )
                return Finding(said, f"{least:,} bytes", f"{mine:,} bytes", ("sent", mine, len(seen.collectives[0])))
    most = 4 * len(case.each[0][0])
    for rank, names in enumerate(seen.collectives):
        if len(names) > most:
            said = f"The numbers are right, but rank {rank} calls {len(names)} collectives in {most // 4} steps."
            return Finding(said, "three a step are enough", f"{len(names)}", ("collectives", len(names)))
    return None


def cases(rng: np.random.Generator) -> Iterator[Case]:
    wide = [(10, 12), (12,), (3, 7)]
    for ranks, shapes, steps, max_norm, words in (
        (1, [(2, 2)], 1, 1e3, "nothing to clip"),
        (2, [(3, 4), (4,)], 2, 60.0, "nothing to clip"),  # less than the norm's square
        (2, [(3, 3), (2,)], 2, 0.7, "padded, clipped"),
        (2, [(3, 3), (2,)], 3, 0.7, "an overflow in step 2, NaN in step 3"),
        (3, wide, 1, 0.9, "clipped"),
    ):
        start = [numbers(rng, *shape) for shape in shapes]
        long = 10 if max_norm == 60 else 1
        each = [([[long * numbers(rng, *shape) for shape in shapes] for _ in range(steps)],) for _ in range(ranks)]
        if "overflow" in words:
            each[1][0][1][0][0, 1] = float("inf")
            each[0][0][2][0][1, 1] = float("nan")
        n = sum(tensor.numel() for tensor in start)
        yield on_ranks(ranks, start, max_norm, each=each, name=f"{n} parameters, {words}")


JUDGE = all_of(trains_like_one_process, saves_memory, sends_no_more)
OBSERVE = Simulate(some_steps)


ZERO1_STEP = Exercise(
    id="09.3",
    title="A step on a shard",
    function="zero1_step",
    points=3,
    asks=(
        "Backward has run; `parameters` have this rank's gradients. `shard` is this rank's shard of them, cut as in "
        "09.2, and `optimizer` steps it. Give it the mean of all ranks' gradients, scaled down where the norm of the "
        "*whole* mean is above `max_norm`; step; bring all new parameters to every rank. If any number of the mean is "
        "not finite, no rank steps. Afterwards every `.grad` is None, that of `shard` too. Return whether the step was taken. Send no more "
        "than an all-reduce does, beside single numbers."
    ),
    reference=zero1_step,
    also_right=(with_flags, with_sizes),
    stub=zero1_step_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    equivalent_mutants=(
        "line 11: for p, part in zip(parameters, parts, strict=True): -> "
        "for p, part in zip(parameters, parts, strict=False):",
    ),
    hints=(
        "An all-reduce is a reduce-scatter and an all-gather. Stage 1 puts the optimizer between the two: what does "
        "each rank have after the first, and what does it need after the second?",
        "Join the gradients, pad them to `shard.numel() * comm.size`, and `comm.reduce_scatter(..., op='mean')` gives "
        "what belongs into `shard.grad`. When the optimizer has stepped, `comm.all_gather(shard)` gives all "
        "parameters, flat; copy each piece home.",
        "The norm: each rank adds up the squares of its shard, an all-reduce adds up the ranks', then comes the root. "
        "One infinite number anywhere makes that norm infinite or NaN on *every* rank: ask `norm.isfinite()` there, "
        "and all ranks answer alike.",
        "The factor is `(max_norm / norm).clamp(max=1)`; `p.data.copy_(...)` writes a parameter past autograd.",
    ),
    mistakes=by_first_failure(OBSERVE, JUDGE, MISTAKES),
)
