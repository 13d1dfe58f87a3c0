"""02.1 `output_size`: how many windows of a kernel fit along one side of an image.

Floor 4, room `exercises`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch

from lockstep.exercises.exercise import Case, Exercise, Mistake, Symptom
from lockstep.exercises.judge import Finding, same_value
from lockstep.exercises.observe import Call, Observation
from lockstep.exercises.plain import short


def output_size(size, kernel, stride, padding, dilation):
    span = dilation * (kernel - 1) + 1
    room = size + 2 * padding - span
    return max(0, room // stride + 1)


def by_counting_starts(size, kernel, stride, padding, dilation):
    return len(range(-padding, size + padding - dilation * (kernel - 1), stride))


def by_walking(size, kernel, stride, padding, dilation):
    first, count = 0, 0
    while first + dilation * (kernel - 1) <= size + padding + padding - 1:
        first += stride
        count += 1
    return count


def by_ceiling(size, kernel, stride, padding, dilation):
    free = size + 2 * padding - (kernel + (kernel - 1) * (dilation - 1))
    return math.ceil((free + 1) / stride) if free >= 0 else 0


def output_size_stub(size, kernel, stride, padding, dilation):
    raise NotImplementedError("how many windows fit along one side")


def forgets_the_first_window(size, kernel, stride, padding, dilation):
    return output_size(size, kernel, stride, padding, dilation) - 1


def pads_one_side(size, kernel, stride, padding, dilation):
    room = size + padding - dilation * (kernel - 1) - 1
    return max(0, room // stride + 1)


def ignores_dilation(size, kernel, stride, padding, dilation):
    return output_size(size, kernel, stride, padding, 1)


def spreads_the_kernel_too_far(size, kernel, stride, padding, dilation):
    room = size + 2 * padding - dilation * kernel
    return max(0, room // stride + 1)


def rounds_up(size, kernel, stride, padding, dilation):
    room = size + 2 * padding - dilation * (kernel - 1) - 1
    return max(0, math.ceil(room / stride) + 1)


def does_not_round(size, kernel, stride, padding, dilation):
    room = size + 2 * padding - dilation * (kernel - 1) - 1
    return max(0, room / stride + 1)


def cuts_towards_zero(size, kernel, stride, padding, dilation):
    room = size + 2 * padding - dilation * (kernel - 1) - 1
    return max(0, int(room / stride) + 1)


def divides_before_it_subtracts(size, kernel, stride, padding, dilation):
    return max(0, (size + 2 * padding) // stride - dilation * (kernel - 1))


def ignores_the_stride(size, kernel, stride, padding, dilation):
    return output_size(size, kernel, 1, padding, dilation)


def adds_one_too_early(size, kernel, stride, padding, dilation):
    room = size + 2 * padding - dilation * (kernel - 1)
    return max(0, room // stride)


def goes_below_zero(size, kernel, stride, padding, dilation):
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def gives(formula: Callable[..., float]) -> Symptom:
    """The number of `formula` on the smallest failing case, for solutions with more than one mistake."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        return seen.error is None and seen.value == formula(*case.args)

    return symptom


def is_a_float(case: Case, seen: Observation, expected: Observation) -> bool:
    """A float, also one that is whole, also NumPy's or torch's."""
    return seen.error is None and (isinstance(seen.value, float) or _kind_of_number(seen.value) == "f")


def _kind_of_number(value: object) -> str:
    """ "i" or "f" for an array or tensor that holds whole numbers or floats; "" for anything else."""
    return np.asarray(value).dtype.kind if isinstance(value, (np.ndarray, torch.Tensor)) else ""


def same_whole_number(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """The right number, and an int: a shape that holds 3.0 is an error in the exercises that follow."""
    found = equal(case, seen, expected)
    if found is not None or not is_a_float(case, seen, expected):
        return found
    told = "The number is right, but it is a float, and a shape takes whole numbers only."
    return Finding(told, short(expected.value), short(seen.value), ("float",))


equal = same_value()


def is_negative(case: Case, seen: Observation, expected: Observation) -> bool:
    """Fewer windows than none."""
    return seen.error is None and isinstance(seen.value, (int, float)) and seen.value < 0


def size_cases(rng: np.random.Generator) -> Iterator[Case]:
    drawn = [int(rng.integers(40, 90)), int(rng.integers(100, 230))]
    settings = (
        (5, 5, 1, 0, 1), (5, 3, 1, 0, 1), (9, 3, 2, 0, 1), (7, 3, 1, 1, 1), (8, 3, 2, 0, 1), (10, 3, 4, 0, 1),
        (12, 2, 4, 1, 1),
        (10, 3, 1, 0, 2), (13, 4, 3, 2, 3), (drawn[0], 5, 3, 1, 2), (drawn[1], 11, 4, 2, 1), (4, 1, 3, 0, 2),
        (3, 7, 1, 1, 1), (3, 9, 2, 1, 1), (6, 4, 1, 0, 3), (4, 5, 2, 0, 1), (6, 3, 4, 1, 4),
    )  # fmt: skip
    for size, kernel, stride, padding, dilation in settings:
        name = f"{size} pixels, kernel {kernel}, stride {stride}, padding {padding}, dilation {dilation}"
        yield Case(name, (size, kernel, stride, padding, dilation))


OUTPUT_SIZE = Exercise(
    id="02.1",
    title="Output size",
    function="output_size",
    points=1,
    asks=(
        "Return how many windows of `kernel` pixels, `dilation` apart, fit along a side of `size` pixels with "
        "`padding` more at both ends, when a window starts every `stride` pixels. Return 0 when not even one fits."
    ),
    reference=output_size,
    also_right=(by_counting_starts, by_walking, by_ceiling),
    stub=output_size_stub,
    cases=size_cases,
    observe=Call(),
    judge=same_whole_number,
    hints=(
        "How many pixels does a window cover from its first to its last one? With dilation 2 and a kernel of 3: five.",
        (
            "Put the first window at the left end. How many pixels are left to its right, and how often does a step of "
            "`stride` go into them? A step that does not fit as a whole gives no window."
        ),
        (
            "span = dilation * (kernel - 1) + 1 pixels are covered, size + 2 * padding - span are left. Divide that by "
            "the stride with `//`, count the first window too, and see that nothing negative comes out."
        ),
    ),
    mistakes=(
        Mistake(
            "does not round",
            does_not_round,
            "There is no half window, and `/` gives a float even where it comes out even. `//` between whole numbers "
            "rounds down and stays whole.",
            symptom=is_a_float,
        ),
        Mistake(
            "forgets the first window",
            forgets_the_first_window,
            "You count the steps. There is one window more than there are steps: the one that they start from.",
            symptom=gives(forgets_the_first_window),
        ),
        Mistake(
            "pads one side only",
            pads_one_side,
            "Padding is added at both ends of the side, so it counts twice.",
            symptom=gives(pads_one_side),
        ),
        Mistake(
            "ignores dilation",
            ignores_dilation,
            "With dilation 1 you are right. A dilated kernel has gaps between its pixels and covers more of the image.",
            symptom=gives(ignores_dilation),
        ),
        Mistake(
            "spreads the kernel too far",
            spreads_the_kernel_too_far,
            "Your dilated kernel covers `dilation * kernel` pixels. There is a gap *between* its pixels, none after "
            "the last: count the gaps.",
            symptom=gives(spreads_the_kernel_too_far),
        ),
        Mistake(
            "rounds up",
            rounds_up,
            "You count a last window that would hang over the edge. A step that does not fit as a whole gives none.",
            symptom=gives(rounds_up),
        ),
        Mistake(
            "cuts towards zero",
            cuts_towards_zero,
            "`int` cuts off towards zero. Where the window is larger than the padded image, the division gives a "
            "number between -1 and 0, and that has to become -1. `//` rounds down.",
        ),
        Mistake(
            "divides before it subtracts",
            divides_before_it_subtracts,
            "First take off what a window covers, then divide by the stride what is left: only steps are divided.",
            symptom=gives(divides_before_it_subtracts),
        ),
        Mistake(
            "ignores the stride",
            ignores_the_stride,
            "That would be right for windows that start at every pixel. They start every `stride` pixels.",
            symptom=gives(ignores_the_stride),
        ),
        Mistake(
            "adds one before it divides",
            adds_one_too_early,
            "The 1 is the first window, and belongs behind the division. Before it, 1 is a pixel.",
            symptom=gives(adds_one_too_early),
        ),
        Mistake(
            "fewer than no windows",
            goes_below_zero,
            "Here the window is larger than the padded image, and the formula goes below zero. There are no windows "
            "then: return 0.",
            symptom=is_negative,
        ),
    ),
)
