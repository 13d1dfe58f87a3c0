"""What goes wrong in exercise 10.1, and the sentence that each fault gets.

Floor 4, room `exercises`; the exercise is in `quantize.py`.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from lockstep.exercises.exercise import Mistake
from lockstep.exercises.lab10 import quantize_symptoms as shown
from lockstep.exercises.symptoms import matches


def at_random(steps):
    return torch.floor(steps + torch.rand_like(steps)).clamp(-127, 127)


def decoded(comm, codes, scales):
    return (comm.all_gather(codes) * comm.all_gather(scales)).view(comm.size, -1).mean(0)


def by_block(rows):
    return rows.abs().amax(1, keepdim=True)


def quantized(comm, g, block, *, most=127, largest=by_block, rounded=at_random, dtype=torch.int8, averaged=decoded):
    """The right function, in which one thing can be another."""
    rows = F.pad(g, (0, -len(g) % block)).view(-1, block)
    scales = largest(rows) / most
    steps = (rows / scales).nan_to_num()
    return averaged(comm, rounded(steps).to(dtype), scales)[: len(g)]


def reduces_codes(comm, g, block):
    def averaged(comm, codes, scales):
        return (comm.all_reduce(codes) * scales / comm.size).flatten()

    return quantized(comm, g, block, averaged=averaged)


def adds_codes(comm, g, block):
    def averaged(comm, codes, scales):
        total = torch.zeros_like(codes)
        for own in comm.all_gather(codes).chunk(comm.size):
            total += own
        return (total * scales / comm.size).flatten()

    def of_all_ranks(rows):
        return comm.all_reduce(by_block(rows), op="max")

    return quantized(comm, g, block, largest=of_all_ranks, averaged=averaged)


def to_the_nearest(comm, g, block):
    return quantized(comm, g, block, rounded=torch.round)


def always_down(comm, g, block):
    return quantized(comm, g, block, rounded=torch.floor)


def towards_zero(comm, g, block):
    return quantized(comm, g, block, rounded=torch.trunc)


def rounds_after_adding(comm, g, block):
    return quantized(comm, g, block, rounded=lambda x: torch.round(x + torch.rand_like(x)).clamp(-127, 127))


def cuts_after_adding(comm, g, block):
    return quantized(comm, g, block, rounded=lambda x: torch.trunc(x + torch.rand_like(x)).clamp(-127, 127))


def carries_from_zero(comm, g, block):
    def rounded(x):
        return torch.trunc(x) + (torch.rand_like(x) < x - torch.floor(x))

    return quantized(comm, g, block, rounded=lambda x: rounded(x).clamp(-127, 127))


def one_random_number(comm, g, block):
    return quantized(comm, g, block, rounded=lambda x: torch.floor(x + torch.rand(1)).clamp(-127, 127))


def one_scale(comm, g, block):
    return quantized(comm, g, block, largest=lambda rows: by_block(rows).max().expand(len(rows), 1))


def scales_not_sent(comm, g, block):
    def averaged(comm, codes, scales):
        return (comm.all_gather(codes).view(comm.size, -1, block) * scales).mean(0).flatten()

    return quantized(comm, g, block, averaged=averaged)


def averages_apart(comm, g, block):
    def averaged(comm, codes, scales):
        codes = comm.all_gather(codes).view(comm.size, -1, block).float().mean(0)
        return (codes * comm.all_gather(scales).view(comm.size, -1, 1).mean(0)).flatten()

    return quantized(comm, g, block, averaged=averaged)


def sums(comm, g, block):
    return quantized(comm, g, block, averaged=lambda comm, codes, scales: decoded(comm, codes, scales) * comm.size)


def own_alone(comm, g, block):
    return quantized(comm, g, block, averaged=lambda comm, codes, scales: (codes * scales).flatten())


def a_code_too_many(comm, g, block):
    def rounded(x):
        return torch.floor(x + torch.rand_like(x)).to(torch.int32)

    return quantized(comm, g, block, most=128, rounded=rounded)


def numbers_on_the_wire(comm, g, block):
    def averaged(comm, codes, scales):
        return comm.all_reduce(codes * scales, op="mean").flatten()

    return quantized(comm, g, block, averaged=averaged)


def wide_codes(comm, g, block):
    return quantized(comm, g, block, dtype=torch.int32)


def into_the_gradient(comm, g, block):
    return g.copy_(quantized(comm, g, block))


def whole_blocks_alone(comm, g, block):
    rows = g.view(-1, block)
    return quantized(comm, rows.flatten(), block)


def zero_over_zero(comm, g, block):
    rows = F.pad(g, (0, -len(g) % block)).view(-1, block)
    scales = by_block(rows) / 127
    steps = rows / scales
    codes = (steps.floor() + torch.bernoulli(steps - steps.floor())).clamp(-127, 127)
    return decoded(comm, codes.to(torch.int8), scales)[: len(g)]


MISTAKES = (
    Mistake(
        "codes all-reduced in int8",
        reduces_codes,
        "You add codes up in int8, where 100 + 100 is -56. (An NCCL all-reduce would say nothing.) And codes of two ranks count "
        "steps of different length. Gather codes and scales, and add up what they stand for.",
        symptom=matches("int8"),
    ),
    Mistake(
        "integer sums wrap",
        adds_codes,
        "Your sums wrap: codes are added in int8, and 100 + 100 is -56 there. Turn codes into float32 before you add them.",
        symptom=shown.any_of(
            shown.looks_like(
                shown.wrapped_at_one_scale, lambda g, block: shown.steps_of(g, block).amax(0, keepdim=True)
            ),
            shown.looks_like(shown.wrapped_at_own_scales),
            shown.looks_like(shown.wrapped_at_mean_scales),
        ),
    ),
    Mistake(
        "biased: rounds to the nearest",
        to_the_nearest,
        "You round to the nearest code: 30.3 is 30 every time, so on average 0.3 of a step is lost, and small numbers are lost "
        "for ever. Round up as often as the part after the point says.",
    ),
    Mistake(
        "biased: always down",
        always_down,
        "You round down every time. Round up as often as the part after the point says: 30.3 in three of ten cases.",
    ),
    Mistake(
        "biased: towards zero",
        towards_zero,
        "You cut off the part after the point, which is what a conversion to int8 does: numbers shrink, and small ones vanish. "
        "Round at random.",
    ),
    Mistake(
        "biased: rounds after adding",
        rounds_after_adding,
        "You add a random number from 0 to 1 and round to the nearest: on average half a step too much. Round *down* after adding.",
    ),
    Mistake(
        "biased: cuts after adding",
        cuts_after_adding,
        "You add a random number and cut towards zero. Below zero that is up, not down: `torch.floor`, for negative numbers too.",
    ),
    Mistake(
        "biased below zero",
        carries_from_zero,
        "Below zero your rounding is off by one: the part after the point counts from the code below (-50.6 is 0.4 above -51), "
        "but `trunc` and `int` give the one above.",
    ),
    Mistake(
        "one random number for all",
        one_random_number,
        "You draw one random number for the whole tensor, so all errors have one direction and do not cancel. Draw one for each "
        "number: `torch.rand_like`.",
        symptom=shown.differs_from_call_to_call,
    ),
    Mistake(
        "one scale for the tensor",
        one_scale,
        "You have one scale for the whole tensor. One large number then takes the resolution of all others: where a block's "
        "numbers are small, they become zero. A scale for each block.",
        symptom=shown.looks_like(shown.mean_of_all, shown.tensor_steps),
    ),
    Mistake(
        "scales not sent",
        scales_not_sent,
        "Each rank reads everyone's codes with its own scales, so the others' scales are lost, and ranks return different numbers. "
        "Send the scales as well.",
        symptom=shown.looks_like(shown.own_scales, lambda g, block: shown.steps_of(g, block).sum(0, keepdim=True)),
    ),
    Mistake(
        "averages codes and scales apart",
        averages_apart,
        "You average codes and scales apart and multiply the means. A code counts steps of its own rank's length: multiply first, "
        "then average.",
        symptom=shown.looks_like(shown.mean_scales),
    ),
    Mistake(
        "sum for mean",
        sums,
        "You add up what the ranks sent; asked is the mean.",
        symptom=shown.looks_like(shown.sum_of_all, lambda g, block: shown.steps_of(g, block).sum(0, keepdim=True)),
    ),
    Mistake(
        "own gradient alone",
        own_alone,
        "Nothing is sent: each rank returns its own gradient, rounded.",
        symptom=shown.looks_like(shown.own_alone),
    ),
    Mistake(
        "a code too many",
        a_code_too_many,
        "Your largest number has the code 128, and int8 ends at 127: it wraps to -128. Divide the largest magnitude by 127.",
    ),
    Mistake(
        "float32 on the wire",
        numbers_on_the_wire,
        "You turn codes back into float32 before you send them, and send as much as without any codes. Send codes and scales.",
    ),
    Mistake(
        "wide codes",
        wide_codes,
        "Your codes travel as whole numbers of four bytes. `.to(torch.int8)` before they are sent.",
    ),
    Mistake(
        "writes into the gradient",
        into_the_gradient,
        "You write the mean into `g`. Who compresses with error feedback still needs it: return a new tensor.",
    ),
    Mistake(
        "whole blocks alone",
        whole_blocks_alone,
        "You see `g` as rows of `block` numbers, and it need not divide. Fill the last row up with zeros, and cut them off in the "
        "end.",
        symptom=matches("is invalid for input of size"),
    ),
    Mistake(
        "zero over zero",
        zero_over_zero,
        "A block of zeros has the scale 0, and 0/0 is NaN. Divide by 1 there, or by a very small number.",
        symptom=matches("p_in >= 0"),
    ),
)
