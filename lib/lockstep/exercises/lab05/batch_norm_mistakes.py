"""Exercise 05.7: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; the exercise is in `batch_norm.py`.
"""

from __future__ import annotations

import torch

from lockstep.exercises.exercise import Mistake
from lockstep.exercises.lab05.batch_norm_right import _FromMoments, _SumOverRanks, sync_batch_norm
from lockstep.exercises.symptoms import raises


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


MISTAKES = (
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
)
