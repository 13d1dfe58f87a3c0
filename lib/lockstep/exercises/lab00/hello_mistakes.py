"""Exercise 00.1: what students get wrong, with the sentences that they get.

Floor 4, room `exercises`; the exercise is in `hello.py`.
"""

from __future__ import annotations

import numpy as np
import torch

from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.observe import Observation
from lockstep.exercises.symptoms import is_deadlock


def uses_local_value(comm):
    square = comm.rank**2
    return square, square


def sums_twice(comm):
    square = comm.rank**2
    total = torch.tensor(square)
    comm.all_reduce(total)
    comm.all_reduce(total)
    return square, total.item()


def hard_codes_size(comm):
    square = comm.rank**2
    comm.all_reduce(torch.tensor(square))
    return square, sum(rank**2 for rank in range(4))


def has_four_slots(comm):
    slots = torch.zeros(4)
    slots[comm.rank] = comm.rank**2
    comm.all_reduce(slots)
    return slots[comm.rank].item(), slots.sum().item()


def works_it_out_alone(comm):
    return comm.rank**2, sum(rank**2 for rank in range(comm.size))


def squares_the_sum(comm):
    total = torch.tensor(comm.rank)
    comm.all_reduce(total)
    return comm.rank**2, total.item() ** 2


def overwrites_square(comm):
    square = torch.tensor(comm.rank**2)
    total = comm.all_reduce(square)
    return square, total


def counts_from_one(comm):
    square = (comm.rank + 1) ** 2
    total = torch.tensor(square)
    comm.all_reduce(total)
    return square, total.item()


def takes_the_mean(comm):
    square = float(comm.rank**2)
    total = comm.all_reduce(torch.tensor(square), op="mean")
    return square, total.item()


def reduces_to_rank_0(comm):
    square = comm.rank**2
    total = torch.tensor(square)
    comm.reduce(total, dst=0)
    return square, total.item()


def only_rank_0_calls(comm):
    square = comm.rank**2
    total = torch.tensor(square)
    if comm.rank == 0:
        comm.all_reduce(total)
    return square, total.item()


def returns_total_only(comm):
    total = torch.tensor(comm.rank**2)
    comm.all_reduce(total)
    return total.item()


def swaps_the_two(comm):
    square = comm.rank**2
    total = torch.tensor(square)
    comm.all_reduce(total)
    return total.item(), square


def forgets_to_square(comm):
    total = torch.tensor(comm.rank)
    comm.all_reduce(total)
    return comm.rank**2, total.item()


def squares_nothing(comm):
    total = torch.tensor(comm.rank)
    comm.all_reduce(total)
    return comm.rank, total.item()


def takes_exclusive_or(comm):
    square = comm.rank ^ 2
    total = torch.tensor(square)
    comm.all_reduce(total)
    return square, total.item()


def always_14(case: Case, seen: Observation, expected: Observation) -> bool:
    """0 + 1 + 4 + 9, the sum for four ranks, where there are not four."""
    return case.ranks != 4 and seen.error is None and all(np.shape(v) == (2,) and v[1] == 14 for v in seen.value)


MISTAKES = (
    Mistake(
        "uses the local value",
        uses_local_value,
        "Your sum is this rank's own square: nothing has come from the other ranks. They do not share your "
        "variables; a number reaches you only through a call such as `comm.all_reduce`.",
    ),
    Mistake(
        "sums twice",
        sums_twice,
        "Your sum is too large by a factor of the number of ranks. After one all-reduce every rank holds the sum; "
        "a second one adds up that many equal sums.",
    ),
    Mistake(
        "hard-codes the size",
        hard_codes_size,
        "Your sum is 14 however many ranks there are: that is 0 + 1 + 4 + 9, right for four ranks only. "
        "The number of ranks is decided when the program starts.",
        symptom=always_14,
    ),
    Mistake(
        "has room for four ranks only",
        has_four_slots,
        "With more than four ranks, rank 4 finds no place in a tensor of four. Make the tensor as long as there "
        "are ranks, or hand in one number only.",
    ),
    Mistake(
        "works it out alone",
        works_it_out_alone,
        "Each rank worked out the others' squares by itself. That succeeds only because squares follow from rank "
        "numbers; gradients do not. Let `comm.all_reduce` bring them.",
    ),
    Mistake(
        "squares the sum",
        squares_the_sum,
        "You added up the rank numbers and squared the result: the square of a sum is not the sum of the squares. "
        "Which of the two steps has to come first?",
    ),
    Mistake(
        "adds up the rank numbers",
        forgets_to_square,
        "Your sum is that of the rank numbers themselves. The others' squares are asked for, so what has to be in "
        "the tensor that you hand in?",
    ),
    Mistake(
        "squares nothing",
        squares_nothing,
        "Nothing is squared: your numbers are the rank itself and the sum of the ranks. With up to two ranks nobody "
        "notices, since 0 and 1 are their own squares.",
    ),
    Mistake(
        "uses ^ for a power",
        takes_exclusive_or,
        "In Python `^` is no power but the exclusive or of two numbers' bits, so `0 ^ 2` is 2. A power is written "
        "`**`.",
    ),
    Mistake(
        "overwrites its square",
        overwrites_square,
        "The sum is right, but the square has become the sum too. `all_reduce` works in place: the tensor you hand "
        "in and the one it returns are the same memory.",
    ),
    Mistake(
        "counts ranks from 1",
        counts_from_one,
        "Your numbers are those of ranks 1, 2, 3 and so on. Ranks count from 0, so the first square is 0.",
    ),
    Mistake(
        "takes the mean",
        takes_the_mean,
        "Your second number is the mean of the squares, the sum divided by the number of ranks. The sum is asked "
        "for, which is what `all_reduce` gives when you do not name an operation.",
    ),
    Mistake(
        "reduces to rank 0 only",
        reduces_to_rank_0,
        "Only rank 0 has the sum; the others still hold their own square. `reduce` gives the result to one rank, "
        "the *all* in `all_reduce` means that every rank gets it.",
    ),
    Mistake(
        "not every rank calls it",
        only_rank_0_calls,
        "Some ranks call a collective and others never do, so those that call wait for ever. Every rank has to "
        "make the call: look for an `if` or a `return` around it.",
        symptom=is_deadlock,
    ),
    Mistake(
        "returns the sum only",
        returns_total_only,
        "You return the sum alone. Two numbers are asked for: this rank's square first, then the sum.",
    ),
    Mistake(
        "swaps the two numbers",
        swaps_the_two,
        "Both numbers are there, in the other order: this rank's square comes first, then the sum.",
    ),
)
