"""10.6 `sense_and_recover`: a few random sums that a ring adds up, and the sparse gradient that fits them.

Floor 4, room `exercises`. Judged by the recovered mean and by bytes; how it was recovered is free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.comm import Communicator
from lockstep.exercises.exercise import Case, Exercise, on_ranks
from lockstep.exercises.judge import Finding, all_of
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab10.results import normal, right_on_all_ranks, same_shape
from lockstep.exercises.lab10.sensing_mistakes import MISTAKES, recovered
from lockstep.exercises.observe import Observation, Simulate

CLOSE = 5e-3  # of numbers around 2: who stops when a step changes none by more than a thousandth is there


def sense_and_recover(comm, g, phi, k):
    y = comm.all_reduce(phi @ g, op="mean")
    x = torch.zeros_like(g)
    for _ in range(100):
        x = x + phi.T @ (y - phi @ x)
        x[x.abs().argsort()[:-k]] = 0
    return x


def until_nothing_changes(comm, g, phi, k):
    """Steps as long as is best on the numbers in use (normalised iterative hard thresholding)."""
    y = phi.mv(g)
    comm.all_reduce(y)
    y /= comm.size
    x, support = torch.zeros_like(g), (phi.T @ y).abs().topk(k).indices
    while True:
        slope = phi.T @ (y - phi @ x)
        along = slope[support].square().sum() / (phi[:, support] @ slope[support]).square().sum().clamp(min=1e-30)
        ahead = x + slope * along
        new = torch.zeros_like(x)
        support = ahead.abs().topk(k).indices
        new[support] = ahead[support]
        if (new - x).abs().max() < 1e-6:
            return new
        x = new


def by_matching_pursuit(comm, g, phi, k):
    """One number after the other, each time fitted anew by least squares."""
    y = comm.all_reduce(phi @ g, op="mean")
    chosen, left = [], y.clone()
    for _ in range(k):
        chosen.append((phi.T @ left).abs().argmax().item())
        fit = torch.linalg.lstsq(phi[:, chosen], y).solution
        left = y - phi[:, chosen] @ fit
    x = torch.zeros(phi.shape[1])
    x[chosen] = fit
    return x


def sense_and_recover_stub(comm, g, phi, k):
    raise NotImplementedError("the sparse mean gradient, from the mean of phi @ g")


def senses(fn: Callable[..., Any], comm: Communicator, g: Tensor, phi: Tensor, k: int) -> dict[str, Any]:
    """What it returns, and the bytes that left this rank."""
    before = comm.traffic.bytes_sent
    mean = fn(comm, g.clone(), phi, k)
    return {"mean": mean, "sent": comm.traffic.bytes_sent - before}


def right_mean(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    n = len(case.each[0][0])
    what = "the mean gradient, which fits the measurements"
    return same_shape(seen, n) or right_on_all_ranks(seen, expected, what, rtol=CLOSE, atol=CLOSE)


def sends_measurements(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    got, want = (sum(one["sent"] for one in who.value) for who in (seen, expected))
    if got <= want + 8 * case.ranks:
        return None
    said = (
        f"The mean is right, but all ranks together send {got:,} bytes where {want:,} are enough: "
        f"{len(case.args[0])} measurements, all-reduced."
    )
    return Finding(said, f"{want:,} bytes", f"{got:,} bytes", ("sent", got))


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Measurements from which every right way finds the mean: with a random choice of them some fail now and then."""
    for ranks, n, m, k in ((1, 24, 15, 2), (3, 48, 30, 3)):
        while True:
            places = rng.permutation(n)[:k]
            gradients = torch.zeros(ranks, n)
            gradients[:, places] = normal(rng, ranks, k) + torch.tensor(rng.choice([-2.0, 2.0], size=k)).float()
            for r in range(1, ranks):
                gradients[r, places[r % k]] = 0
            phi = torch.linalg.qr(normal(rng, n, m)).Q.T.contiguous()
            mean = gradients.mean(0)
            first = (phi.T @ (phi @ mean)).abs().topk(k).indices
            # Among more ranks the first threshold keeps a place that is none of the mean's, and it comes to rest slowly.
            telling = ranks == 1 or (set(first.tolist()) != set(places) and _slow(mean, phi, k))
            if telling and _all_ways_find(mean, phi, k):
                break
        name = f"{m} sums of {n} numbers, {k} of them not zero"
        yield on_ranks(ranks, phi, k, each=[(g,) for g in gradients], name=name)


def _slow(mean: Tensor, phi: Tensor, k: int) -> bool:
    """After ten steps it is far from having come to rest; once that many passed."""
    return (recovered(_Alone(), mean, phi, k, turns=10) - mean).abs().max().item() > 8 * CLOSE


def _all_ways_find(mean: Tensor, phi: Tensor, k: int) -> bool:
    """Steps of any length, soon enough, and place by place."""
    few, short = partial(recovered, turns=30), partial(recovered, turns=100, step=lambda x, slope: x + slope / 2)
    ways = few, by_matching_pursuit, until_nothing_changes, short
    return all(torch.allclose(way(_Alone(), mean, phi, k), mean, 1e-3, 1e-3) for way in ways)


class _Alone:
    """A communicator of one rank, as far as is needed to try out measurements."""

    size = 1

    def all_reduce(self, tensor: Tensor, op: str = "sum") -> Tensor:
        return tensor


OBSERVE = Simulate(senses)


JUDGE = all_of(right_mean, sends_measurements)


SENSE_AND_RECOVER = Exercise(
    id="10.6",
    title="A few random sums",
    function="sense_and_recover",
    points=2,
    core=False,
    asks=(
        "Send nothing but `phi @ g`, and return the mean gradient, which has at most `k` numbers that are not zero. Find it from "
        "the mean measurements `y` by iterative hard thresholding: go down the slope of `|y - phi @ x|**2`, keep the `k` numbers "
        "of largest magnitude, and again, until nothing changes, some dozens of times. The rows of `phi` are orthonormal."
    ),
    reference=sense_and_recover,
    also_right=(until_nothing_changes, by_matching_pursuit),
    stub=sense_and_recover_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    equivalent_mutants=(
        # it has come to rest
        "line 4: for _ in range(100): -> for _ in range(101):",
        "line 4: for _ in range(100): -> for _ in range(99):",
    ),
    hints=(
        "Measurements are linear: what is the mean of `phi @ g` over the ranks? What has to be sent, and when is recovered?",
        "Half the slope downwards is `phi.T @ (y - phi @ x)`. Begin with zeros, add it to `x`, set all but the `k` largest "
        "magnitudes to zero, and repeat until nothing changes: some fifty times here.",
        "`x.abs().argsort()[:-k]` are the places to set to zero.",
    ),
    mistakes=by_first_failure(OBSERVE, JUDGE, MISTAKES),
)
