"""10.5 `power_sgd`: a gradient as the product of two thin matrices.

Floor 4, room `exercises`. Judged over several steps by the means, by what the next step starts from (its span: any
orthonormal basis is as good as another), and by bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.comm import Communicator
from lockstep.exercises.compare import differs
from lockstep.exercises.exercise import Case, Exercise, on_ranks
from lockstep.exercises.judge import Finding, all_of
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab10.power_sgd_mistakes import MISTAKES
from lockstep.exercises.lab10.results import normal
from lockstep.exercises.observe import Observation, Simulate
from lockstep.exercises.plain import kind, short


def power_sgd(comm, m, q):
    p = comm.all_reduce(m @ q, op="mean")
    p = torch.linalg.qr(p).Q
    q = comm.all_reduce(m.T @ p, op="mean")
    return p @ q.T, q


def by_gram_and_schmidt(comm, m, q):
    """Columns one after the other; sums where a mean makes no difference."""
    p = m.mm(q)
    comm.all_reduce(p)
    for j in range(p.shape[1]):
        for i in range(j):
            p[:, j] -= (p[:, i] @ p[:, j]) * p[:, i]
        p[:, j] /= p[:, j].norm()
    new = m.t().mm(p)
    comm.all_reduce(new)
    new /= comm.size
    return torch.einsum("ir,jr->ij", p, new), new


def by_singular_vectors(comm, m, q):
    """The basis of an SVD, and a start that is orthonormal too."""
    p = torch.linalg.svd(comm.all_reduce(m @ q, op="mean"), full_matrices=False).U
    new = comm.all_reduce((p.T @ m).T.contiguous(), op="mean")
    return p @ new.T, torch.linalg.qr(new)[0]


def power_sgd_stub(comm, m, q):
    raise NotImplementedError("the mean gradient as P Q^T, and the q that the next step starts from")


def some_steps(fn: Callable[..., Any], comm: Communicator, gradients: Sequence[Tensor], q: Tensor) -> dict[str, Any]:
    """Means and starts by step, and the bytes that this rank sent."""
    means, starts, sent = [], [], []
    for m in gradients:
        before = comm.traffic.bytes_sent
        value = fn(comm, m.clone(), q.clone())
        sent.append(comm.traffic.bytes_sent - before)
        if not isinstance(value, (tuple, list)) or len(value) != 2 or not isinstance(value[1], Tensor):
            return {"strange": value}
        means.append(value[0].clone() if isinstance(value[0], Tensor) else value[0])
        q = value[1].detach()
        starts.append(q.clone())
    return {"means": means, "starts": starts, "sent": sent}


def two_matrices(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    for rank, one in enumerate(seen.value):
        if "strange" in one:
            said = f"Rank {rank} returns {kind(one['strange'])}; asked is a pair: the mean, and the next step's `q`."
            return Finding(said, "(mean, q)", short(one["strange"]), ("strange", one["strange"]))
    return None


def right_means(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """Step by step the means, then the starts."""
    for step in range(len(case.each[0][0])):
        for rank, (one, right) in enumerate(zip(seen.value, expected.value, strict=True)):
            mine, want = one["means"][step], right["means"][step]
            difference = differs(mine, want, 1e-3, 1e-3)
            said = "the mean is not the P Q^T that is asked"
            if difference is None:
                mine, want = one["starts"][step], right["starts"][step]
                difference = _other_span(mine, want)
                said = "the mean is right, but the next step would start from another `q`"
            if difference is not None:
                so_far = [[o["means"][: step + 1], step and o["starts"][:step]] for o in seen.value]
                said = f"Rank {rank}, step {step + 1}: {said}: {difference}."
                return Finding(said, short(want), short(mine), (step, so_far, [o["starts"][step] for o in seen.value]))
    return None


def _other_span(q: Tensor, wanted: Tensor) -> str | None:
    """How the columns of `q` do not span what those of `wanted` span."""
    if q.shape != wanted.shape:
        return f"its shape is {list(q.shape)}, not {list(wanted.shape)}"
    if not q.isfinite().all():
        return "it has numbers that are not finite"
    mine, right = (torch.linalg.qr(one.double()).Q for one in (q, wanted))
    inside = torch.linalg.matrix_norm(right.T @ mine).square().item()
    if abs(inside - q.shape[1]) < 1e-3 * q.shape[1] and torch.linalg.matrix_rank(q.double()) == q.shape[1]:
        return None
    return "its columns do not span what those of Q span"


def sends_thin_matrices(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    got, want = (sum(sum(one["sent"]) for one in who.value) for who in (seen, expected))
    if got <= want + 16 * case.ranks * len(case.each[0][0]):
        return None
    rows, columns = case.each[0][0][0].shape
    r = case.args[0].shape[1]
    said = (
        f"The numbers are right, but all ranks together send {got:,} bytes where {want:,} are enough: "
        f"{rows}*{r} numbers and {columns}*{r} numbers, all-reduced."
    )
    return Finding(said, f"{want:,} bytes", f"{got:,} bytes", ("sent", got))


def cases(rng: np.random.Generator) -> Iterator[Case]:
    for ranks, rows, columns, r, steps in (
        (2, 4, 3, 1, 1), (3, 5, 7, 2, 2),
    ):  # fmt: skip
        each = [([normal(rng, rows, columns) for _ in range(steps)],) for _ in range(ranks)]
        words = f"{rows}x{columns}, rank {r}, " + ("1 step" if steps == 1 else f"{steps} steps")
        yield on_ranks(ranks, normal(rng, columns, r), each=each, name=words)


OBSERVE = Simulate(some_steps)
JUDGE = all_of(two_matrices, right_means, sends_thin_matrices)

POWER_SGD = Exercise(
    id="10.5",
    title="Two thin matrices",
    function="power_sgd",
    points=3,
    core=False,
    asks=(
        "Average `m` over the ranks as a product of two thin matrices: `P`, the mean of `m @ q` with its columns made "
        "orthonormal, and `Q`, the mean of `m.T @ P`. Return `P @ Q.T`, and the `q` that the next step starts from: what this "
        "step has found. Send no more than the two thin matrices."
    ),
    reference=power_sgd,
    also_right=(by_gram_and_schmidt, by_singular_vectors),
    stub=power_sgd_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    hints=(
        "Both products are linear in `m`, so that the mean of the products is the product of the mean: all-reduce them. Which "
        "of the steps is not linear, and has to wait until all ranks have the same?",
        "First all-reduce `m @ q`, then make the columns orthonormal, the same on every rank; `torch.linalg.qr(p).Q` does. Then "
        "all-reduce `m.T @ p`.",
        "`p @ p.T` projects onto the columns of `p` only if they are orthonormal. `p @ q.T` is that projection of the mean "
        "gradient; and `q` is a better start than the one you were given.",
    ),
    mistakes=by_first_failure(OBSERVE, JUDGE, MISTAKES),
)
