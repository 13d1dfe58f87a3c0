"""What goes wrong in exercise 10.2, and the sentence that each fault gets.

Floor 4, room `exercises`; the exercise is in `one_bit.py`.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.lab10.one_bit_right import one_bit
from lockstep.exercises.lab10.results import is_number
from lockstep.exercises.observe import Observation
from lockstep.exercises.symptoms import raises


def packed(g, *, above=lambda g: g >= 0, pack=None, low=None, high=None):
    """The right answer, in which one thing can be another."""
    upper = above(g)
    bits, lower, higher = one_bit(g)
    if pack is not None:
        bits = pack(upper)
    elif not torch.equal(upper, g >= 0):
        rows = F.pad(upper.long(), (0, -len(g) % 8)).view(-1, 8)
        bits = (rows << torch.arange(8)).sum(1).byte()
    return bits, lower if low is None else low(g), higher if high is None else high(g)


def a_byte_each(g):
    return packed(g, pack=lambda upper: upper.byte())


def bools(g):
    return packed(g, pack=lambda upper: upper)


def loses_the_last(g):
    return packed(g, pack=lambda upper: one_bit(g)[0][: len(g) // 8])


def a_byte_too_many(g):
    return packed(g, pack=lambda upper: F.pad(one_bit(g)[0], (0, 1 if len(g) % 8 == 0 else 0)))


def fills_up_in_front(g):
    def pack(upper):
        rows = F.pad(upper.long(), (-len(g) % 8, 0)).view(-1, 8)
        return (rows << torch.arange(8)).sum(1).byte()

    return packed(g, pack=pack)


def inverted(g):
    return packed(g, above=lambda g: g < 0)


def zeros_below(g):
    upper = g > 0
    return packed(
        g, above=lambda g: upper, low=lambda g: g[~upper].sum() / max(1, (~upper).sum()),
        high=lambda g: g[upper].sum() / max(1, upper.sum()),
    )  # fmt: skip


def by_strides(g):
    def pack(upper):
        size = -(-len(g) // 8)
        rows = F.pad(upper.long(), (0, 8 * size - len(g))).view(8, size)
        return (rows << torch.arange(8)[:, None]).sum(0).byte()

    return packed(g, pack=pack)


def adds_bits_without_weights(g):
    return packed(g, pack=lambda upper: F.pad(upper.long(), (0, -len(g) % 8)).view(-1, 8).sum(1).byte())


def wide_words(g):
    return packed(g, pack=lambda upper: one_bit(g)[0].int())


def one_mean(g):
    size = g.abs().mean()
    return packed(g, low=lambda g: -size, high=lambda g: size)


def means_swapped(g):
    bits, low, high = one_bit(g)
    return bits, high, low


def mean_of_nothing(g):
    return packed(g, low=lambda g: g[g < 0].mean(), high=lambda g: g[g >= 0].mean())


def over_all_numbers(g):
    return packed(g, low=lambda g: g.clamp(max=0).mean(), high=lambda g: g.clamp(min=0).mean())


def low_without_its_sign(g):
    return packed(g, low=lambda g: one_bit(g)[1].abs())


def extremes(g):
    return packed(g, low=lambda g: g.min().clamp(max=0), high=lambda g: g.max().clamp(min=0))


def medians(g):
    def of(these):
        return these.median() if len(these) else 0.0

    return packed(g, low=lambda g: of(g[g < 0]), high=lambda g: of(g[g >= 0]))


def divides_by_zero(g):
    upper, lower = [x for x in g.tolist() if x >= 0], [x for x in g.tolist() if x < 0]
    return packed(g, low=lambda g: sum(lower) / len(lower), high=lambda g: sum(upper) / len(upper))


def not_a_number(case: Case, seen: Observation, expected: Observation) -> bool:
    """A mean is NaN."""
    value = seen.value
    return seen.error is None and isinstance(value, (tuple, list)) and any(
        is_number(one) and float(one) != float(one) for one in value[1:]
    )  # fmt: skip


MISTAKES = (
    Mistake(
        "a byte for each bit",
        a_byte_each,
        "You spend a byte on each bit. Eight of them fit into one: shift each to its place in the byte, and add.",
    ),
    Mistake(
        "bools are bytes",
        bools,
        "A tensor of bools takes a byte for each of them. Pack eight into a byte of uint8.",
    ),
    Mistake(
        "words wider than a byte",
        wide_words,
        "Your packed bits are of a wider type than uint8, and the zeros in front of them would be sent as well: `.byte()`.",
    ),
    Mistake(
        "loses the last bits",
        loses_the_last,
        "You round the number of bytes down, and the last numbers get no bit: round up, and fill the last byte.",
    ),
    Mistake(
        "a byte too many",
        a_byte_too_many,
        "Where 8 divides the numbers you have a byte too many: `len(g) // 8 + 1` is not rounding up.",
    ),
    Mistake(
        "fills up in front",
        fills_up_in_front,
        "You fill up in front, so each number's bit is further back than it should be. The first byte holds the first eight "
        "numbers; fill up after the last.",
    ),
    Mistake(
        "bits the other way round",
        inverted,
        "Your bit is 1 for numbers below zero. Asked is 1 for the others.",
    ),
    Mistake(
        "zeros below",
        zeros_below,
        "You count zeros with the numbers below zero. A bit is 1 where the number is at least zero.",
    ),
    Mistake(
        "neighbours in different bytes",
        by_strides,
        "You put each number's bit into another byte than its neighbour's. The first byte holds the first eight numbers.",
    ),
    Mistake(
        "adds bits without weights",
        adds_bits_without_weights,
        "You add the bits of a byte up: that counts them. Bit i of a byte weighs 2**i.",
    ),
    Mistake(
        "one mean for both",
        one_mean,
        "You use one size for both kinds, the mean magnitude. The two kinds have means of their own, and only with both does "
        "the sum of all numbers stay what it is.",
    ),
    Mistake(
        "means swapped",
        means_swapped,
        "You return the means the other way round: first that of the numbers below zero.",
    ),
    Mistake(
        "mean of nothing",
        mean_of_nothing,
        "The mean of no numbers is NaN, which training never gets rid of. A kind that has no numbers has mean 0.",
        symptom=not_a_number,
    ),
    Mistake(
        "divides by zero",
        divides_by_zero,
        "You divide by the number of one kind, and it has none. Its mean is 0 then.",
        symptom=raises("ZeroDivisionError"),
    ),
    Mistake(
        "over all numbers",
        over_all_numbers,
        "You divide by the number of all numbers. Each mean is over its own kind.",
    ),
    Mistake(
        "low without its sign",
        low_without_its_sign,
        "Your mean of the numbers below zero is above zero: keep its sign.",
    ),
    Mistake(
        "largest for mean",
        extremes,
        "You return the smallest and the largest number. One large number would stand for all: take the means.",
    ),
    Mistake(
        "medians",
        medians,
        "You take medians. It is the means that make the squared error least and keep the sum.",
    ),
)
