"""02.5 `batch_norm_backward`: mean and variance depend on every pixel.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.lab02.parts import (
    AUTOGRAD,
    by_first_part,
    counted,
    loses_the_dtype,
    real_numbers,
    same_parts,
    wrong_shape,
)
from lockstep.exercises.observe import Call


def batch_norm_backward(grad, x, weight, eps):
    axes = (0, 2, 3)
    mean = x.mean(axes, keepdim=True)
    variance = x.var(axes, unbiased=False, keepdim=True)
    scale = 1 / (variance + eps).sqrt()
    z = (x - mean) * scale
    dz = grad * weight.reshape(-1, 1, 1)
    dx = scale * (dz - dz.mean(axes, keepdim=True) - z * (dz * z).mean(axes, keepdim=True))
    return dx, (grad * z).sum(axes), grad.sum(axes)


def step_by_step(grad, x, weight, eps):
    """Back through the computation, one operation after the other, as Ioffe and Szegedy 2015 write it."""
    n, c, h, w = x.shape
    many = n * h * w
    flat, up = (one.transpose(0, 1).reshape(c, many) for one in (x, grad))
    centred = flat - flat.mean(1, keepdim=True)
    spread = centred.square().sum(1, keepdim=True) / many + eps
    normal = centred / spread.sqrt()
    d_normal = up * weight[:, None]
    d_variance = (d_normal * centred).sum(1, keepdim=True) * -0.5 * spread**-1.5
    d_mean = -(d_normal / spread.sqrt()).sum(1, keepdim=True) - 2 * d_variance * centred.sum(1, keepdim=True) / many
    d_flat = d_normal / spread.sqrt() + d_variance * 2 * centred / many + d_mean / many
    return d_flat.reshape(c, n, h, w).transpose(0, 1), (up * normal).sum(1), up.sum(1)


def by_the_matrix_of_derivatives(grad, x, weight, eps):
    """For each channel the whole matrix of dz_j / dx_i, which is small here."""
    dx, dweight, dbias = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
    for c in range(x.shape[1]):
        values, told = x[:, c].reshape(-1), grad[:, c].reshape(-1)
        many, deviation = len(values), torch.sqrt(values.var(correction=0) + eps)
        z = (values - values.sum() / many) / deviation
        matrix = (torch.eye(many, dtype=x.dtype) - 1 / many - torch.outer(z, z) / many) / deviation
        dx[:, c] = (weight[c] * (matrix @ told)).reshape(x[:, c].shape)
        dweight[c], dbias[c] = told @ z, told.sum()
    return dx, dweight, dbias


def batch_norm_backward_stub(grad, x, weight, eps):
    raise NotImplementedError("the gradients for x, weight and bias")


def _changed(**how):
    """The right answer with some of its parts changed; what is not named stays."""

    def batch_norm_backward(grad, x, weight, eps):
        axes = how.get("axes", (0, 2, 3))
        variance = x.var(axes, unbiased=how.get("unbiased", False), keepdim=True)
        scale = (variance + how.get("eps", eps)).rsqrt() if how.get("root", True) else 1 / (variance + eps)
        z = (x - x.mean(axes, keepdim=True)) * scale
        dz = grad * (weight.reshape(-1, 1, 1) if how.get("weight", True) else 1)
        dx = dz
        if how.get("by_mean", True):
            dx = dx - dz.mean(axes, keepdim=True)
        if how.get("by_variance", True):
            dx = dx - z * (dz * z).mean(axes, keepdim=True)
        dweight, dbias = grad * how.get("times", lambda x, z: z)(x, z), grad
        total = how.get("total", torch.sum)
        return scale * dx, total(dweight, (0, 2, 3)), total(dbias, (0, 2, 3))

    return batch_norm_backward


takes_both_for_constants = _changed(by_mean=False, by_variance=False)
takes_the_variance_for_a_constant = _changed(by_variance=False)
takes_the_mean_for_a_constant = _changed(by_mean=False)
unbiased_variance = _changed(unbiased=True)
forgets_eps = _changed(eps=0.0)
divides_by_the_variance = _changed(root=False)
forgets_the_weight = _changed(weight=False)
averages_where_it_should_sum = _changed(total=torch.mean)
each_image_by_itself = _changed(axes=(2, 3))
the_weight_meets_x = _changed(times=lambda x, z: x)


def eps_outside_of_the_root(grad, x, weight, eps):
    variance = x.var((0, 2, 3), unbiased=False, keepdim=True)
    z = (x - x.mean((0, 2, 3), keepdim=True)) / (variance.sqrt() + eps)
    dz = grad * weight.reshape(-1, 1, 1)
    dx = dz - dz.mean((0, 2, 3), keepdim=True) - z * (dz * z).mean((0, 2, 3), keepdim=True)
    return dx / (variance.sqrt() + eps), (grad * z).sum((0, 2, 3)), grad.sum((0, 2, 3))


def one_for_each_pixel(grad, x, weight, eps):
    dx, _, _ = batch_norm_backward(grad, x, weight, eps)
    z = (x - x.mean((0, 2, 3), keepdim=True)) / (x.var((0, 2, 3), unbiased=False, keepdim=True) + eps).sqrt()
    return dx, (grad * z).sum(0), grad.sum(0)


def computes_in_float32(grad, x, weight, eps):
    return tuple(one.float() for one in batch_norm_backward(grad, x, weight, eps))


def norm_cases(rng: np.random.Generator) -> Iterator[Case]:
    for n, c, h, w, eps in ((2, 1, 1, 2, 0.5), (3, 2, 1, 1, 0.1), (2, 2, 2, 3, 1e-5), (4, 3, 3, 2, 0.25)):
        x, weight = real_numbers(rng, n, c, h, w) + 1, real_numbers(rng, c)
        name = f"{counted(n, 'image')} {c}x{h}x{w}, eps {eps:g}"
        yield Case(name, (real_numbers(rng, n, c, h, w), x, weight, eps))


JUDGE = same_parts("dx", "dweight", "dbias", given=("grad", "x", "weight"))

BATCH_NORM = Exercise(
    id="02.5",
    title="Batch norm backward",
    function="batch_norm_backward",
    points=3,
    asks=(
        "y = weight * z + bias with z = (x - mean) / sqrt(variance + eps), where mean and (biased) variance of each "
        "channel are those of `x` itself over images and pixels. From `grad`, the gradient of y, return `dx`, "
        "`dweight` (C,) and `dbias` (C,)."
    ),
    reference=batch_norm_backward,
    also_right=(step_by_step, by_the_matrix_of_derivatives),
    stub=batch_norm_backward_stub,
    cases=norm_cases,
    observe=Call(),
    judge=JUDGE,
    core=False,
    forbidden=(
        "torch.nn.functional.batch_norm",
        "torch.batch_norm",
        "torch.native_batch_norm",
        "lockstep.nn.functional.batch_norm_backward",
        *AUTOGRAD,
    ),
    hints=(
        (
            "weight and bias are easy: each number of the channel adds its part to both. For x, ask by how many ways a "
            "pixel changes z: by itself, by the mean, and by the variance."
        ),
        (
            "Add the same number to all pixels of a channel: z stays as it is, so the elements of dx must add up to 0 "
            "in each channel. Multiply all distances from the mean by one factor: z stays nearly as it is, so dx has "
            "almost nothing left in the direction of z. Two things are taken off."
        ),
        (
            "With dz = grad * weight: dx is dz, less its mean over the channel, less z times the mean of dz * z; and "
            "all of it divided by sqrt(variance + eps)."
        ),
    ),
    mistakes=by_first_part(
        JUDGE,
        (
            Mistake(
                "takes mean and variance for constants",
                takes_both_for_constants,
                "You treat mean and variance as constants. They are computed from `x`, so every pixel of the channel "
                "changes them, and through them all of z. (In evaluation, with stored statistics, you would be right.)",
            ),
            Mistake(
                "takes the variance for a constant",
                takes_the_variance_for_a_constant,
                "The part that goes through the mean is there; the one through the variance is missing.",
            ),
            Mistake(
                "takes the mean for a constant",
                takes_the_mean_for_a_constant,
                "The part that goes through the variance is there; the one through the mean is missing. In each "
                "channel the elements of dx must add up to 0.",
            ),
            Mistake(
                "unbiased variance",
                unbiased_variance,
                "Your variance divides by M - 1. Within the batch norm divides by M, the number of values in the "
                "channel; only the running variance for evaluation is the unbiased one. `x.var` needs "
                "`unbiased=False`.",
            ),
            Mistake("forgets eps", forgets_eps, "The root is taken of variance + eps, here as in the forward pass."),
            Mistake(
                "eps outside of the root",
                eps_outside_of_the_root,
                "You add eps to the standard deviation. It is added to the variance, and the root is taken of both.",
            ),
            Mistake(
                "divides by the variance",
                divides_by_the_variance,
                "You divide by the variance. z is in units of its *root*, the standard deviation.",
            ),
            Mistake(
                "forgets the weight in dx",
                forgets_the_weight,
                "y = weight * z + bias: the gradient passes the weight on its way to z.",
            ),
            Mistake(
                "averages where it should sum",
                averages_where_it_should_sum,
                "dweight and dbias are means in your version. Every value of the channel was multiplied by the weight, "
                "and each adds its part: sums.",
            ),
            Mistake(
                "each image by itself",
                each_image_by_itself,
                "Your mean and variance are those of one image. Batch norm takes them over all images of the batch, "
                "which is what makes it depend on the batch.",
            ),
            Mistake(
                "the weight meets x",
                the_weight_meets_x,
                "dweight multiplies `grad` by `x`. The weight was multiplied by z, the normalised value.",
            ),
            Mistake(
                "a weight for each pixel",
                one_for_each_pixel,
                "Your dweight still has axes for the pixels. There is one weight for a channel: sum over images, rows "
                "and columns.",
                symptom=wrong_shape(1, lambda case, got, want: got.dim() > 1),
            ),
            loses_the_dtype(computes_in_float32, "images and `grad`"),
        ),
    ),
)
