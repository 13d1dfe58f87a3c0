"""What goes wrong in exercise 10.5, and the sentence that each fault gets.

Floor 4, room `exercises`; the exercise is in `power_sgd.py`.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from lockstep.exercises.compare import alike
from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.observe import Observation


def orthonormal(p):
    return torch.linalg.qr(p).Q


def iterated(
    comm, m, q, *, first="mean", before=lambda p: p, basis=orthonormal, second="mean", after=lambda q: q,
    start=lambda given, q: q, product=lambda p, q: p @ q.T,
):  # fmt: skip
    """The right function, in which one thing can be another; `first` and `second` are the operations, None sends nothing."""
    p = before(m @ q)
    p = basis(comm.all_reduce(p, op=first) if first else p)
    new = m.T @ p
    new = after(comm.all_reduce(new, op=second) if second else new)
    return product(p, new), start(q, new)


def not_orthonormalised(comm, m, q):
    return iterated(comm, m, q, basis=lambda p: p)


def normalised_only(comm, m, q):
    return iterated(comm, m, q, basis=lambda p: F.normalize(p, dim=0))


def normalises_the_whole(comm, m, q):
    return iterated(comm, m, q, basis=lambda p: p / p.norm())


def orthonormal_before_the_mean(comm, m, q):
    return iterated(comm, m, q, before=orthonormal, basis=lambda p: p)


def basis_of_its_own(comm, m, q):
    return iterated(comm, m, q, first=None)


def second_not_averaged(comm, m, q):
    return iterated(comm, m, q, second=None)


def second_summed(comm, m, q):
    return iterated(comm, m, q, second="sum")


def second_orthonormal(comm, m, q):
    return iterated(comm, m, q, after=orthonormal)


def orthonormalises_the_start(comm, m, q):
    return iterated(comm, m, orthonormal(q), basis=lambda p: p)


def starts_from_the_same(comm, m, q):
    return iterated(comm, m, q, start=lambda given, q: given)


def starts_at_random(comm, m, q):
    return iterated(comm, m, q, start=lambda given, q: torch.randn(q.shape))


def starts_from_the_other_matrix(comm, m, q):
    p = orthonormal(comm.all_reduce(m @ q, op="mean"))
    new = comm.all_reduce(m.T @ p, op="mean")
    return p @ new.T, p


def multiplies_with_the_start(comm, m, q):
    return iterated(comm, m, q, product=lambda p, new: p @ q.T)


def transposed(comm, m, q):
    return iterated(comm, m, q, product=lambda p, q: q @ p.T)


def sends_the_whole(comm, m, q):
    mean = comm.all_reduce(m.clone(), op="mean")
    p = orthonormal(mean @ q)
    q = mean.T @ p
    return p @ q.T, q


def gathers(comm, m, q):
    p = orthonormal(comm.all_gather(m @ q).view(comm.size, len(m), -1).mean(0))
    new = comm.all_gather(m.T @ p).view(comm.size, m.shape[1], -1).mean(0)
    return p @ new.T, new


def averages_the_products(comm, m, q):
    p = orthonormal(m @ q)
    new = m.T @ p
    mean = comm.all_reduce(p @ new.T, op="mean")
    return mean, comm.all_reduce(new, op="mean")


def starts_differ(case: Case, seen: Observation, expected: Observation) -> bool:
    """After a right first step the ranks go on from different matrices."""
    if seen.error is not None or any("strange" in one for one in seen.value):
        return False
    first = seen.value[0]["starts"][0]
    apart = any(not alike(one["starts"][0], first) for one in seen.value)
    right = zip(seen.value, expected.value, strict=True)
    return apart and all(torch.allclose(one["means"][0], r["means"][0], 1e-3, 1e-3) for one, r in right)


MISTAKES = (
    Mistake(
        "basis not orthonormalised",
        not_orthonormalised,
        "The columns of your `P` are not orthonormal. `P @ P.T @ M` is M's projection only if they are: as it is, what you "
        "return grows with the square of `P`'s length.",
    ),
    Mistake(
        "columns of length one, not at right angles",
        normalised_only,
        "The columns of your `P` have length one, but are not at right angles: what lies along two of them is counted twice. "
        "With one column there is no difference.",
    ),
    Mistake(
        "divides by one length",
        normalises_the_whole,
        "You divide `P` by one length. Each column needs length one of its own, at right angles to the others.",
    ),
    Mistake(
        "orthonormal before the mean",
        orthonormal_before_the_mean,
        "You make the columns orthonormal before you average. The mean of orthonormal columns is not orthonormal: first the "
        "mean, then the basis, so that all ranks have the same.",
    ),
    Mistake(
        "a basis on each rank",
        basis_of_its_own,
        "Each rank has a `P` of its own: `m @ q` is never averaged. Then the `Q`s of the ranks belong to different bases and "
        "cannot be added up.",
    ),
    Mistake(
        "second product not averaged",
        second_not_averaged,
        "You average `P` and not `Q`: what you return is this rank's own gradient, projected.",
    ),
    Mistake(
        "sum for mean",
        second_summed,
        "Your result is too large by the number of ranks: you add up `Q`. (For `P` it makes no difference: its columns get "
        "length one.)",
    ),
    Mistake(
        "both orthonormal",
        second_orthonormal,
        "You make `Q` orthonormal as well, before you multiply. `Q` holds how large the gradient is along each column of `P`: "
        "leave it.",
    ),
    Mistake(
        "orthonormalises the start",
        orthonormalises_the_start,
        "You make `q` orthonormal where it comes in. It is `P`, after the first product, that has to be.",
    ),
    Mistake(
        "starts from the same each time",
        starts_from_the_same,
        "You return the `q` that you were given, so every step starts anew. Return the `Q` that you have found: over the steps it "
        "turns towards the gradient's largest directions.",
    ),
    Mistake(
        "ranks start apart",
        starts_at_random,
        "The `q` that you return is not the same on all ranks, so their next products do not belong together. Return the "
        "averaged `Q`: it is the better start, too.",
        symptom=starts_differ,
    ),
    Mistake(
        "starts from P",
        starts_from_the_other_matrix,
        "You return `P` as the next start. `q` is multiplied by `m` from the right: it is `Q` that fits.",
    ),
    Mistake(
        "multiplies with the start",
        multiplies_with_the_start,
        "You multiply `P` with the `q` that you were given. The second factor is the new one, `m.T @ P`, averaged.",
    ),
    Mistake(
        "transposed",
        transposed,
        "Your result is transposed: `P @ Q.T` has the shape of `m`.",
    ),
    Mistake(
        "whole gradients on the wire",
        sends_the_whole,
        "You average the whole gradient and make it thin afterwards. Nothing is saved: multiply first, and send the thin "
        "products.",
    ),
    Mistake(
        "gathers what could be added up",
        gathers,
        "You gather every rank's product. They add up, so an all-reduce does: it sends two of them, however many ranks there "
        "are.",
    ),
    Mistake(
        "averages the products",
        averages_the_products,
        "You average the products of each rank's own matrices, which are as large as the gradient. Average the thin matrices, "
        "one after the other.",
    ),
)
