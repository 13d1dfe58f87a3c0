"""02.2 `conv2d_forward`: convolution as one matrix product.

Floor 4, room `exercises`; mistakes in a slice are in `slices.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lockstep.exercises.exercise import Case, Exercise
from lockstep.exercises.lab02.convolution_mistakes import JUDGE, MISTAKES
from lockstep.exercises.lab02.convolution_right import (
    by_a_sum_over_the_kernel,
    by_loops,
    by_views_of_the_windows,
    conv2d_forward,
    conv2d_forward_stub,
)
from lockstep.exercises.lab02.parts import by_first_part
from lockstep.exercises.lab02.shapes import convolutions
from lockstep.exercises.observe import Call


def convolution_cases(rng: np.random.Generator) -> Iterator[Case]:
    for name, x, weight, bias, _, how in convolutions(rng):
        yield Case(name, (x, weight, bias, *how))


CONVOLUTION = Exercise(
    id="02.2",
    title="Convolution forward",
    function="conv2d_forward",
    points=3,
    asks=(
        "Return the convolution of the images `x` (N, C, H, W) with the kernels `weight` (O, C / groups, R, S), plus "
        "`bias` (O,), as deep learning has it: kernels are not flipped. Same dtype as `x`."
    ),
    reference=conv2d_forward,
    also_right=(by_a_sum_over_the_kernel, by_views_of_the_windows, by_loops),
    stub=conv2d_forward_stub,
    cases=convolution_cases,
    observe=Call(),
    judge=JUDGE,
    forbidden=(
        "torch.nn.functional.conv2d",
        "torch.nn.functional.unfold",
        "torch.nn.functional.conv_transpose2d",
        "torch.conv2d",
        "torch.convolution",
        "lockstep.nn.functional.conv2d",
        "lockstep.nn.functional.conv2d_loops",
    ),
    hints=(
        (
            "Do it for one place of the kernel first, say its top left. Which pixels of the padded images does that "
            "one weight meet, over all windows? They are a slice with a step: the worked example above."
        ),
        (
            "The slice for place (a, b) begins at row a * dilation and has a step of `stride`; there are p of its rows "
            "and q of its columns. Stack the slices of all places behind the channels: (N, C, R * S, P, Q)."
        ),
        (
            "Channels of one group stand side by side in `x` and in `weight`, so groups cost one reshape: columns to "
            "(N, groups, I * R * S, P * Q), kernels to (groups, O // groups, I * R * S). `@` multiplies the last two "
            "axes and does the others side by side."
        ),
        "After the loops: `y = (kernels @ columns).reshape(n, o, p, q)`, and the bias goes to channels: reshape it.",
    ),
    mistakes=by_first_part(JUDGE, MISTAKES),
)
