"""Exercise 05.7: right ways, and the skeleton.

Floor 4, room `exercises`; the exercise is in `batch_norm.py`.
"""

from __future__ import annotations

import torch


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
