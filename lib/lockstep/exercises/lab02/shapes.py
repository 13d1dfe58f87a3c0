"""Convolutions to try, from one small image to groups with everything at once; 02.2 and 02.3 share them.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torch import Tensor

from lockstep.exercises.lab02.output_size import output_size
from lockstep.exercises.lab02.parts import counted, real_numbers, whole_numbers

# images, channels, rows, columns; kernels, rows, columns of each; stride, padding, dilation, groups
SETTINGS = (
    (1, 1, 3, 3, 1, 2, 2, 1, 0, 1, 1),
    (2, 2, 4, 5, 3, 3, 2, 1, 0, 1, 1),
    (1, 2, 3, 4, 1, 2, 3, 1, 1, 1, 1),
    (2, 1, 5, 6, 2, 2, 2, 2, 0, 1, 1),
    (3, 1, 4, 6, 2, 3, 3, 2, 1, 1, 1),
    (1, 2, 7, 6, 2, 3, 2, 1, 0, 2, 1),
    (2, 3, 6, 5, 2, 3, 3, 3, 2, 2, 1),
    (2, 4, 3, 4, 6, 2, 2, 1, 0, 1, 2),
    (1, 3, 5, 4, 3, 3, 3, 2, 1, 1, 3),
    (2, 6, 7, 8, 4, 2, 3, 2, 1, 2, 2),
)
WITH_DECIMALS = (2, 2, 5, 4, 3, 3, 3, 1, 1, 1, 1)  # float32 holds the small whole numbers of the others exactly


def convolutions(rng: np.random.Generator) -> Iterator[tuple[str, Tensor, Tensor, Tensor, Tensor, tuple[int, ...]]]:
    """name, x, weight, bias, a gradient of the output, (stride, padding, dilation, groups); smallest first."""
    for setting in (*SETTINGS, WITH_DECIMALS):
        n, c, h, w, o, r, s, stride, padding, dilation, groups = setting
        draw = real_numbers if setting is WITH_DECIMALS else whole_numbers
        name = f"{counted(n, 'image')} {c}x{h}x{w}, {counted(o, 'kernel')} {c // groups}x{r}x{s}"
        named = {"stride": (stride, 1), "padding": (padding, 0), "dilation": (dilation, 1), "groups": (groups, 1)}
        name += "".join(f", {what} {value}" for what, (value, usual) in named.items() if value != usual)
        name += ", numbers with decimals" if setting is WITH_DECIMALS else ""
        p, q = (output_size(size, kernel, stride, padding, dilation) for size, kernel in ((h, r), (w, s)))
        yield (
            name, draw(rng, n, c, h, w), draw(rng, o, c // groups, r, s),
            whole_numbers(rng, o, most=9), draw(rng, n, o, p, q), (stride, padding, dilation, groups),
        )  # fmt: skip
