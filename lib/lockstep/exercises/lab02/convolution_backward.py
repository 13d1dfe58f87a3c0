"""02.3 `conv2d_backward`: the gradients of a convolution for input, weight and bias.

Floor 4, room `exercises`; the mistakes are in `convolution_slips.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch.nn import functional as F

from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.judge import Finding
from lockstep.exercises.lab02 import convolution_slips
from lockstep.exercises.lab02.parts import AUTOGRAD, by_first_part, same_parts
from lockstep.exercises.lab02.shapes import convolutions
from lockstep.exercises.observe import Call, Observation
from lockstep.exercises.plain import short


def conv2d_backward(grad, x, weight, stride, padding, dilation, groups):
    (n, c, h, w), (o, i, r, s), (p, q) = x.shape, weight.shape, grad.shape[2:]
    padded = F.pad(x, (padding, padding, padding, padding))
    slices = []
    for a in range(0, r * dilation, dilation):
        for b in range(0, s * dilation, dilation):
            slices.append((..., slice(a, a + stride * p, stride), slice(b, b + stride * q, stride)))
    columns = torch.stack([padded[one] for one in slices], dim=2).reshape(n, groups, i * r * s, p * q)
    kernels = weight.reshape(groups, o // groups, i * r * s)
    dy = grad.reshape(n, groups, o // groups, p * q)
    dweight = (dy @ columns.transpose(2, 3)).sum(0).reshape(o, i, r, s)
    dcolumns = (kernels.transpose(1, 2) @ dy).reshape(n, c, r * s, p, q)
    dpadded = torch.zeros_like(padded)
    for place, one in enumerate(slices):
        dpadded[one] += dcolumns[:, :, place]
    return dpadded[:, :, padding : padding + h, padding : padding + w], dweight, grad.sum((0, 2, 3))


def place_by_place(grad, x, weight, stride, padding, dilation, groups):
    """No columns: for each place of the kernel what it read, and where that goes back to."""
    (n, c, h, w), (o, i, r, s), (p, q) = x.shape, weight.shape, grad.shape[2:]
    framed = x.new_zeros(n, c, h + 2 * padding, w + 2 * padding)
    framed[:, :, padding : padding + h, padding : padding + w] = x
    back, dweight = torch.zeros_like(framed), torch.empty_like(weight)
    told = grad.reshape(n, groups, o // groups, p, q)
    for a in range(r):
        rows = torch.arange(p) * stride + a * dilation
        for b in range(s):
            columns = torch.arange(q) * stride + b * dilation
            read = framed[:, :, rows][..., columns].reshape(n, groups, i, p, q)
            dweight[:, :, a, b] = torch.einsum("ngopq,ngipq->goi", told, read).reshape(o, i)
            kernels = weight[:, :, a, b].reshape(groups, o // groups, i)
            part = torch.einsum("goi,ngopq->ngipq", kernels, told).reshape(n, c, p, q)
            down = slice(a * dilation, a * dilation + (p - 1) * stride + 1, stride)
            back[:, :, down, b * dilation : b * dilation + (q - 1) * stride + 1 : stride] += part
    return back.narrow(2, padding, h).narrow(3, padding, w), dweight, grad.sum(dim=0).sum(dim=-1).sum(dim=-1)


def window_by_window(grad, x, weight, stride, padding, dilation, groups):
    (h, w), (o, i, r, s) = x.shape[2:], weight.shape
    framed = F.pad(x, [padding] * 4)
    dframed, dweight = framed.clone().zero_(), weight.clone().zero_()
    for g in range(groups):
        outs, ins = slice(g * o // groups, (g + 1) * o // groups), slice(g * i, (g + 1) * i)
        for row in range(grad.shape[2]):
            for column in range(grad.shape[3]):
                down = slice(row * stride, row * stride + dilation * (r - 1) + 1, dilation)
                across = slice(column * stride, column * stride + dilation * (s - 1) + 1, dilation)
                told = grad[:, outs, row, column]
                dweight[outs] += torch.tensordot(told.T, framed[:, ins, down, across], 1)
                dframed[:, ins, down, across] += torch.tensordot(told, weight[outs], 1)
    rows, columns = torch.arange(h) + padding, torch.arange(w) + padding
    return dframed[:, :, rows][:, :, :, columns], dweight, torch.einsum("nopq->o", grad)


def conv2d_backward_stub(grad, x, weight, stride, padding, dilation, groups):
    raise NotImplementedError("the gradients for x, weight and bias")


NAMES = ("dx", "dweight", "dbias")
same = same_parts(*NAMES, given=("grad", "x", "weight"))


def as_a_change_of_the_sum(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """A convolution is linear in each argument: add 1 to a number, and sum(grad * y) changes by just its gradient."""
    found = same(case, seen, expected)
    if found is None or not isinstance(found.evidence, tuple) or found.evidence[0] not in NAMES:
        return found
    name, got = found.evidence
    want = expected.value[NAMES.index(name)]
    if not isinstance(got, torch.Tensor) or got.shape != want.shape or got.dtype != want.dtype:
        return found
    wrong = ~torch.isclose(got, want, rtol=1e-9, atol=1e-9)
    place = tuple(wrong.nonzero()[0].tolist())
    told = (
        f"Add 1 to {name[1:]}{list(place)}, and sum(grad * y) changes by {short(want[place].item())}; your {name} says "
        f"{short(got[place].item())} ({int(wrong.sum())} of {want.numel()} elements of {name} differ)."
    )
    return Finding(told, found.expected, found.got, found.evidence)


def backward_cases(rng: np.random.Generator) -> Iterator[Case]:
    for name, x, weight, _, grad, how in convolutions(rng):
        yield Case(name, (grad, x, weight, *how))


CONVOLUTION_BACKWARD = Exercise(
    id="02.3",
    title="Convolution backward",
    function="conv2d_backward",
    points=4,
    asks=(
        "From `grad`, the gradient of the output (N, O, P, Q), return three gradients: `dx` for the images, `dweight` "
        "for the kernels and `dbias` for the bias (O,), each in the shape of what it belongs to."
    ),
    reference=conv2d_backward,
    also_right=(place_by_place, window_by_window),
    stub=conv2d_backward_stub,
    cases=backward_cases,
    observe=Call(),
    judge=as_a_change_of_the_sum,
    forbidden=(
        "torch.nn.functional.conv2d",
        "torch.nn.functional.unfold",
        "torch.nn.functional.fold",
        "torch.nn.functional.conv_transpose2d",
        "torch.conv2d",
        "torch.conv_transpose2d",
        "torch.nn.grad.conv2d_input",
        "torch.nn.grad.conv2d_weight",
        "lockstep.nn.functional.conv2d_backward",
        "lockstep.nn.functional.conv2d_loops_backward",
        *AUTOGRAD,
    ),
    hints=(
        (
            "Go back to one product of the forward pass: y[n, o, p, q] got x * weight from one pixel and one weight. "
            "On the way back the pixel gets grad * weight and the weight gets grad * x. Now add up over everything "
            "that each of them took part in."
        ),
        (
            "Build the columns X of the forward pass again. There, for each group, Y = W X was one matrix product; so "
            "dW = dY X^T and dX = W^T dY. Check it by the shapes: nothing else fits together."
        ),
        (
            "dX has a row for each channel and place of the kernel. Forward, row (channel, place) was *read* from a "
            "slice of the padded images; now it is *added* to the same slice of a padded dx that begins with zeros. "
            "Windows overlap, so add. At the end cut the frame off."
        ),
        (
            "Axes: dy (N, groups, O // groups, P * Q), columns (N, groups, I * R * S, P * Q). dweight is dy @ columns "
            "with its last two axes exchanged, summed over the images; dbias = grad.sum((0, 2, 3))."
        ),
    ),
    mistakes=by_first_part(as_a_change_of_the_sum, convolution_slips.mistakes(conv2d_backward, as_a_change_of_the_sum)),
)
