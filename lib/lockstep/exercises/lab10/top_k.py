"""10.3 `top_k`: the largest numbers of every rank, and where they are.

Floor 4, room `exercises`. Judged by the mean, where any of equal numbers may be chosen; by the bytes that the simulated
world counts; and by whether the student's own count is that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.comm import Communicator
from lockstep.exercises.exercise import Case, Exercise, on_ranks
from lockstep.exercises.judge import Finding, all_of
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab10.results import is_number, right_on_all_ranks, same_shape
from lockstep.exercises.lab10.top_k_mistakes import MISTAKES
from lockstep.exercises.observe import Observation, Simulate
from lockstep.exercises.plain import short

PAIR = 12  # bytes of a float32 and an index of 8 bytes, which is more than is needed, and right


def top_k(comm, g, k):
    places = g.abs().topk(k).indices
    values = comm.all_gather(g[places])
    places = comm.all_gather(places.int())
    mean = torch.zeros_like(g).index_add_(0, places, values / comm.size)
    return mean, (comm.size - 1) * k * 8


def by_sorting(comm, g, k):
    """Values and indices side by side in one message, added up rank by rank."""
    order = sorted(range(len(g)), key=lambda i: -abs(g[i].item()))[:k]
    pairs = torch.stack([g[order].view(torch.int32), torch.tensor(order, dtype=torch.int32)])
    before = comm.traffic.bytes_sent
    everyone = comm.all_gather(pairs)
    sent = comm.traffic.bytes_sent - before
    mean = torch.zeros(len(g))
    for rank in range(comm.size):
        values, places = everyone[2 * rank].view(torch.float32), everyone[2 * rank + 1]
        mean[places.tolist()] += values
    return mean / comm.size, sent


def by_wide_indices(comm, g, k):
    """Indices as torch gives them, 8 bytes each, and counted so."""
    threshold = g.abs().sort(descending=True).values[k - 1]
    surely, perhaps = (g.abs() > threshold).nonzero().flatten(), (g.abs() == threshold).nonzero().flatten()
    mine = torch.cat([surely, perhaps[: k - len(surely)]])
    places, values = comm.all_gather(mine), comm.all_gather(g[mine])
    dense = torch.zeros(comm.size, len(g))
    dense[torch.arange(comm.size).repeat_interleave(k), places] = values
    return dense.mean(0), (values.nbytes + places.nbytes) * (comm.size - 1) // comm.size


def top_k_stub(comm, g, k):
    raise NotImplementedError("the mean of everyone's k largest numbers, and the bytes that this rank sent")


def sends_and_counts(fn: Callable[..., Any], comm: Communicator, g: Tensor, k: int) -> dict[str, Any]:
    """What it returns, and the bytes that left this rank."""
    before = comm.traffic.bytes_sent
    own = g.clone()
    value = fn(comm, own, k)
    sent, kept = comm.traffic.bytes_sent - before, torch.equal(own, g)
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        return {"mean": value, "count": None, "sent": sent, "kept": kept}
    return {"mean": value[0], "count": value[1], "sent": sent, "kept": kept}


def is_a_pair(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    for rank, one in enumerate(seen.value):
        if one["count"] is None:
            said = f"Rank {rank} does not return a pair: the mean, and the bytes that it sent."
            return Finding(said, "(mean, bytes)", short(one["mean"]), ("pair", one["mean"]))
    return None


def right_mean(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    found = same_shape(seen, len(case.each[0][0]))
    if found is not None:
        return found
    if any(_free(g, case.args[0])[1].any() for (g,) in case.each):
        return _right_with_ties(case, seen, expected)
    return right_on_all_ranks(seen, expected, "the mean of what the ranks sent")


def _free(g: Tensor, k: int) -> tuple[Tensor, Tensor, int]:
    """What surely is among the k largest, the places of equal numbers of which some are, and how many of these."""
    size = g.abs()
    least = size.sort(descending=True).values[k - 1]
    above, equal = size > least, size == least
    missing = k - int(above.sum())
    if missing == int(equal.sum()):
        return above | equal, torch.zeros_like(equal), 0
    return above, equal, missing


def _right_with_ties(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """One rank has equal numbers: any of them may have been sent, as many as there is room for. Of zeros it does not matter."""
    (k,), sure = case.args, torch.zeros_like(case.each[0][0])
    for (g,) in case.each:
        chosen, equal, many = _free(g, k)
        sure += torch.where(chosen, g, 0)
        if many and g[equal][0] != 0:
            tied, places, missing = g, equal, many
    for rank, one in enumerate(seen.value):
        rest = one["mean"] * case.ranks - sure
        sent = (rest - tied).abs() < 1e-5
        good = (rest.abs() < 1e-5) | (sent & places)
        if not good.all() or int((sent & places).sum()) != missing:
            said = f"Rank {rank}: the mean is not that of {k} numbers of each rank, of which some are equally large."
            return Finding(
                said, short(expected.value[rank]["mean"]), short(one["mean"]), ([o["mean"] for o in seen.value],)
            )
    return None


def leaves_the_gradient(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    for rank, one in enumerate(seen.value):
        if not one["kept"]:
            said = f"The mean is right, but rank {rank}'s `g` has changed."
            return Finding(said, "`g` as it was", "other numbers", ("kept", [o["kept"] for o in seen.value]))
    return None


def sends_little(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    most = (case.ranks - 1) * case.args[0] * PAIR
    for rank, one in enumerate(seen.value):
        if one["sent"] > most:
            want = expected.value[rank]["sent"]
            said = f"The mean is right, but rank {rank} sends {one['sent']:,} bytes; {want:,} are enough."
            return Finding(said, f"{want:,} bytes", f"{one['sent']:,} bytes", ("sent", [o["sent"] for o in seen.value]))
    return None


def counts_what_it_sends(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    for rank, one in enumerate(seen.value):
        if not is_number(one["count"]) or float(one["count"]) != one["sent"]:
            said = f"The mean is right, but rank {rank} says that it sent {short(one['count'])} bytes. It sent {one['sent']:,}."
            return Finding(said, f"{one['sent']:,}", short(one["count"]), ("count", [o["count"] for o in seen.value]))
    return None


def cases(rng: np.random.Generator) -> Iterator[Case]:
    for ranks, n, k, words in (
        (2, 6, 2, ""), (3, 41, 3, "one place chosen by all"),
        (2, 9, 4, "three equally large on one rank, all zero on the other"),
        (2, 33_000, 2, "the largest of them last"),
    ):  # fmt: skip
        each = [torch.tensor(rng.permutation(n) - 0.37 * n, dtype=torch.float32) for _ in range(ranks)]
        if "chosen by all" in words:
            for r, g in enumerate(each):
                g[4] = (40 + r) * (-1) ** r
        if "last" in words:
            for g in each:
                g[-2:] = torch.tensor(rng.uniform(1, 2, 2) * [-n, n], dtype=torch.float32)
        if "equally" in words:
            each[1] = torch.tensor([0.5, -3, 2.5, 0.25, -3, 9, 3, -1, 12.0])
        if "zero" in words:
            each[0] = torch.zeros(n)
        name = f"{k} of {n} numbers" + (f", {words}" if words else "")
        yield on_ranks(ranks, k, each=[(g,) for g in each], name=name)


OBSERVE = Simulate(sends_and_counts)
JUDGE = all_of(is_a_pair, right_mean, leaves_the_gradient, sends_little, counts_what_it_sends)

TOP_K = Exercise(
    id="10.3",
    title="The largest numbers",
    function="top_k",
    points=3,
    asks=(
        "Send the `k` numbers of `g` that are largest in magnitude, and their places, to all ranks. Return `(mean, sent)`: "
        "the mean over ranks of these sparse gradients, dense and the same on every rank, and the bytes that this rank sent "
        "for it. Leave `g` as it is."
    ),
    reference=top_k,
    also_right=(by_sorting, by_wide_indices),
    stub=top_k_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    equivalent_mutants=(
        # the only dimension, counted from the end
        'line 5: mean = torch.zeros_like(g).index_add_(0, places, values / comm.size) -> mean = torch.zeros_like(g).index_add_(-1, places, values / comm.size)',
    ),
    hints=(
        "Which numbers are largest differs from rank to rank. What has to travel, so that another rank can put a number where "
        "it belongs?",
        "`g.abs().topk(k).indices` are the places; `g[places]` has the signs that `abs` has lost. Gather both, and add: two "
        "ranks may have chosen the same place.",
        "`comm.all_gather` on a ring: each rank sends `comm.size - 1` payloads, its own and those that it passes on. A payload "
        "has `k` values of 4 bytes and `k` indices, of 4 bytes as int32 and of 8 as int64.",
        "`torch.zeros_like(g).index_add_(0, places, values)` adds up equal places; `mean[places] += values` keeps one of them.",
    ),
    mistakes=by_first_failure(OBSERVE, JUDGE, MISTAKES),
)  # fmt: skip
