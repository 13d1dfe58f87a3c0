"""What goes wrong in exercise 10.6, and the sentence that each fault gets.

Floor 4, room `exercises`; the exercise is in `sensing.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.lab10.results import same_shape
from lockstep.exercises.observe import Observation


def recovered(
    comm, g, phi, k, *, turns=40, send=lambda comm, y: comm.all_reduce(y, op="mean"), step=lambda x, slope: x + slope,
    keep=lambda x, k: x.abs().topk(k).indices,
):  # fmt: skip
    """The right function, in which one thing can be another."""
    y = send(comm, phi @ g)
    x = torch.zeros_like(g)
    for _ in range(turns):
        x = step(x, phi.T @ (y - phi @ x))
        mask = torch.zeros_like(x)
        mask[keep(x, k)] = 1
        x = x * mask
    return x


def own_measurements(comm, g, phi, k):
    return recovered(comm, g, phi, k, send=lambda comm, y: y)


def adds_up(comm, g, phi, k):
    return recovered(comm, g, phi, k, send=lambda comm, y: comm.all_reduce(y))


def gathers(comm, g, phi, k):
    return recovered(comm, g, phi, k, send=lambda comm, y: comm.all_gather(y).view(comm.size, -1).mean(0))


def one_turn(comm, g, phi, k):
    return recovered(comm, g, phi, k, turns=1)


def few_turns(comm, g, phi, k):
    return recovered(comm, g, phi, k, turns=3)


def no_threshold(comm, g, phi, k):
    return recovered(comm, g, phi, k, keep=lambda x, k: torch.arange(len(x)))


def largest_with_sign(comm, g, phi, k):
    return recovered(comm, g, phi, k, keep=lambda x, k: x.topk(k).indices)


def keeps_the_smallest(comm, g, phi, k):
    return recovered(comm, g, phi, k, keep=lambda x, k: x.abs().argsort()[:k])


def keeps_one_less(comm, g, phi, k):
    return recovered(comm, g, phi, k, keep=lambda x, k: x.abs().topk(k - 1).indices)


def uphill(comm, g, phi, k):
    return recovered(comm, g, phi, k, turns=20, step=lambda x, slope: x - slope)


def always_from_zero(comm, g, phi, k):
    return recovered(comm, g, phi, k, step=lambda x, slope: slope)


def measures_twice(comm, g, phi, k):
    """A second time for the numbers, when the places are known."""
    places = recovered(comm, g, phi, k).nonzero().flatten()
    fit = torch.linalg.lstsq(phi[:, places], comm.all_reduce(phi @ g, op="mean")[:, None]).solution
    return torch.zeros_like(g).index_copy_(0, places, fit.flatten())


def recovers_before_the_mean(comm, g, phi, k):
    return comm.all_reduce(own_measurements(comm, g, phi, k), op="mean")


def grows(case: Case, seen: Observation, expected: Observation) -> bool:
    """Numbers without end."""
    return seen.error is None and any(
        isinstance(one["mean"], Tensor) and not (one["mean"].abs() < 1e3).all() for one in seen.value
    )


def right_places(case: Case, seen: Observation, expected: Observation) -> bool:
    """What is not zero is where it should be, and is not what it should be."""
    if seen.error is None and sum(one["sent"] for one in seen.value) > sum(one["sent"] for one in expected.value):
        return False
    if seen.error is not None or same_shape(seen, len(case.each[0][0])) is not None:
        return False
    pairs = zip(seen.value, expected.value, strict=True)
    return all(torch.equal(one["mean"] != 0, right["mean"] != 0) for one, right in pairs)


MISTAKES = (
    Mistake(
        "own measurements alone",
        own_measurements,
        "Nothing is sent: you recover this rank's own gradient. Average the measurements first.",
    ),
    Mistake(
        "sum for mean",
        adds_up,
        "You add the measurements up, and recover the sum of the gradients. Asked is their mean.",
    ),
    Mistake(
        "gathers what could be added up",
        gathers,
        "You gather everyone's measurements. They are linear in the gradient, so they add up, and an all-reduce does.",
    ),
    Mistake(
        "measurements sent twice",
        measures_twice,
        "You send the measurements twice. All ranks have their mean after the first all-reduce: keep it.",
    ),
    Mistake(
        "one threshold",
        one_turn,
        "You keep the `k` largest once. Before that there are the numbers of the shortest gradient that fits, `phi.T @ y`, which "
        "are not those of the sparse one: step, threshold, and again.",
    ),
    Mistake(
        "too few steps",
        few_turns,
        "You stop before it has come to rest. Each step makes what is missing smaller by a factor; go on until nothing changes.",
        symptom=right_places,
    ),
    Mistake(
        "no threshold",
        no_threshold,
        "You never set anything to zero. There are fewer measurements than numbers, so many gradients fit them: what you find "
        "is the shortest of these, and it is dense. Keep the `k` largest in each step.",
    ),
    Mistake(
        "largest instead of largest in magnitude",
        largest_with_sign,
        "You keep the largest numbers with their sign. Negative ones are as important: compare magnitudes.",
    ),
    Mistake(
        "keeps the smallest",
        keeps_the_smallest,
        "You keep the `k` numbers of smallest magnitude. Keep the largest, and set the others to zero.",
    ),
    Mistake(
        "keeps one too few",
        keeps_one_less,
        "You keep `k - 1` numbers. One of the mean's is always missing.",
    ),
    Mistake(
        "uphill",
        uphill,
        "You go up the slope, and the numbers grow without end. The step is `x + phi.T @ (y - phi @ x)`.",
        symptom=grows,
    ),
    Mistake(
        "always from zero",
        always_from_zero,
        "Each step begins at zero again: you replace `x` by the slope. Add the slope to `x`.",
    ),
    Mistake(
        "dense on the wire",
        recovers_before_the_mean,
        "Numbers as many as `g` has go round, so nothing is saved. Send `phi @ g`, which is shorter, and nothing else: average "
        "the measurements, then recover once.",
    ),
)
