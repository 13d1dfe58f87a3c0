"""What students get wrong in the slices of 02.2 and 02.3: where one begins, where it ends, and along which axis.

Floor 4, room `exercises`. A slip is a function `slip(axis, place, many, stride, dilation)` that gives the slice of
`many` pixels for that place of the kernel, along the rows (axis 0) or the columns (axis 1).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from lockstep.exercises.exercise import Case, Mistake, Symptom
from lockstep.exercises.judge import Judge
from lockstep.exercises.lab02.output_size import output_size
from lockstep.exercises.lab02.parts import fails_like
from lockstep.exercises.observe import Observation

Slip = Callable[[int, int, int, int, int], slice]
STRIDE, PADDING, DILATION = 3, 4, 5  # places among the arguments, forward and backward
TOO_SHORT = ("is invalid for input of size", "stack expects each tensor to be equal size", "must match the size of")


def forward_through(slip: Slip) -> Callable[..., Tensor]:
    """`conv2d_forward` with slices of that kind."""

    def conv2d_forward(x, weight, bias, stride, padding, dilation, groups):
        n, (o, i, r, s) = len(x), weight.shape
        p, q = (output_size(x.shape[a], weight.shape[a], stride, padding, dilation) for a in (2, 3))
        padded = F.pad(x, [padding] * 4)
        places = _places(slip, (r, s), (p, q), stride, dilation)
        columns = torch.stack([padded[place] for place in places], 2).reshape(n, groups, i * r * s, p * q)
        return (weight.reshape(groups, o // groups, -1) @ columns).reshape(n, o, p, q) + bias.reshape(o, 1, 1)

    return conv2d_forward


def backward_through(slip: Slip) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """`conv2d_backward` with slices of that kind."""

    def conv2d_backward(grad, x, weight, stride, padding, dilation, groups):
        (n, c, h, w), (o, i, r, s), (p, q) = x.shape, weight.shape, grad.shape[2:]
        padded = F.pad(x, [padding] * 4)
        places = _places(slip, (r, s), (p, q), stride, dilation)
        columns = torch.stack([padded[place] for place in places], 2).reshape(n, groups, i * r * s, p * q)
        dy = grad.reshape(n, groups, o // groups, p * q)
        dweight = (dy @ columns.transpose(2, 3)).sum(0).reshape(weight.shape)
        dcolumns = (weight.reshape(groups, o // groups, -1).transpose(1, 2) @ dy).reshape(n, c, r * s, p, q)
        dpadded = torch.zeros_like(padded)
        for number, place in enumerate(places):
            dpadded[place] += dcolumns[:, :, number]
        return dpadded[:, :, padding : padding + h, padding : padding + w], dweight, grad.sum((0, 2, 3))

    return conv2d_backward


def _places(slip: Slip, kernel: tuple[int, int], many: tuple[int, int], stride: int, dilation: int) -> list:
    return [
        (..., slip(0, a, many[0], stride, dilation), slip(1, b, many[1], stride, dilation))
        for a in range(kernel[0])
        for b in range(kernel[1])
    ]


def _from(begin: int, many: int, stride: int) -> slice:
    return slice(begin, begin + many * stride, stride)


def end_too_early(axis: int, place: int, many: int, stride: int, dilation: int) -> slice:
    return slice(place * dilation, place * dilation + many, stride)


def end_without_dilation(axis: int, place: int, many: int, stride: int, dilation: int) -> slice:
    return slice(place * dilation, place + many * stride, stride)


def dilated_along(chosen: int) -> Slip:
    return lambda axis, place, many, stride, dilation: _from(place * (dilation if axis == chosen else 1), many, stride)


def strided_along(chosen: int) -> Slip:
    return lambda axis, place, many, stride, dilation: _from(place * dilation, many, stride if axis == chosen else 1)


def misses_pixels(where: int) -> Symptom:
    """A slice is too short on a case whose setting at `where` is not the usual one."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        told = "" if seen.error is None else seen.error.message
        return any(one in told for one in TOO_SHORT) and case.args[where] > (0 if where == PADDING else 1)

    return symptom


def slice_mistakes(judge: Judge, through: Callable[[Slip], Callable[..., object]]) -> tuple[Mistake, ...]:
    """The mistakes, for `forward_through` or `backward_through`."""
    dilated, strided = [[through(along(axis)) for axis in (0, 1)] for along in (dilated_along, strided_along)]
    return (
        Mistake(
            "ends a slice too early",
            through(end_too_early),
            "A slice of yours is too short here, where the stride is not 1 for the first time. p rows in steps of "
            "`stride` end at p * stride, counted from where they begin.",
            symptom=misses_pixels(STRIDE),
        ),
        Mistake(
            "ends a slice where it would without dilation",
            through(end_without_dilation),
            "A slice of yours is too short here, where there is dilation for the first time. It begins at "
            "a * dilation, so it ends at a * dilation + p * stride: the end moves with the beginning.",
            symptom=misses_pixels(DILATION),
        ),
        Mistake(
            "strides along one axis only",
            strided[0],
            "Your windows move by `stride` along one axis and by single pixels along the other. The stride counts for "
            "rows and columns alike.",
            symptom=fails_like(judge, *strided),
        ),
        Mistake(
            "dilates along one axis only",
            dilated[0],
            "Your windows have gaps along one axis and are dense along the other. Dilation counts for rows and columns "
            "alike.",
            symptom=fails_like(judge, *dilated),
        ),
    )
