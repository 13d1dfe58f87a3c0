"""What goes wrong in exercise 10.4, and the sentence that each fault gets.

Floor 4, room `exercises`; the exercise is in `feedback.py`.
"""

from __future__ import annotations

import torch

from lockstep.exercises.exercise import Mistake


def not_carried(average, g, residual):
    mean, sent = average(g)
    return mean, g - sent


def carried_twice(average, g, residual):
    corrected = g + residual
    mean, sent = average(corrected)
    return mean, residual + corrected - sent


def added_twice(average, g, residual):
    corrected = g + 2 * residual
    mean, sent = average(corrected)
    return mean, corrected - sent


def of_the_gradient(average, g, residual):
    mean, sent = average(g + residual)
    return mean, g - sent


def of_the_residual(average, g, residual):
    mean, sent = average(g + residual)
    return mean, residual - sent


def minus_what_arrived(average, g, residual):
    corrected = g + residual
    mean, sent = average(corrected)
    return mean, corrected - mean


def added_after_compressing(average, g, residual):
    mean, sent = average(g)
    return mean + residual, g - sent


def collected_and_never_sent(average, g, residual):
    mean, sent = average(g)
    return mean, residual + g - sent


def other_sign(average, g, residual):
    corrected = g + residual
    mean, sent = average(corrected)
    return mean, sent - corrected


def subtracts_the_residual(average, g, residual):
    corrected = g - residual
    mean, sent = average(corrected)
    return mean, corrected - sent


def exchanges_twice(average, g, residual):
    corrected = g + residual
    return average(corrected)[0], corrected - average(corrected)[1]


def lets_go(average, g, residual):
    mean, sent = average(g + residual)
    return mean, torch.zeros_like(g)


def what_was_sent(average, g, residual):
    corrected = g + residual
    mean, sent = average(corrected)
    return sent, corrected - sent


def where_nothing_was_sent(average, g, residual):
    corrected = g + residual
    mean, sent = average(corrected)
    return mean, torch.where(sent == 0, corrected, 0)


def returns_what_was_sent(average, g, residual):
    mean, sent = average(g + residual)
    return mean, sent


def swapped(average, g, residual):
    corrected = g + residual
    sent, mean = average(corrected)
    return mean, corrected - sent


def residual_first(average, g, residual):
    corrected = g + residual
    mean, sent = average(corrected)
    return corrected - sent, mean


def mean_alone(average, g, residual):
    return average(g + residual)[0]


def into_the_gradient(average, g, residual):
    g += residual
    mean, sent = average(g)
    return mean, g - sent


def fades(average, g, residual):
    corrected = g + 0.9 * residual
    mean, sent = average(corrected)
    return mean, corrected - sent


def residual_alone(average, g, residual):
    mean, sent = average(residual)
    return mean, g + residual - sent


MISTAKES = (
    Mistake(
        "residual not carried",
        not_carried,
        "The residual is never used: you give `average` this step's gradient alone, and what earlier steps have left is lost "
        "for ever. Add it first.",
    ),
    Mistake(
        "residual carried twice",
        carried_twice,
        "You carry the residual twice. It is inside what you gave to `average` already; adding it once more to what is left "
        "sends it again and again, and it grows.",
    ),
    Mistake(
        "residual added twice",
        added_twice,
        "You add the residual twice before you compress. It stands for gradient that was not sent, and once is all of it.",
    ),
    Mistake(
        "left of the gradient",
        of_the_gradient,
        "What is left is counted from this step's gradient. `average` was given more than that: take what it was given, minus "
        "what was sent.",
    ),
    Mistake(
        "left of the residual",
        of_the_residual,
        "What is left is counted from the old residual. `average` was given the gradient as well: take what it was given, "
        "minus what was sent.",
    ),
    Mistake(
        "minus what arrived",
        minus_what_arrived,
        "You take the mean from what you gave. The mean holds what other ranks sent, too. What this rank still owes is what it "
        "gave minus what *it* sent.",
    ),
    Mistake(
        "added after compressing",
        added_after_compressing,
        "You add the residual to the mean after the exchange. No other rank hears of it, so ranks step apart: add it before "
        "you compress.",
    ),
    Mistake(
        "collected and never sent",
        collected_and_never_sent,
        "The residual collects what is left and is never sent: `average` gets this step's gradient alone. Add the residual to "
        "it first.",
    ),
    Mistake(
        "other sign",
        other_sign,
        "The residual has the wrong sign: what is left is what was given minus what was sent. Yours takes the error away a "
        "second time.",
    ),
    Mistake(
        "subtracts the residual",
        subtracts_the_residual,
        "You subtract the residual from the gradient. It is gradient that is still to be sent: add it.",
    ),
    Mistake(
        "exchanges twice",
        exchanges_twice,
        "You call `average` twice in a step. That sends twice, and a compressor that draws random numbers sends something else "
        "the second time. Keep both results of one call.",
    ),
    Mistake(
        "lets the rest go",
        lets_go,
        "You return a residual of zeros: what was not sent is thrown away.",
    ),
    Mistake(
        "own part for the mean",
        what_was_sent,
        "You return what this rank sent. The step is taken with the mean of what all ranks sent.",
    ),
    Mistake(
        "only where nothing was sent",
        where_nothing_was_sent,
        "You keep the numbers that were not sent at all. A number that was sent is rounded as well: what is left of it is its "
        "own rounding error. Subtract what was sent.",
    ),
    Mistake(
        "keeps what was sent",
        returns_what_was_sent,
        "You keep what was sent. That has arrived; what is still missing is the rest.",
    ),
    Mistake(
        "mean and sent swapped",
        swapped,
        "`average` returns the mean first and then what this rank sent; you have them the other way round.",
    ),
    Mistake(
        "residual first",
        residual_first,
        "You return the residual first. Asked is the mean, then the residual.",
    ),
    Mistake(
        "writes into the gradient",
        into_the_gradient,
        "`g += residual` writes into the gradient, which is the caller's. `g + residual` makes a new tensor.",
    ),
    Mistake(
        "the residual fades",
        fades,
        "A part of the residual is thrown away in each step. What was not sent is owed in full: add all of it.",
    ),
    Mistake(
        "sends the residual alone",
        residual_alone,
        "`average` gets the residual alone, and this step's gradient has to wait for the next. Give it both: the gradient together "
        "with the residual.",
    ),
    Mistake(
        "mean alone",
        mean_alone,
        "You return the mean alone. The residual has to come back as well, or the next step knows nothing of it.",
    ),
)
