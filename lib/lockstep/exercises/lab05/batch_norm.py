"""Exercise 05.7: batch norm over the images of all ranks.

Floor 4, room `exercises`.
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
from lockstep.exercises.exercise import Case, Exercise, Mistake, on_ranks
from lockstep.exercises.judge import Finding, all_of, same_value
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab05.toys import in_words, named_first
from lockstep.exercises.observe import Observation, Simulate
from lockstep.exercises.symptoms import raises


def sync_batch_norm(comm, x, weight, bias, eps):
    def wide(per_channel):
        return per_channel.view(1, -1, 1, 1)

    class Normalise(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight, bias):
            count = torch.full_like(weight, x[:, 0].numel())
            own = torch.stack([x.sum((0, 2, 3)), (x * x).sum((0, 2, 3)), count])
            sums, squares, count = comm.all_reduce(own)
            mean = sums / count
            scale = (squares / count - mean**2 + eps).rsqrt()
            normal = (x - wide(mean)) * wide(scale)
            ctx.save_for_backward(normal, weight, scale, count)
            return normal * wide(weight) + wide(bias)

        @staticmethod
        def backward(ctx, dy):
            normal, weight, scale, count = ctx.saved_tensors
            own = torch.stack([dy.sum((0, 2, 3)), (dy * normal).sum((0, 2, 3))])
            mean_dy, mean_dy_normal = comm.all_reduce(own.clone()) / count
            dx = (dy - wide(mean_dy) - normal * wide(mean_dy_normal)) * wide(weight * scale)
            return dx, own[1], own[0]

    return Normalise.apply(x, weight, bias)


class _FromMoments(torch.autograd.Function):
    """Gathers each rank's count, mean and sum of squared deviations, and joins them without cancellation."""

    @staticmethod
    def forward(ctx, comm, x, weight, bias, eps):
        flat = x.transpose(0, 1).flatten(1)
        n = flat.shape[1]
        mean = flat.mean(1) if n else torch.zeros_like(weight)
        moments = torch.stack([torch.full_like(mean, n), mean, ((flat - mean[:, None]) ** 2).sum(1)])
        all_moments = comm.all_gather(moments[None])
        counts, means, deviations = all_moments.unbind(1)
        total = counts.sum(0)
        centre = (counts * means).sum(0) / total
        variance = (deviations + counts * (means - centre) ** 2).sum(0) / total
        ctx.comm, ctx.total = comm, total
        ctx.deviation = torch.sqrt(variance + eps)
        ctx.save_for_backward(x, weight, centre)
        x_hat = (x - centre[:, None, None]) / ctx.deviation[:, None, None]
        return weight[:, None, None] * x_hat + bias[:, None, None]

    @staticmethod
    def backward(ctx, grad):
        x, weight, centre = ctx.saved_tensors
        x_hat = (x - centre[:, None, None]) / ctx.deviation[:, None, None]
        d_bias, d_weight = grad.sum(dim=(0, 2, 3)), (grad * x_hat).sum(dim=(0, 2, 3))
        both = ctx.comm.all_reduce(torch.cat([d_bias, d_weight]))
        first, second = (both / ctx.total.repeat(2)).chunk(2)
        d_x = grad - first[:, None, None] - x_hat * second[:, None, None]
        return None, d_x * (weight / ctx.deviation)[:, None, None], d_weight, d_bias, None


def sync_batch_norm_from_moments(comm, x, weight, bias, eps):
    return _FromMoments.apply(comm, x, weight, bias, eps)


class _SumOverRanks(torch.autograd.Function):
    """The sum over ranks; backward is the same sum of the gradients. Autograd does the rest."""

    @staticmethod
    def forward(ctx, comm, tensor):
        ctx.comm = comm
        return comm.all_reduce(tensor.clone())

    @staticmethod
    def backward(ctx, gradient):
        return None, ctx.comm.all_reduce(gradient.clone())


def sync_batch_norm_by_autograd(comm, x, weight, bias, eps):
    n, c, h, w = x.shape
    own = torch.cat([x.sum(dim=[0, 2, 3]), (x**2).sum(dim=[0, 2, 3]), x.new_tensor([n * h * w])])
    total = _SumOverRanks.apply(comm, own)
    mean, square = total[:c] / total[-1], total[c:-1] / total[-1]
    x_hat = (x - mean.reshape(c, 1, 1)) / (square - mean * mean + eps).sqrt().reshape(c, 1, 1)
    return x_hat * weight.reshape(c, 1, 1) + bias.reshape(c, 1, 1)


def sync_batch_norm_stub(comm, x, weight, bias, eps):
    raise NotImplementedError("normalise over the images of all ranks, and send once in each direction")


def normalises_its_own_images(comm, x, weight, bias, eps):
    mean, variance = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), keepdim=True, unbiased=False)
    return (x - mean) / (variance + eps).sqrt() * weight.view(1, -1, 1, 1) + bias.view(1, -1, 1, 1)


def averages_the_variances(comm, x, weight, bias, eps):
    mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
    mean, variance = _SumOverRanks.apply(comm, torch.stack([mean, variance])) / comm.size
    x_hat = (x - mean.view(1, -1, 1, 1)) / (variance + eps).sqrt().view(1, -1, 1, 1)
    return x_hat * weight.view(1, -1, 1, 1) + bias.view(1, -1, 1, 1)


def averages_the_means(comm, x, weight, bias, eps):
    own = torch.stack([x.mean((0, 2, 3)), (x**2).mean((0, 2, 3))])
    mean, square = _SumOverRanks.apply(comm, own) / comm.size
    x_hat = (x - mean.view(1, -1, 1, 1)) / (square - mean**2 + eps).sqrt().view(1, -1, 1, 1)
    return x_hat * weight.view(1, -1, 1, 1) + bias.view(1, -1, 1, 1)


def forgets_the_backward(comm, x, weight, bias, eps):
    own = torch.stack([x.sum((0, 2, 3)), (x**2).sum((0, 2, 3)), torch.full_like(weight, x[:, 0].numel())]).detach()
    sums, squares, count = comm.all_reduce(own)
    mean = sums / count
    x_hat = (x - mean.view(1, -1, 1, 1)) * (squares / count - mean**2 + eps).rsqrt().view(1, -1, 1, 1)
    return x_hat * weight.view(1, -1, 1, 1) + bias.view(1, -1, 1, 1)


def leaves_without_images(comm, x, weight, bias, eps):
    return x * weight.view(1, -1, 1, 1) if len(x) == 0 else sync_batch_norm(comm, x, weight, bias, eps)


def forgets_the_view(comm, x, weight, bias, eps):
    own = torch.stack([x.sum((0, 2, 3)), (x**2).sum((0, 2, 3)), torch.full_like(weight, x[:, 0].numel())])
    sums, squares, count = _SumOverRanks.apply(comm, own)
    mean = sums / count
    return (x - mean) / (squares / count - mean**2 + eps).sqrt() * weight + bias


def sends_twice(comm, x, weight, bias, eps):
    count = comm.all_reduce(torch.full_like(weight, x[:, 0].numel()).detach())
    own = torch.stack([x.sum((0, 2, 3)), (x**2).sum((0, 2, 3))])
    mean, square = _SumOverRanks.apply(comm, own) / count
    x_hat = (x - mean.view(1, -1, 1, 1)) / (square - mean**2 + eps).sqrt().view(1, -1, 1, 1)
    return x_hat * weight.view(1, -1, 1, 1) + bias.view(1, -1, 1, 1)


def divides_by_one_less(comm, x, weight, bias, eps):
    own = torch.stack([x.sum((0, 2, 3)), (x**2).sum((0, 2, 3)), torch.full_like(weight, x[:, 0].numel())])
    sums, squares, count = _SumOverRanks.apply(comm, own)
    mean = sums / count
    variance = (squares - count * mean**2) / (count - 1)
    x_hat = (x - mean.view(1, -1, 1, 1)) / (variance + eps).sqrt().view(1, -1, 1, 1)
    return x_hat * weight.view(1, -1, 1, 1) + bias.view(1, -1, 1, 1)


def adds_eps_outside(comm, x, weight, bias, eps):
    own = torch.stack([x.sum((0, 2, 3)), (x**2).sum((0, 2, 3)), torch.full_like(weight, x[:, 0].numel())])
    sums, squares, count = _SumOverRanks.apply(comm, own)
    mean = sums / count
    x_hat = (x - mean.view(1, -1, 1, 1)) / ((squares / count - mean**2).sqrt() + eps).view(1, -1, 1, 1)
    return x_hat * weight.view(1, -1, 1, 1) + bias.view(1, -1, 1, 1)


class _ReducesWeightsToo(_FromMoments):
    @staticmethod
    def backward(ctx, grad):
        x, weight, centre = ctx.saved_tensors
        x_hat = (x - centre[:, None, None]) / ctx.deviation[:, None, None]
        own = torch.cat([grad.sum(dim=(0, 2, 3)), (grad * x_hat).sum(dim=(0, 2, 3))])
        d_bias, d_weight = ctx.comm.all_reduce(own).chunk(2)
        first, second = d_bias / ctx.total, d_weight / ctx.total
        d_x = grad - first[:, None, None] - x_hat * second[:, None, None]
        return None, d_x * (weight / ctx.deviation)[:, None, None], d_weight, d_bias, None


def reduces_weights_too(comm, x, weight, bias, eps):
    return _ReducesWeightsToo.apply(comm, x, weight, bias, eps)


class _LocalSumsInBackward(_FromMoments):
    @staticmethod
    def backward(ctx, grad):
        x, weight, centre = ctx.saved_tensors
        x_hat = (x - centre[:, None, None]) / ctx.deviation[:, None, None]
        d_bias, d_weight = grad.sum(dim=(0, 2, 3)), (grad * x_hat).sum(dim=(0, 2, 3))
        first, second = d_bias / ctx.total, d_weight / ctx.total
        d_x = grad - first[:, None, None] - x_hat * second[:, None, None]
        return None, d_x * (weight / ctx.deviation)[:, None, None], d_weight, d_bias, None


def uses_local_sums_in_backward(comm, x, weight, bias, eps):
    return _LocalSumsInBackward.apply(comm, x, weight, bias, eps)


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
    mistakes=by_first_failure(
        OBSERVE,
        JUDGE,
        (
            Mistake(
                "normalises its own images only",
                normalises_its_own_images,
                "Every rank uses the mean and variance of its own images; nothing is sent. The same image would come out "
                "differently on another rank.",
            ),
            Mistake(
                "BN averages variances",
                averages_the_variances,
                "The mean of the ranks' variances is not the variance of all images: it leaves out how far the ranks' "
                "means are apart. Send sums of x and of x squared, and work the variance out from the totals.",
            ),
            Mistake(
                "weights each rank alike though shards differ",
                averages_the_means,
                "You average the ranks' means, as if all had equally many images. Add up sums and counts, and divide once, "
                "after the reduction.",
            ),
            Mistake(
                "forgets the backward",
                forgets_the_backward,
                "Forward is right. In backward mean and variance count as constants, but they depend on every image of "
                "every rank. The gradient of `x` lacks what flows through them.",
            ),
            Mistake(
                "local sums in backward",
                uses_local_sums_in_backward,
                "The gradient of `x` comes from this rank's images only. An image here changed the mean that the others used "
                "too. `comm` is outside autograd, which knows nothing of what you sent: write a backward that adds up "
                "over all ranks.",
            ),
            Mistake(
                "reduces the weights' gradients too",
                reduces_weights_too,
                "The gradients of `weight` and `bias` hold the sums over all ranks. Data parallel training adds up those "
                "of all parameters afterwards, these included: they would count several times. Leave this rank's part.",
            ),
            Mistake(
                "sends twice in one direction",
                sends_twice,
                "The numbers are right, but forward calls two collectives. Each costs a latency and a wait for the slowest "
                "rank, in every layer: put the count into the same tensor as the sums.",
            ),
            Mistake(
                "leaves without images",
                leaves_without_images,
                "A rank without images leaves early, and the others wait for it for ever. It has nothing to add, but it has "
                "to make the same calls, in forward and in backward.",
                symptom=raises("Deadlock"),
            ),
            Mistake(
                "lines up channels with pixels",
                forgets_the_view,
                "A 1-D tensor lines up with the *last* dimension of `x`, its width. A number for each channel needs the "
                "shape (1, channels, 1, 1), as `.view(1, -1, 1, 1)` gives it.",
                symptom=raises("RuntimeError", "must match the size"),
            ),
            Mistake(
                "divides by one less",
                divides_by_one_less,
                "That is the unbiased variance, divided by one less than the count. Batch norm normalises with the biased "
                "one; the unbiased one is for the running average only.",
            ),
            Mistake(
                "adds eps outside the root",
                adds_eps_outside,
                "`eps` is added to the variance before the square root is taken, not to the deviation after it.",
            ),
        ),
    ),
)
