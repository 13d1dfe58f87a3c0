"""Exercise 06.1: one pass, forward and backward, of a model that is split by layers over ranks.

Floor 4, room `exercises`; solutions are in `splitting_right.py` and `splitting_mistakes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lockstep.comm import Communicator
from lockstep.exercises.compare import differs
from lockstep.exercises.exercise import Case, Exercise, on_ranks
from lockstep.exercises.judge import Finding
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab06.splitting_mistakes import MISTAKES
from lockstep.exercises.lab06.splitting_right import (
    split_by_a_weighted_sum,
    split_by_functions_of_autograd,
    split_layers,
    split_layers_stub,
)
from lockstep.exercises.observe import Observation, Simulate
from lockstep.exercises.plain import short


def chain(widths: Sequence[int], seed: int) -> list[nn.Module]:
    """Linear layers with tanh from each width to the next; a width that comes twice makes a layer without numbers."""
    torch.default_generator.manual_seed(seed)
    return [
        nn.Softplus() if into == out else nn.Sequential(nn.Linear(into, out), nn.Tanh())
        for into, out in pairwise(widths)
    ]


def one_pass(
    fn: Callable[..., Any], comm: Communicator, x: Tensor, y: Tensor, widths: Sequence[int], cuts: list[int], seed: int
) -> Any:
    """What `fn` returns, and the gradients of every layer's parameters (None: none), by layer; what it changed, if any."""
    layers = chain(widths, seed)
    named = {f"layer {i}'s {name}": p for i, layer in enumerate(layers) for name, p in layer.named_parameters()}
    held = {name: p.detach().clone() for name, p in named.items()}
    returned = fn(comm, layers, list(cuts), x, lambda out: ((out - y) ** 2).mean())
    if isinstance(returned, Tensor) and returned.numel() == 1:
        returned = returned.item()
    gradients = {name: p.grad for name, p in named.items()}
    written = [name for name, p in named.items() if not torch.equal(p.detach(), held[name])]
    return returned, gradients | ({"written": written} if written else {})


def right_gradients(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """Each rank has the gradients of its own layers, and no others; the last one has the loss; nobody sends more."""
    for rank, ((_, got), (_, want)) in enumerate(zip(seen.value, expected.value, strict=True)):
        for name, gradient in want.items():
            mine = got[name]
            if differs(mine, gradient, 1e-4, 1e-6) is None:
                continue
            words = f"Rank {rank}: {name} "
            if gradient is None:
                words += "has a gradient, but this rank does not have that layer."
            elif mine is None:
                words += "has no gradient after your function has returned."
            else:
                words += "has another gradient than in one process."
            return Finding(words, short(gradient), short(mine), [gradients for _, gradients in seen.value])
    for rank, ((got, _), (want, _)) in enumerate(zip(seen.value, expected.value, strict=True)):
        if rank == case.ranks - 1 and differs(got, want, 1e-4, 1e-6) is not None:
            words = f"The gradients are right, but the last rank returns {short(got)} where the loss is {short(want)}."
            return Finding(words, short(want), short(got), ("loss", got))
        if rank < case.ranks - 1 and got is not None:
            words = f"The gradients are right, but rank {rank}, which has no loss, returns {short(got)}."
            return Finding(words, "None", short(got), ("returned", [value for value, _ in seen.value]))
    for rank, (_, gradients) in enumerate(seen.value):
        if names := gradients.get("written"):
            words = f"The gradients are right, but rank {rank} changes {names[0]} itself."
            return Finding(words, "unchanged", "changed", ("written", rank))
    sent = [(one.bytes_sent, least.bytes_sent) for one, least in zip(seen.traffic, expected.traffic, strict=True)]
    for rank, (got, want) in enumerate(sent):
        if got > want:
            words = f"The gradients are right, but rank {rank} sends {got:,} bytes where {want:,} are enough."
            return Finding(words, f"{want:,}", f"{got:,}", ("bytes", [mine for mine, _ in sent]))
    return None


def cases(rng: np.random.Generator) -> Iterator[Case]:
    drawn = (
        ((3, 2), (), 2, ""),
        ((3, 4, 2), (1,), 3, ""),
        ((2, 3, 4, 2), (1,), 2, ""),
        ((3, 2, 4, 4, 3, 2), (2, 3), 3, ", rank 1 has a layer without parameters"),
        ((2, 3, 4, 3, 5, 4, 2), (1, 3, 4), 2, ""),
    )
    for widths, cuts, batch, words in drawn:
        ranks = len(cuts) + 1
        y = torch.tensor(rng.normal(size=(batch, widths[-1])), dtype=torch.float32)
        images = torch.tensor(rng.normal(size=(batch, widths[0])), dtype=torch.float32)
        each = [(images, y), *((torch.zeros(batch, widths[cut]), y) for cut in cuts)]
        name = f"{len(widths) - 1} layer{'s' * (len(widths) > 2)}, cuts {list(cuts)}{words}"
        yield on_ranks(ranks, widths, cuts, int(rng.integers(100)), each=each, name=name)


OBSERVE, JUDGE = Simulate(one_pass), right_gradients

SPLIT_LAYERS = Exercise(
    id="06.1",
    title="A model split by layers",
    function="split_layers",
    points=3,
    asks=(
        "Rank r has the layers from one of `cuts` to the next. `x` holds the images on rank 0, and on the others it is a "
        "tensor to be filled with what the rank before sends. Run one forward and one backward pass: every rank ends with "
        "the gradients of its own layers' parameters, as in one process. `loss(y)` makes the loss of the model's "
        "output; the last rank returns it. Each cut carries one activation and one gradient."
    ),
    reference=split_layers,
    also_right=(split_by_a_weighted_sum, split_by_functions_of_autograd),
    stub=split_layers_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    hints=(
        (
            "Write down for rank 1 of 3 what it receives, runs and sends, in order: four messages, two of them on the way "
            "back. Then ask which of them rank 0 and rank 2 do not have."
        ),
        (
            "What arrives is only numbers: on your rank `x` is where the graph begins. `requires_grad_()`, called on it before "
            "the stage runs, makes autograd keep its gradient in `x.grad`."
        ),
        (
            "The last rank calls `backward()` on the loss. Every other rank has no loss, but it is given the gradient of "
            "its `y`: receive it into a tensor like `y`, and call `y.backward` with that tensor."
        ),
        "The last step of every rank but the first is `comm.send(x.grad, comm.rank - 1)`.",
    ),
    mistakes=by_first_failure(OBSERVE, JUDGE, MISTAKES),
)
