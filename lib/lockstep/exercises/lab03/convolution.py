"""03.1 `conv_cost`: parameters and multiply-adds of a convolution.

Floor 4, room `exercises`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from lockstep.exercises.exercise import Case, Exercise, Mistake
from lockstep.exercises.lab03.words import by_name, by_wrong_number
from lockstep.exercises.observe import Call


def conv_cost(in_channels, out_channels, kernel, out_height, out_width, groups, bias):
    weights = out_channels * (in_channels // groups) * kernel**2
    parameters = weights + (out_channels if bias else 0)
    return parameters, weights * out_height * out_width


def by_building_the_layer(in_channels, out_channels, kernel, out_height, out_width, groups, bias):
    layer = torch.nn.Conv2d(in_channels, out_channels, kernel, groups=groups, bias=bias, device="meta")
    return sum(p.numel() for p in layer.parameters()), layer.weight.numel() * out_height * out_width


def group_by_group(in_channels, out_channels, kernel, out_height, out_width, groups, bias):
    parameters = macs = 0
    for _ in range(groups):
        own = kernel * kernel * in_channels / groups * out_channels / groups
        parameters += own
        macs += own * out_width * out_height
    return [parameters + bias * out_channels, macs]


def per_output_number(in_channels, out_channels, kernel, out_height, out_width, groups, bias):
    seen = in_channels * kernel * kernel // groups  # by one number of the output
    return out_channels * (seen + int(bias)), out_channels * out_height * out_width * seen


def conv_cost_stub(in_channels, out_channels, kernel, out_height, out_width, groups, bias):
    raise NotImplementedError("return the number of parameters and of multiply-adds for one image")


def bias_per_pixel(in_channels, out_channels, kernel, out_height, out_width, groups, bias):
    parameters, macs = conv_cost(in_channels, out_channels, kernel, out_height, out_width, groups, False)
    return parameters + (out_channels * out_height * out_width if bias else 0), macs


def bias_among_the_products(in_channels, out_channels, kernel, out_height, out_width, groups, bias):
    parameters, _ = conv_cost(in_channels, out_channels, kernel, out_height, out_width, groups, bias)
    return parameters, parameters * out_height * out_width


def groups_ignored(in_channels, out_channels, kernel, out_height, out_width, groups, bias):
    return conv_cost(in_channels, out_channels, kernel, out_height, out_width, 1, bias)


def groups_counted_twice(in_channels, out_channels, kernel, out_height, out_width, groups, bias):
    weights = (out_channels // groups) * (in_channels // groups) * kernel**2
    return weights + (out_channels if bias else 0), weights * out_height * out_width


def groups_in_parameters_only(in_channels, out_channels, kernel, out_height, out_width, groups, bias):
    parameters, _ = conv_cost(in_channels, out_channels, kernel, out_height, out_width, groups, bias)
    return parameters, conv_cost(in_channels, out_channels, kernel, out_height, out_width, 1, bias)[1]


def groups_in_products_only(in_channels, out_channels, kernel, out_height, out_width, groups, bias):
    _, macs = conv_cost(in_channels, out_channels, kernel, out_height, out_width, groups, bias)
    return conv_cost(in_channels, out_channels, kernel, out_height, out_width, 1, bias)[0], macs


def one_bias_in_all(in_channels, out_channels, kernel, out_height, out_width, groups, bias):
    parameters, macs = conv_cost(in_channels, out_channels, kernel, out_height, out_width, groups, False)
    return parameters + int(bias), macs


def counts_flops(in_channels, out_channels, kernel, out_height, out_width, groups, bias):
    parameters, macs = conv_cost(in_channels, out_channels, kernel, out_height, out_width, groups, bias)
    return parameters, 2 * macs


def kernel_of_one_side(in_channels, out_channels, kernel, out_height, out_width, groups, bias):
    weights = out_channels * (in_channels // groups) * kernel
    return weights + (out_channels if bias else 0), weights * out_height * out_width


def no_bias_at_all(in_channels, out_channels, kernel, out_height, out_width, groups, bias):
    return conv_cost(in_channels, out_channels, kernel, out_height, out_width, groups, False)


def bias_always(in_channels, out_channels, kernel, out_height, out_width, groups, bias):
    return conv_cost(in_channels, out_channels, kernel, out_height, out_width, groups, True)


def bias_of_the_input(in_channels, out_channels, kernel, out_height, out_width, groups, bias):
    parameters, macs = conv_cost(in_channels, out_channels, kernel, out_height, out_width, groups, False)
    return parameters + (in_channels if bias else 0), macs


def one_pixel_only(in_channels, out_channels, kernel, out_height, out_width, groups, bias):
    parameters, _ = conv_cost(in_channels, out_channels, kernel, out_height, out_width, groups, bias)
    return parameters, conv_cost(in_channels, out_channels, kernel, 1, 1, groups, bias)[1]


def one_channel_only(in_channels, out_channels, kernel, out_height, out_width, groups, bias):
    parameters, macs = conv_cost(in_channels, out_channels, kernel, out_height, out_width, groups, bias)
    return parameters, macs // out_channels


def the_other_order(in_channels, out_channels, kernel, out_height, out_width, groups, bias):
    return conv_cost(in_channels, out_channels, kernel, out_height, out_width, groups, bias)[::-1]


def products_only(in_channels, out_channels, kernel, out_height, out_width, groups, bias):
    return conv_cost(in_channels, out_channels, kernel, out_height, out_width, groups, bias)[1]


def cases(rng: np.random.Generator) -> Iterator[Case]:
    fixed = (
        (2, 3, 5, 4, 6, 1, False),
        (3, 8, 3, 5, 7, 1, True),
        (4, 6, 3, 5, 4, 2, True),
        (6, 6, 3, 2, 9, 6, True),  # each channel by itself
        (64, 256, 1, 56, 56, 1, False),
        (48, 96, 5, 27, 13, 3, True),
    )
    drawn = [
        (
            g * int(rng.integers(2, 9)),
            g * int(rng.integers(2, 9)),
            int(rng.integers(2, 8)),
            *rng.integers(3, 60, 2),
            g,
            True,
        )
        for g in rng.permutation((1, 2, 4, 8))[:3]
    ]
    for c_in, c_out, k, height, width, groups, bias in (*fixed, *drawn):
        name = f"{c_in} to {c_out} channels, kernel {k}x{k}, output {height}x{width}"
        name += f", {groups} group{'s' if groups > 1 else ''}, {'with' if bias else 'no'} bias"
        yield Case(name, (int(c_in), int(c_out), k, int(height), int(width), int(groups), bias))


JUDGE = by_name("the parameters", "the multiply-adds")

CONV_COST = Exercise(
    id="03.1",
    title="The cost of a convolution",
    function="conv_cost",
    points=2,
    asks=(
        "Return a pair: how many parameters a convolution has, and how many multiply-adds it makes for one image. The "
        "kernel is square, `groups` divides both numbers of channels, and adding the bias counts as no multiply-add."
    ),
    reference=conv_cost,
    also_right=(by_building_the_layer, group_by_group, per_output_number),
    stub=conv_cost_stub,
    cases=cases,
    observe=Call(),
    judge=JUDGE,
    equivalent_mutants=(  # whole numbers as floats
        "line 2: weights = out_channels * (in_channels // groups) * kernel ** 2 -> "
        "weights = out_channels * (in_channels / groups) * kernel ** 2",
    ),
    hints=(
        "Look at one number of the output. How many numbers of the input does it see, and with how many weights? Where "
        "does the next number of the same channel get its weights from?",
        "An output channel of a grouped convolution sees `in_channels // groups` channels of the input, and a window of "
        "kernel by kernel in each of them.",
        "All weights are used once for each pixel of the output. The bias adds one parameter for each output channel.",
    ),
    mistakes=by_wrong_number(
        (
            Mistake(
                "bias counted per pixel",
                bias_per_pixel,
                "You count a bias for every pixel of the output. A channel has one bias, which all its pixels share, as "
                "they share the weights.",
            ),
            Mistake(
                "bias among the multiply-adds",
                bias_among_the_products,
                "Your multiply-adds hold the bias too. It is added and multiplied with nothing: count the weights alone.",
            ),
            Mistake(
                "groups ignored",
                groups_ignored,
                "Your numbers are those without groups. With g groups an output channel sees only a g-th of the input's "
                "channels.",
            ),
            Mistake(
                "groups counted twice",
                groups_counted_twice,
                "You divide by the groups twice. That is one group's share; there are g of them, so of the two numbers of "
                "channels only one is divided.",
            ),
            Mistake(
                "groups in the parameters only",
                groups_in_parameters_only,
                "Your parameters know of the groups, your multiply-adds do not. A weight that is not there multiplies "
                "nothing.",
            ),
            Mistake(
                "groups in the multiply-adds only",
                groups_in_products_only,
                "Your multiply-adds know of the groups, your parameters do not. A channel that is not seen has no weights "
                "either.",
            ),
            Mistake(
                "counts FLOPs, not multiply-adds",
                counts_flops,
                "That is the number of FLOPs, twice what is asked for: a multiply-add is one multiplication and one "
                "addition.",
            ),
            Mistake(
                "takes one side of the kernel for its area",
                kernel_of_one_side,
                "The kernel is a square: kernel times kernel weights for each channel that it sees.",
            ),
            Mistake(
                "leaves the bias out",
                no_bias_at_all,
                "The bias is missing from your parameters: one number for each output channel, when `bias` is true.",
            ),
            Mistake(
                "always a bias",
                bias_always,
                "You count a bias where there is none. Before batch norm, which shifts its output anyway, it is left out.",
            ),
            Mistake(
                "a bias for each input channel",
                bias_of_the_input,
                "The bias is added to the output, so there is one for each output channel.",
            ),
            Mistake(
                "one bias for the whole layer",
                one_bias_in_all,
                "You count one bias for the whole layer. Each output channel has a bias of its own.",
            ),
            Mistake(
                "counts one pixel of the output only",
                one_pixel_only,
                "Your multiply-adds are those of one pixel of the output. The kernel is applied at every one of them.",
            ),
            Mistake(
                "counts one channel of the output only",
                one_channel_only,
                "Your multiply-adds are those of one output channel. Every one of them has weights of its own.",
            ),
            Mistake(
                "returns the two numbers in the other order",
                the_other_order,
                "Both numbers are there, in the other order: the parameters come first.",
            ),
            Mistake(
                "returns the multiply-adds only",
                products_only,
                "You return one number. Two are asked for: the parameters, then the multiply-adds.",
            ),
        )
    ),
)
