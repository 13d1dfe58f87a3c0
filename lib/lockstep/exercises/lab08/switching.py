"""Exercise 08.3: from images shared out to neurons shared out, and back.

Floor 4, room `exercises`; the judge is that of lab 06, both passes in numbers and bytes. Wrong ways are in
`switching_mistakes.py`. Legend: x (own images, F), weight (own neurons, F), y (own images, all neurons).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from lockstep.comm import Communicator
from lockstep.exercises.compare import differs
from lockstep.exercises.exercise import Case, Exercise, on_ranks
from lockstep.exercises.judge import Finding
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab06.passes import PASSES, both_passes, numbers, right_passes
from lockstep.exercises.lab08.switching_mistakes import MISTAKES
from lockstep.exercises.observe import Observation, Simulate


def weird_trick(comm, x, weight, bias, images):
    own, r = images[comm.rank], comm.rank

    class AllImages(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return comm.all_gather(x, images)

        @staticmethod
        def backward(ctx, gradient):
            rows = [n * gradient.shape[1] for n in images]
            return comm.reduce_scatter(gradient, sizes=rows).view(images[r], -1)

    class AllNeurons(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            parts = comm.all_to_all(y, images, [own] * comm.size)
            return torch.cat(parts.split(own), dim=1)

        @staticmethod
        def backward(ctx, gradient):
            parts = torch.cat(gradient.chunk(comm.size, dim=1))
            return comm.all_to_all(parts, [own] * comm.size, images)

    return AllNeurons.apply(F.linear(AllImages.apply(x), weight, bias))


def trick_in_one_function(comm, x, weight, bias, images):
    p, r = comm.size, comm.rank

    class Layer(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight, bias):
            everything = comm.all_gather(x.detach(), sizes=images)
            ctx.save_for_backward(everything, weight)
            y = everything.mm(weight.t()) + bias
            mine = comm.all_to_all(y, send_sizes=images, recv_sizes=[images[r]] * p)
            return mine.view(p, images[r], len(weight)).transpose(0, 1).reshape(images[r], -1)

        @staticmethod
        def backward(ctx, dy):
            everything, weight = ctx.saved_tensors
            turned = dy.view(images[r], p, len(weight)).transpose(0, 1).reshape(p * images[r], -1)
            dy_all = comm.all_to_all(turned, [images[r]] * p, images)
            dx_all = dy_all.mm(weight)
            dx = comm.reduce_scatter(dx_all, sizes=[n * dx_all.shape[1] for n in images])
            return dx.view(images[r], -1), dy_all.t().mm(everything), dy_all.sum(0)

    return Layer.apply(x, weight, bias)


def trick_with_messages(comm, x, weight, bias, images):
    """Blocks go straight from rank to rank; a hook sends gradients back."""
    r, own = comm.rank, images[comm.rank]
    others = [rank for rank in range(comm.size) if rank != r]

    def swap(blocks, shapes):
        found = [blocks[rank] if rank == r else torch.empty(shape) for rank, shape in enumerate(shapes)]
        comm.exchange([(blocks[rank].contiguous(), rank) for rank in others], [(found[rank], rank) for rank in others])
        return found

    everything = torch.cat(swap([x.detach()] * comm.size, [(n, x.shape[1]) for n in images]))
    y = F.linear(everything, weight, bias)
    neurons = y.shape[1]

    class Back(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return torch.cat(swap(y.detach().split(images), [(own, neurons)] * comm.size), dim=1)

        @staticmethod
        def backward(ctx, gradient):
            whole = torch.cat(swap(gradient.split(neurons, dim=1), [(n, neurons) for n in images]))
            partial = whole @ weight.detach()
            sums = swap(partial.split(images), [(own, x.shape[1])] * comm.size)
            return torch.stack(sums).sum(0), whole

    return Back.apply(x, y)


def weird_trick_stub(comm, x, weight, bias, images):
    class AllImages(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x): ...

        @staticmethod
        def backward(ctx, gradient): ...

    class AllNeurons(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y): ...

        @staticmethod
        def backward(ctx, gradient): ...

    raise NotImplementedError("return all neurons of this rank's own images")


def pass_through(
    fn: Callable[..., Any],
    comm: Communicator,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    dy: Tensor,
    images: list[int],
) -> dict[str, Any]:
    """Both passes; backward begins with another gradient on every rank."""
    learning = {"weight": weight, "bias": bias}
    return both_passes(lambda x: fn(comm, x, weight, bias, list(images)), comm, x.requires_grad_(), dy, learning)


def right_switch(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """As lab 06 judges both passes. Where numbers differ, all of them are the evidence: one gradient has many causes."""
    found = right_passes(case, seen, expected)
    if found is None or not all(isinstance(one, dict) for one in seen.value):
        return found
    names = [name for name in expected.value[0] if name not in PASSES]
    got, want = ([[one.get(name) for name in names] for one in who.value] for who in (seen, expected))
    return found if differs(got, want, 1e-4, 1e-5) is None else replace(found, evidence=got)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    for images, inputs, neurons in (
        ([2], 3, 2),
        ([2, 2], 3, 2),
        ([3, 1], 4, 9),
        ([1, 3, 2], 3, 9),
        ([2, 1, 3, 2], 5, 8),
    ):
        ranks = len(images)
        each = [
            (numbers(rng, n, inputs), numbers(rng, neurons, inputs), numbers(rng, neurons), numbers(rng, n, ranks * neurons))
            for n in images
        ]  # fmt: skip
        words = " + ".join(map(str, images))
        yield on_ranks(ranks, list(images), each=each, name=f"{words} images, {inputs} inputs, {neurons} neurons each")


OBSERVE, JUDGE = Simulate(pass_through), right_switch

WEIRD_TRICK = Exercise(
    id="08.3",
    title="Switch between data and model parallel",
    function="weird_trick",
    points=3,
    asks=(
        "A linear layer behind data-parallel ones. Rank r has `images[r]` images: `x`, (own images, inputs). Every rank has "
        "equally many neurons: `weight`, (own neurons, inputs), and `bias`. Compute this rank's neurons for the images of "
        "*all* ranks, and return all neurons, in rank order, of this rank's *own* images. Each rank goes on with a loss of "
        "its own images; the sum of these losses counts. After backward `x.grad`, `weight.grad` and `bias.grad` are those of "
        "one process, each rank's part. Forward sends as much as an all-gather of the images and an all-to-all of the "
        "outputs, backward the same."
    ),
    reference=weird_trick,
    also_right=(trick_in_one_function, trick_with_messages),
    stub=weird_trick_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    hints=(
        (
            "Draw the outputs as a table, one row an image, one column a neuron. Which part of it can a rank compute when it has "
            "all images? Which part does it need? The first are columns, the second rows."
        ),
        (
            "In: an all-gather of `x` with sizes `images`. Backward every rank has a gradient of *all* images, from its own "
            "neurons alone. Rank r needs those of its images, added up: which collective adds up and gives each its part?"
        ),
        (
            "Out: an all-to-all. `comm.all_to_all(y, send_sizes, recv_sizes)` counts rows: rank j gets the rows of its images. "
            "What arrives are blocks below each other, one from each rank, that belong side by side. Backward is the same "
            "the other way round."
        ),
        "Out, forward: `torch.cat(parts.split(own), dim=1)`, with `parts` what the all-to-all gave.",
    ),
    mistakes=by_first_failure(OBSERVE, JUDGE, MISTAKES),
)
