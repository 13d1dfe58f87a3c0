"""02.4 `max_pool_backward`: who was the largest gets the gradient.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.lab02.output_size import output_size
from lockstep.exercises.lab02.parts import AUTOGRAD, by_first_part, counted, loses_the_dtype, same_parts, whole_numbers
from lockstep.exercises.observe import Call


def max_pool_backward(grad, x, kernel, stride):
    down, across = grad.shape[2:]
    slices = []
    for a in range(kernel):
        for b in range(kernel):
            slices.append((..., slice(a, a + stride * down, stride), slice(b, b + stride * across, stride)))
    largest = torch.stack([x[one] for one in slices], dim=2).max(dim=2).indices
    dx = torch.zeros_like(x)
    for place, one in enumerate(slices):
        dx[one] += grad * (largest == place)
    return dx


def window_by_window(grad, x, kernel, stride):
    n, c, h, w = x.shape
    dx = torch.zeros_like(x).reshape(n, c, h * w)
    for i in range(grad.shape[2]):
        for j in range(grad.shape[3]):
            top, left = i * stride, j * stride
            window = x[:, :, top : top + kernel, left : left + kernel]
            largest = window.reshape(n, c, -1).argmax(dim=2, keepdim=True)
            pixel = (top + largest // kernel) * w + left + largest % kernel
            dx.scatter_add_(2, pixel, grad[:, :, i, j].reshape(n, c, 1))
    return dx.reshape(n, c, h, w)


def number_by_number(grad, x, kernel, stride):
    dx = x * 0
    for n, c, i, j in np.ndindex(*grad.shape):
        best = None
        for a in range(i * stride, i * stride + kernel):
            for b in range(j * stride, j * stride + kernel):
                if best is None or x[n, c, a, b] > x[n, c, best[0], best[1]]:
                    best = (a, b)
        dx[n, c, best[0], best[1]] += grad[n, c, i, j]
    return dx


def max_pool_backward_stub(grad, x, kernel, stride):
    raise NotImplementedError("each output hands its gradient to the pixel it came from")


def _by_window(shares, put):
    """shares(window): how a window divides its gradient. put(old, share, grad): how that joins what is there."""

    def max_pool_backward(grad, x, kernel, stride):
        dx = torch.zeros_like(x)
        for i in range(grad.shape[2]):
            for j in range(grad.shape[3]):
                rows, columns = slice(i * stride, i * stride + kernel), slice(j * stride, j * stride + kernel)
                share = shares(x[:, :, rows, columns])
                dx[:, :, rows, columns] = put(dx[:, :, rows, columns], share, grad[:, :, i, j, None, None])
        return dx

    return max_pool_backward


def _first(window):
    flat = window.flatten(2)
    return torch.zeros_like(flat).scatter_(2, flat.argmax(2, keepdim=True), 1.0).view_as(window)


def _all_largest(window):
    return (window == window.amax((2, 3), keepdim=True)).to(window.dtype)


def _last(window):
    return _first(window.flip(2, 3)).flip(2, 3)


def _added(old, share, grad):
    return old + share * grad


everyone_who_is_largest = _by_window(_all_largest, _added)
shared_among_the_largest = _by_window(lambda w: _all_largest(w) / _all_largest(w).sum((2, 3), keepdim=True), _added)
the_last_of_equals = _by_window(_last, _added)
every_pixel_of_the_window = _by_window(torch.ones_like, _added)
an_equal_part_for_each = _by_window(lambda w: torch.full_like(w, 1 / w[0, 0].numel()), _added)
the_smallest = _by_window(lambda w: _first(-w), _added)
one_pixel_for_all_channels = _by_window(lambda w: _first(w.sum(1, keepdim=True)).expand_as(w), _added)
overwrites_where_windows_overlap = _by_window(_first, lambda old, share, grad: torch.where(share > 0, grad, old))
clears_the_window = _by_window(_first, lambda old, share, grad: share * grad)


def windows_side_by_side(grad, x, kernel, stride):
    """As if the stride were the kernel's size; windows that would hang over the edge are left out."""
    p, q = (min(g, s // kernel) for g, s in zip(grad.shape[2:], x.shape[2:], strict=True))
    return max_pool_backward(grad[:, :, :p, :q], x, kernel, kernel)


def forgets_where_the_window_is(grad, x, kernel, stride):
    dx = torch.zeros_like(x).flatten(2)
    for i in range(grad.shape[2]):
        for j in range(grad.shape[3]):
            window = x[:, :, i * stride : i * stride + kernel, j * stride : j * stride + kernel]
            dx.scatter_add_(2, window.flatten(2).argmax(2, keepdim=True), grad[:, :, i, j, None])
    return dx.view_as(x)


def computes_in_float32(grad, x, kernel, stride):
    return max_pool_backward(grad, x, kernel, stride).float()


def pooling_cases(rng: np.random.Generator) -> Iterator[Case]:
    settings = (
        (1, 1, 4, 4, 2, 2),
        (1, 1, 3, 6, 3, 3),
        (2, 2, 5, 7, 2, 2),
        (1, 1, 4, 5, 2, 1),
        (2, 3, 7, 6, 3, 2),
        (1, 2, 7, 7, 2, 3),
    )
    for n, c, h, w, kernel, stride in settings:
        x, sides = whole_numbers(rng, n, c, h, w, most=9), (output_size(side, kernel, stride, 0, 1) for side in (h, w))
        name = f"{counted(n, 'image')} {c}x{h}x{w}, kernel {kernel}, stride {stride}"
        yield Case(name, (whole_numbers(rng, n, c, *sides, most=9), x, kernel, stride))
    for kernel, stride in ((2, 2), (3, 2)):
        x = whole_numbers(rng, 2, 2, 7, 7, most=1)
        grad = whole_numbers(rng, 2, 2, *[output_size(7, kernel, stride, 0, 1)] * 2, most=9)
        yield Case(
            f"2 images 2x7x7 with many equal pixels, kernel {kernel}, stride {stride}", (grad, x, kernel, stride)
        )


JUDGE = same_parts("dx", given=("grad", "x"))

MAX_POOL = Exercise(
    id="02.4",
    title="Max pooling backward",
    function="max_pool_backward",
    points=2,
    asks=(
        "From `grad` (N, C, P, Q), the gradient of max pooling of `x` (N, C, H, W) with windows of `kernel` x `kernel` "
        "pixels that start every `stride` pixels, return the gradient for `x`. Of equal pixels the first of the window "
        "counts, row by row."
    ),
    reference=max_pool_backward,
    also_right=(window_by_window, number_by_number),
    stub=max_pool_backward_stub,
    cases=pooling_cases,
    observe=Call(),
    judge=JUDGE,
    core=False,
    forbidden=(
        "torch.nn.functional.max_pool2d",
        "torch.nn.functional.max_unpool2d",
        "torch.max_pool2d",
        "torch.nn.functional.max_pool2d_with_indices",
        "lockstep.nn.functional.max_pool2d",
        "lockstep.nn.functional.max_pool2d_backward",
        *AUTOGRAD,
    ),
    hints=(
        "An output is a copy of one pixel of its window. What happens to the other pixels' gradients? And to a pixel "
        "that was the largest of two windows?",
        (
            "Take the slices of the convolution once more: for place (a, b) of the window, the pixels of all windows "
            "at once. Stack them, and `.max(dim=...)` over the new axis has `.indices`: which place was the largest, "
            "of equals the first. Or loop over the outputs, window by window: that is right too, and slower."
        ),
        (
            "Then go through the places again. Wherever the largest was at this place, the slice of dx gets the "
            "gradient of the output, added: `grad * (largest == place)`."
        ),
    ),
    mistakes=by_first_part(
        JUDGE,
        (
            Mistake(
                "overwrites where windows overlap",
                overwrites_where_windows_overlap,
                "A pixel can be the largest of several windows and then gets the gradients of all of them: add, do not "
                "assign.",
            ),
            Mistake(
                "clears the window",
                clears_the_window,
                "You write zeros into the whole window first. Where windows overlap, that wipes out what the one "
                "before has left there.",
            ),
            Mistake(
                "everyone who is largest",
                everyone_who_is_largest,
                "Where several pixels are equally large, all of them get the whole gradient, and its sum grows. The "
                "output is a copy of one of them: the first.",
            ),
            Mistake(
                "shared among the largest",
                shared_among_the_largest,
                "You share the gradient among equal pixels. That would do, but it is not what was asked, and not what "
                "torch does: the first one gets all of it.",
            ),
            Mistake(
                "the last of equals",
                the_last_of_equals,
                "Of equal pixels the first of the window counts, row by row; yours is the last. `>` keeps the first, "
                "`>=` the last.",
            ),
            Mistake(
                "every pixel of the window",
                every_pixel_of_the_window,
                "Every pixel of the window gets the gradient. Only the largest one made a difference to the output.",
            ),
            Mistake(
                "an equal part for each",
                an_equal_part_for_each,
                "That is the gradient of average pooling. The output of max pooling depends on one pixel of the window "
                "alone.",
            ),
            Mistake(
                "the smallest",
                the_smallest,
                "The gradient goes to the smallest pixel of each window; the output was a copy of the largest.",
            ),
            Mistake(
                "one pixel for all channels",
                one_pixel_for_all_channels,
                "You look for the largest pixel once for all channels. Each channel is pooled on its own.",
            ),
            Mistake(
                "windows side by side",
                windows_side_by_side,
                "Your windows start every `kernel` pixels. They start every `stride` pixels, and may overlap or leave "
                "gaps.",
            ),
            Mistake(
                "forgets where the window is",
                forgets_where_the_window_is,
                "You use the place *within the window* as if it were a place in the image, so all gradients end up in "
                "the top rows. Add where the window begins.",
            ),
            loses_the_dtype(computes_in_float32, "images and `grad`"),
        ),
    ),
)
