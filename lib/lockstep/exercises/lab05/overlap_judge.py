"""How a class of exercise 05.4 is run, and what may be wrong with the run.

Floor 4, room `exercises`. The judge looks at numbers, at how many reductions there are, and at when each begins:
every layer of the toy models costs one virtual millisecond, so a bucket that is sent late is seen.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from lockstep.comm import Communicator
from lockstep.cost import LayerCost
from lockstep.exercises.compare import differs
from lockstep.exercises.exercise import Case
from lockstep.exercises.judge import Finding, all_of
from lockstep.exercises.lab05.toys import build, first_that_differs, in_words, named_first
from lockstep.exercises.observe import Observation, Simulate

LAYER = 1e-3  # seconds of a layer's backward, far more than a toy's message takes
INSTANT = 1e-7  # seconds
SYNC = (True, True, False, True)  # `sync` in each backward pass of a case


def trained(
    fn: Any, comm: Communicator, x: Tensor, y: Tensor, kind: str, bucket_bytes: int, seed: int
) -> dict[str, Any]:
    """Three steps of SGD, the last in two parts without and with `sync`; the ranks begin with different parameters.

    backward: for each backward pass, when it began and ended, and when the call after it returned (virtual seconds).
    sizes: for each backward pass, the bytes of what is reduced in it and after it, in order.
    left: after each `finish`, reductions still on their way. again: how often it waited for one of an earlier step.
    """
    model = build(kind, 10 * seed + comm.rank)
    profile = {
        name: LayerCost(backward=LAYER) for name, m in model.named_modules() if list(m.parameters(recurse=False))
    }
    comm.charge(model, profile)
    sizes = note_sizes(comm)
    ddp = fn(model, comm, bucket_bytes)
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    backward, gradients, sent, left, again = [], [], [], [], []
    parts = torch.arange(len(x)).tensor_split(len(SYNC))
    for part, sync in zip(parts, SYNC, strict=True):
        with comm.span("load", cost=LAYER):  # time passes, so that what a step began is no part of the next one
            if not sync:
                ddp.sync = False
        loss = F.mse_loss(model(x[part]), y[part])
        begun, before = comm.now(), len(sizes)
        loss.backward()
        ended = comm.now()
        ddp.sync = True
        if sync:
            started = list(comm.unfinished)
            ddp.finish()
            left.append(len(comm.unfinished))
            for handle in {*started, *comm.unfinished}:
                handle.wait()  # what was left would end the run as NeverWaited, and there is more to say
                handle.wait = lambda wait=handle.wait: again.append(wait()) or again[-1]
            gradients.append({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
            _step(model)
        backward.append((begun, ended, comm.now()))
        sent.append(sizes[before:])
    result = {"start": start, "gradients": gradients, "backward": backward}
    return result | {"sizes": sent, "left": left, "again": len(again)}


def note_sizes(comm: Communicator) -> list[int]:
    """Bytes of every tensor that goes into an all-reduce from now on, in order."""
    sizes: list[int] = []
    all_reduce = comm.all_reduce

    def noting(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        sizes.append(getattr(tensor, "nbytes", 0))
        return all_reduce(tensor, *args, **kwargs)

    comm.all_reduce = noting
    return sizes


def _step(model: torch.nn.Module) -> None:
    """Plain SGD; the first optimizer of torch that a process makes would cost it seconds of importing."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= 0.5 * parameter.grad
                parameter.grad = None


def begins_like_rank_0(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    for rank, (got, want) in enumerate(zip(seen.value, expected.value, strict=True)):
        difference = differs(got["start"], want["start"], 1e-5, 1e-8)
        if difference is not None:
            words = "{} is not that of rank 0 at the start" if rank else "{} is no longer what it was; all get rank 0's"
            sentence = named_first(f"Rank {rank}: {difference}.", words)
            evidence = ("start", [one["start"] for one in seen.value])
            return Finding(sentence, *first_that_differs(got["start"], want["start"]), evidence)
    return None


def averages(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    words = ("after the first step", "after the second step", "after two backward passes, the first without sync")
    waits = any(done > ended + INSTANT for rank in range(case.ranks) for _, ended, done in passes(seen, rank))
    for rank, (got, want) in enumerate(zip(seen.value, expected.value, strict=True)):
        for when, g, w in zip(words, got["gradients"], want["gradients"], strict=True):
            difference = differs(g, w, 1e-4, 1e-6)
            if difference is not None:
                evidence = (waits, [one["gradients"] for one in seen.value])
                sentence = named_first(f"Rank {rank}: {difference}.", f"the gradient of {{}} {when}")
                return Finding(sentence, *first_that_differs(g, w), evidence)
    return None


def reductions(seen: Observation, rank: int) -> list[list[float]]:
    """For each backward pass, when the collectives that belong to it began, counted from its own beginning."""
    spans = [s for s in seen.trace.spans if s.kind == "collective" and s.rank == rank]
    return [[s.start - begun for s in spans if begun <= s.start <= done] for begun, _, done in passes(seen, rank)]


def passes(seen: Observation, rank: int) -> list[tuple[float, float, float]]:
    """When each backward pass began and ended, and when what belongs to it was done."""
    return seen.value[rank]["backward"]


def bytes_sent(seen: Observation, rank: int) -> int:
    begun, _, done = passes(seen, rank)[0]
    return sum(m.bytes for m in seen.trace.messages if m.src == rank and begun <= m.sent <= done)


def charged(seen: Observation, rank: int) -> list[int]:
    """For each backward pass, how many layers of the model took their time in it."""
    spans = [s for s in seen.trace.spans if s.rank == rank and s.name.startswith("backward ")]
    inside = [
        [s for s in spans if begun - INSTANT <= s.start <= s.end <= ended + INSTANT]
        for begun, ended, _ in passes(seen, rank)
    ]
    return [len([s for s in one if s.end - s.start >= LAYER - INSTANT]) for one in inside]


def keeps_the_clock(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """Every layer's backward still costs its time: without that no reduction can be late."""
    for rank in range(case.ranks):
        got, want = charged(seen, rank), charged(expected, rank)
        if got != want:
            return Finding(
                f"On rank {rank} the model's layers take no time any more: the hooks that measure when a gradient is "
                "ready are gone, or they were called by somebody else. Leave hooks alone that you did not register.",
                f"{in_words(want)} layers take their time, by backward pass", in_words(got), ("clock", got),
            )  # fmt: skip
    return None


def overlaps(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """One reduction for each bucket, none without `sync`, each begun when its bucket is full, none waited for."""
    for rank in range(case.ranks):
        got, want = reductions(seen, rank), reductions(expected, rank)
        counts, buckets = [len(one) for one in got], len(want[0])
        for pass_, sync in enumerate(SYNC):
            many = f"{counts[pass_]} collective{'s' * (counts[pass_] != 1)}"
            if not sync and counts[pass_]:
                return Finding(
                    f"While `sync` is False, rank {rank} still begins {many}.", "none: nothing is sent", many,
                    ("unasked", counts),
                )  # fmt: skip
            if sync and counts[pass_] != buckets:
                return Finding(
                    f"The numbers are right, but rank {rank} begins {many} in a step, for {buckets} "
                    f"bucket{'s' * (buckets != 1)}.",
                    _sizes(expected, rank, pass_), _sizes(seen, rank, pass_), ("count", counts),
                )  # fmt: skip
        late = any(g > w + INSTANT for g, w in zip(got[0], want[0], strict=True))
        if late or _backward(seen, rank) > _backward(expected, rank) + INSTANT:
            return _late(case, rank, seen, expected)
        sent, enough = bytes_sent(seen, rank), bytes_sent(expected, rank)
        if sent > enough:
            return Finding(
                f"The numbers are right, but rank {rank} sends {sent} bytes in a step where {enough} are enough.",
                f"{enough} bytes", f"{sent} bytes", ("bytes", sent),
            )  # fmt: skip
    return None


def forgets_handles(case: Case, seen: Observation, expected: Observation) -> Finding | None:
    """Each handle is waited for in its own step."""
    again = seen.value[0]["again"]
    sentence = "The numbers are right, but `finish` waits again for reductions of earlier steps."
    return Finding(sentence, "never", f"{again} times in 3 steps", ("again", again)) if again else None


def _sizes(seen: Observation, rank: int, pass_: int) -> str:
    """ "buckets of 12 and 24 bytes", in the order in which they are sent."""
    sizes = seen.value[rank]["sizes"][pass_]
    return f"{'buckets' if len(sizes) > 1 else 'a bucket'} of {in_words(sizes)} bytes" if sizes else "no all-reduce"


def _backward(seen: Observation, rank: int) -> float:
    begun, ended, _ = passes(seen, rank)[0]
    return ended - begun


def _late(case: Case, rank: int, seen: Observation, expected: Observation) -> Finding:
    got, want = (reductions(one, rank)[0] for one in (seen, expected))
    shown = [", ".join(f"{1000 * begun:.2f}" for begun in one) + " ms" for one in (want, got)]
    inside = sum(begun < _backward(seen, rank) - INSTANT for begun in got)
    if inside or len(want) == 1:
        sentence = f"The numbers are right, but backward waits on rank {rank} while a bucket is on its way."
    else:
        sentence = f"The numbers are right, but on rank {rank} no reduction begins before backward has ended."
    return Finding(
        sentence, f"reductions begin {shown[0]} after backward does", shown[1], ("late", inside > 0)
    )  # fmt: skip


OBSERVE, JUDGE = Simulate(trained), all_of(begins_like_rank_0, averages, keeps_the_clock, overlaps, forgets_handles)
