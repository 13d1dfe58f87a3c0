"""Exercise 05.7: batch norm over the images of all ranks.

Floor 4, room `exercises`; solutions are in `batch_norm_right.py` and `batch_norm_mistakes.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.comm import Communicator
from lockstep.exercises.exercise import Case, Exercise, on_ranks
from lockstep.exercises.judge import Finding, all_of, same_value
from lockstep.exercises.lab05.batch_norm_mistakes import MISTAKES
from lockstep.exercises.lab05.batch_norm_right import (
    sync_batch_norm,
    sync_batch_norm_by_autograd,
    sync_batch_norm_from_moments,
    sync_batch_norm_stub,
)
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab05.toys import in_words, named_first
from lockstep.exercises.observe import Observation, Simulate


def both_passes(
    fn: Callable[..., Any], comm: Communicator, x: Tensor, pull: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> dict[str, Any]:
    """What forward gives, and the gradients of (y * pull).sum()."""
    x, weight, bias = (tensor.clone().requires_grad_() for tensor in (x, weight, bias))
    y = fn(comm, x, weight, bias, eps)
    (y * pull).sum().backward()
    return {"y": y.detach(), "x.grad": x.grad, "weight.grad": weight.grad, "bias.grad": bias.grad}


def right_passes(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    found = same_value(rtol=1e-6, atol=1e-9)(case, seen, expected)
    name = found and re.search(r" at \['([^']+)'\]", found.sentence)
    if not name:
        return found
    evidence = name[1], [one[name[1]] for one in seen.value]
    return replace(found, sentence=named_first(found.sentence), evidence=evidence)


def one_each_way(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """The number of collectives; which they are is free."""
    for rank, called in enumerate(seen.collectives):
        if len(called) != 2:
            listed = ", ".join(called) or "none"
            many = f"{len(called)} collective{'s' * (len(called) != 1)}"
            return Finding(
                f"The numbers are right, but rank {rank} calls {many} in forward and backward together; it takes one in "
                f"each.",
                "2", f"{len(called)}: {listed}", ("count", [len(one) for one in seen.collectives]),
            )  # fmt: skip
    return None


def cases(rng: np.random.Generator) -> Iterator[Case]:
    for sizes, channels in (((1, 2), 1), ((3, 1), 3), ((2, 0, 1), 2)):
        weight, bias = torch.tensor(rng.normal(size=(2, channels)))
        words = f"{in_words(sizes)} images of {channels} channel{'s' * (channels > 1)}"
        yield on_ranks(len(sizes), weight, bias, 0.1, each=_images(rng, sizes, channels), name=words)


def _images(rng: np.random.Generator, sizes: Sequence[int], channels: int) -> list[tuple[Tensor, ...]]:
    """For each rank so many images of 1x2 pixels, and as many numbers that pull at the result."""
    return [
        tuple(torch.tensor(rng.normal(shift, 1 + shift, (n, channels, 1, 2))) for _ in range(2))
        for shift, n in enumerate(sizes)
    ]


OBSERVE, JUDGE = Simulate(both_passes), all_of(right_passes, one_each_way)

SYNC_BATCH_NORM = Exercise(
    id="05.7",
    title="Batch norm across ranks",
    function="sync_batch_norm",
    points=3,
    core=False,
    asks=(
        "Return batch norm of `x` (images, channels, height, width) with the mean and the biased variance of each "
        "channel over the images of all ranks, then times `weight` plus `bias`, both of shape (channels,). Backward gives the gradient of `x` "
        "through the whole batch, and this rank's own part of those of `weight` and `bias`. One collective in forward, "
        "one in backward. A rank may have no images."
    ),
    reference=sync_batch_norm,
    also_right=(sync_batch_norm_from_moments, sync_batch_norm_by_autograd),
    stub=sync_batch_norm_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    equivalent_mutants=(
        "line 8: count = torch.full_like(weight, x[:, 0].numel()) -> count = torch.full_like(weight, x[:, -1].numel())",
    ),
    hints=(
        "Which three numbers of each channel, added up over the ranks, give mean and variance of all images together? "
        "They can travel in one tensor.",
        "Sum, sum of squares and count: the mean is sum / count, the variance is squares / count less the squared mean. "
        "`comm.all_reduce` is outside autograd, so wrap the work in a `torch.autograd.Function`.",
        "Write x_hat for the normalised x, dy for the gradient that arrives. Backward needs two sums over all images of "
        "all ranks, dy and dy * x_hat; divided by the count they are two means. Then dx is `weight / deviation` times "
        "(dy less the first mean, less x_hat times the second). The same two sums over this rank's images are the "
        "gradients of `bias` and `weight`.",
        "Backward's one collective: `mean_dy, mean_dy_normal = comm.all_reduce(own.clone()) / count`; the copy keeps "
        "this rank's own sums for `weight` and `bias`.",
    ),
    mistakes=by_first_failure(OBSERVE, JUDGE, MISTAKES),
)
