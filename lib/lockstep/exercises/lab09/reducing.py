"""09.4 `zero2`: gradients leave in buckets while backward runs, and only shards of them stay.

Floor 4, room `exercises`. Judged by the shards' gradients, bytes sent, collectives, and the memory at its peak.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from torch import Tensor, nn

from lockstep.comm import Communicator
from lockstep.exercises.compare import differs
from lockstep.exercises.exercise import Case, Exercise, on_ranks
from lockstep.exercises.judge import Finding, all_of
from lockstep.exercises.lab05.likeness import by_first_failure
from lockstep.exercises.lab09.flat_right import shard_flat
from lockstep.exercises.lab09.reducing_mistakes import MISTAKES
from lockstep.exercises.lab09.reducing_right import by_asking_for_gradients, one_on_its_way, zero2, zero2_stub
from lockstep.exercises.lab09.toys import Held, chain, numbers
from lockstep.exercises.observe import Observation, Simulate
from lockstep.exercises.plain import short

SPARE = 3  # buckets that may be held beside those of the reference


def two_passes(
    fn: Callable[..., Any], comm: Communicator, x: Tensor, seed: int, widths: list[int], together: int, mixed: bool
) -> dict[str, Any]:
    """Two parts of a batch, whose gradients add up; for each the bytes sent and held at the most, beyond those before.

    mixed: gradients of one bucket come between those of another, and in another order than the bucket's.
    """
    layers = chain(seed, widths)
    parameters = [p for layer in reversed(layers) for p in reversed(list(layer.parameters()))]
    buckets = [parameters[i : i + together] for i in range(0, len(parameters), together)]
    if mixed:
        buckets = [parameters[i :: len(buckets)][::-1] for i in range(len(buckets))]
    shards = [nn.Parameter(shard_flat(bucket, comm.rank, comm.size)) for bucket in buckets]
    gradients, sent, peak, late = [], [], [], []

    def whole_gradients() -> tuple[int, bool]:
        """When backward is nearly over: how many parameters have a gradient, and whether anything has been sent."""
        return sum(p.grad is not None for p in parameters), comm.traffic.bytes_sent > begun

    held = Held(*shards)
    held.watch(comm)
    for part in x.chunk(2):
        loss = nn.Sequential(*layers)(part).square().mean() / 2
        hooks = [p.register_post_accumulate_grad_hook(lambda p: held.note(p.grad)) for p in parameters]
        hooks.append(parameters[-2].register_post_accumulate_grad_hook(lambda _: late.append(whole_gradients())))
        begun, before = comm.traffic.bytes_sent, held.restart()
        fn(comm, loss, buckets, shards)
        for hook in hooks:
            hook.remove()
        gradients.append([None if s.grad is None else s.grad.clone() for s in shards])
        sent.append(comm.traffic.bytes_sent - begun)
        peak.append(held.peak - before)
    hooks_left = sum(len(p._post_accumulate_grad_hooks or ()) for p in parameters)  # torch has no public name for them
    left = sum(p.grad.nbytes for p in parameters if p.grad is not None)
    return {"gradients": gradients, "sent": sent, "peak": peak, "left": left, "late": late, "hooks": hooks_left}


def right_gradients(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    for rank, (got, want) in enumerate(zip(seen.value, expected.value, strict=True)):
        for part, (g, w) in enumerate(zip(got["gradients"], want["gradients"], strict=True), 1):
            for index, (mine, right) in enumerate(zip(g, w, strict=True)):
                difference = differs(mine, right, 1e-4, 1e-6)
                if difference is not None:
                    said = f"Rank {rank}, after backward {part}: the gradient of shard {index} is wrong: {difference}."
                    numbers = [one["gradients"] for one in seen.value]
                    return Finding(said, short(right), short(mine), (numbers,))
    return None


def sends_a_half(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    for rank, (got, want) in enumerate(zip(seen.value, expected.value, strict=True)):
        if sum(got["sent"]) > sum(want["sent"]):
            pair = sum(want["sent"]), sum(got["sent"])
            said = f"The numbers are right, but rank {rank} sends {pair[1]:,} bytes where {pair[0]:,} are enough."
            return Finding(said, f"{pair[0]:,} bytes", f"{pair[1]:,} bytes", ("sent", got["sent"]))
    most = len(expected.collectives[0])
    if len(seen.collectives[0]) > most:
        said = f"The numbers are right, but there are {len(seen.collectives[0])} collectives for {most // 2} buckets twice."
        return Finding(said, f"{most}", f"{len(seen.collectives[0])}", ("collectives", len(seen.collectives[0])))
    return None


def holds_shards(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """No whole gradient stays, and at no time are there more than a few buckets."""
    left = max(one["left"] for one in seen.value)
    if left:
        said = f"The numbers are right, but after backward {left:,} bytes of whole gradients are still there."
        return Finding(said, "every parameter's `.grad` is None", f"{left:,} bytes", ("left", left))
    hooks = max(one["hooks"] for one in seen.value)
    if hooks:
        said = f"The numbers are right, but {hooks} hooks are still on the parameters of a rank after two calls."
        return Finding(said, "no hooks", f"{hooks} hooks", ("hooks", hooks > 0))
    got, want = (max(max(one["peak"]) for one in who.value) for who in (seen, expected))
    if got > want + SPARE * bucket_bytes(case):
        said = (
            f"The numbers are right, but at its peak backward holds {got:,} bytes of gradients where {want:,} are enough: "
            "several buckets whole at once."
        )
        return Finding(said, f"about {want:,} bytes", f"{got:,} bytes", ("peak", seen.value[0]["late"]))
    return None


def bucket_bytes(case: Case) -> int:
    """Of the largest bucket, about."""
    _, widths, together, _ = case.args
    return 4 * max(a * b + b for a, b in zip(widths, widths[1:], strict=False)) * ((together + 1) // 2)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    deep = [7] * 11
    for ranks, widths, together, words in (
        (1, [2, 3, 2], 2, "two buckets"),
        (2, [3, 3, 3], 2, "two buckets"),
        (3, [3, 4, 2], 3, "two buckets, padded"),
        (2, [3, 4, 2], 2, "two buckets that fill by turns"),
        (2, deep, 2, "ten buckets"),
    ):
        each = [(numbers(rng, 4, widths[0]),) for _ in range(ranks)]
        mixed = "turns" in words
        yield on_ranks(ranks, int(rng.integers(1, 100)), widths, together, mixed, each=each, name=words)


OBSERVE = Simulate(two_passes)
JUDGE = all_of(right_gradients, sends_a_half, holds_shards)

ZERO2 = Exercise(
    id="09.4",
    title="Gradients that do not stay",
    function="zero2",
    points=3,
    core=False,
    asks=(
        "Run `loss.backward()`. As soon as all gradients of `buckets[i]` (a list of parameters) are there, in whatever order, average them "
        "over the ranks so that only this rank's shard arrives, add that to `shards[i].grad`, and let the whole gradients go. "
        "`shards[i]` is cut as in 09.2. At no time hold more than a few buckets' whole gradients, and leave no hook behind: "
        "the function is called again for the next part of the batch, and gradients of parts add up."
    ),
    reference=zero2,
    also_right=(one_on_its_way, by_asking_for_gradients),
    stub=zero2_stub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    equivalent_mutants=(
        "line 19: for bucket, shard in zip(buckets, shards, strict=True): -> "
        "for bucket, shard in zip(buckets, shards, strict=False):",
    ),
    hints=(
        "Lab 05's hooks know when a bucket is full. What is different now: who gets what of the average, and what happens to "
        "the gradients of the parameters?",
        "In the hook: count; when the bucket is full, join its gradients to one flat tensor, set every `.grad` to None, pad, "
        "reduce-scatter. The result belongs to `shards[i].grad`, which may be None.",
        "`register_post_accumulate_grad_hook` gives something that has `remove()`. Keep all of them in a list, and remove "
        "them after backward; otherwise they fire again at the next call, and a shard gets its gradient twice.",
    ),
    mistakes=by_first_failure(OBSERVE, JUDGE, MISTAKES),
)
