"""Exercise 05.2: after backward, give every rank the gradient of the whole batch.

Floor 4, room `exercises`; the models are in `toys.py`, solutions in `averaging_right.py` and `averaging_mistakes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from lockstep.comm import Communicator
from lockstep.exercises.compare import differs
from lockstep.exercises.exercise import Case, Exercise, on_ranks
from lockstep.exercises.judge import Finding, all_of
from lockstep.exercises.lab05.averaging_mistakes import MISTAKES
from lockstep.exercises.lab05.averaging_right import (
    average_gradients,
    average_gradients_stub,
    average_in_one_message,
    average_through_rank_0,
    average_with_handles,
)
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab05.sending import sends_at_least
from lockstep.exercises.lab05.toys import build, first_that_differs, in_words, named_first, shards
from lockstep.exercises.observe import Observation, Simulate


def after_backward(fn: Callable[..., Any], comm: Communicator, x: Tensor, y: Tensor, kind: str, seed: int) -> Any:
    """Trained parameters' gradients after one backward pass and `fn` (None: zeros); names of frozen ones with any."""
    model = build(kind, seed)
    model.both = comm.rank == 0
    if len(x):
        F.mse_loss(model(x), y).backward()
    fn(model, comm, len(x))
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    frozen = [name for name, p in model.named_parameters() if name not in trained and p.grad is not None]
    return {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in trained.items()}, frozen


def right_gradients(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """The gradients are those of the mean over all samples, on every rank; frozen parameters have none."""
    for rank, ((got, frozen), (want, _)) in enumerate(zip(seen.value, expected.value, strict=True)):
        difference = differs(got, want, 1e-4, 1e-6)
        if difference is not None:
            sentence = named_first(f"Rank {rank}: {difference}.", "the gradient of {}")
            return Finding(sentence, *first_that_differs(got, want), (seen.value,))
        if frozen:
            return Finding(
                f"Rank {rank}: the frozen parameter `{frozen[0]}` has a gradient now.", "its `.grad` stays None",
                "a tensor", ("frozen", frozen),
            )  # fmt: skip
    return None


def cases(rng: np.random.Generator) -> Iterator[Case]:
    drawn = (
        ((4,), "plain", ""),
        ((2, 2), "plain", ""),
        ((1, 3), "plain", ""),
        ((2, 3), "heads", ", a layer that rank 1 does not use"),
        ((2, 0, 1), "tied", ", a tied and a frozen parameter"),
    )
    for sizes, model, words in drawn:
        named = f"{in_words(sizes)} sample{'' if sizes == (1,) else 's'}{words}"
        yield on_ranks(len(sizes), model, int(rng.integers(100)), each=shards(rng, sizes), name=named)


def its_gradients(case: Case, expected: Observation, rank: int) -> int:
    """Bytes of the gradients that this rank's own samples have: they count in everybody's mean."""
    gradients, _ = expected.value[rank]
    used = [one for name, one in gradients.items() if rank == 0 or not name.startswith("other.")]
    return sum(one.nbytes for one in used) if len(case.each[rank][0]) else 0


OBSERVE, JUDGE = Simulate(after_backward), all_of(right_gradients, sends_at_least(its_gradients))


AVERAGE = Exercise(
    id="05.2",
    title="The gradient of the big batch",
    function="average_gradients",
    points=2,
    asks=(
        "Each rank's loss was the mean over its own `samples`, and backward has run. Change every trained parameter's "
        "`.grad`, on every rank, into the gradient of the mean over all samples of all ranks. A gradient that is None "
        "counts as zeros. A frozen parameter's `.grad` stays None. A rank may have no samples; in all there is "
        "at least one."
    ),
    reference=average_gradients,
    also_right=(average_in_one_message, average_with_handles, average_through_rank_0),
    stub=average_gradients_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    hints=(
        (
            "Rank 0 has 1 sample and rank 1 has 4. In the mean over all five, how much does each sample count? So how "
            "much does rank 0's gradient count, and how much rank 1's?"
        ),
        (
            "A rank's gradient counts `samples / total`, where `total` is the sum of everybody's `samples`: one "
            "all-reduce of a tensor with one number. Weight first, then add up over the ranks."
        ),
        (
            "Every rank has to make the same calls, also for a parameter that has no gradient here: put zeros in "
            "its place. Only frozen ones (`requires_grad` is False) may be left out, since they are frozen on all ranks."
        ),
        "Inside the loop: `parameter.grad *= samples / total`, then `comm.all_reduce(parameter.grad)`.",
    ),
    mistakes=by_first_failure(OBSERVE, JUDGE, MISTAKES),
)
