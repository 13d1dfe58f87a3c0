"""Mistakes in how the calls are used, which the rings of lab 04 have in common.

Floor 4, room `exercises`. They show only where there are neighbours: with one rank each does what `alone` does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lockstep.exercises.exercise import Mistake
from lockstep.exercises.lab04.steps import PAIR_FOR_LIST
from lockstep.exercises.symptoms import raises


def adds_to_a_tuple(comm, chunks):
    comm.barrier()
    chunks[0] += 1


def never_waits(comm, chunks):
    arrived = torch.zeros(1)
    comm.isend(torch.ones(1), (comm.rank + 1) % comm.size)
    comm.recv(arrived, (comm.rank - 1) % comm.size)


def pairs_without_lists(comm, chunks):
    comm.exchange((torch.ones(3), (comm.rank + 1) % comm.size), (torch.ones(3), (comm.rank - 1) % comm.size))


def _in_company(wrong: Callable[..., Any], alone: Callable[..., Any]) -> Callable[..., Any]:
    def fn(comm, tensor, *others):
        return alone(comm, tensor, *others) if comm.size == 1 else wrong(comm, tensor.tensor_split(comm.size))

    return fn


def of_calls(alone: Callable[..., Any]) -> tuple[Mistake, ...]:
    """The mistakes, for an exercise whose reference is `alone`."""
    return (
        Mistake(
            "adds to a tuple",
            _in_company(adds_to_a_tuple, alone),
            "`tensor_split` gives a tuple, and `chunks[i] += ...` wants to put something into it. Make it a list, "
            "`list(tensor.tensor_split(comm.size))`, or add in place: `chunks[i].add_(arrived)`.",
            symptom=raises("TypeError", "tuple", "item assignment"),
        ),
        Mistake(
            "a handle that nobody waits for",
            _in_company(never_waits, alone),
            "You return while a message may still be on its way. Keep the handle that `isend` or `irecv` gives, and "
            "`wait()` for it before you touch its tensor again or return.",
            symptom=raises("NeverWaited"),
        ),
        Mistake(
            "pairs without lists",
            _in_company(pairs_without_lists, alone),
            "`comm.exchange` takes two lists of pairs, since there may be several: first `[(tensor, dst)]`, then "
            "`[(tensor, src)]`.",
            symptom=PAIR_FOR_LIST,
        ),
    )
