"""Exercise 05.4: send each bucket while backward still computes the layers before it.

Floor 4, room `exercises`. The judge looks at numbers, at how many reductions there are, and at when each begins:
every layer of the toy models costs one virtual millisecond, so a bucket that is sent late is seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from lockstep.comm import Communicator
from lockstep.cost import LayerCost
from lockstep.exercises.compare import differs
from lockstep.exercises.exercise import Case, Exercise, Mistake, on_ranks
from lockstep.exercises.judge import Finding, all_of
from lockstep.exercises.lab05.bucketing import make_buckets
from lockstep.exercises.lab05.likeness import by_first_failure, raises
from lockstep.exercises.lab05.toys import build, first_that_differs, in_words, named_first, shards
from lockstep.exercises.observe import Observation, Simulate

LAYER = 1e-3  # seconds of a layer's backward, far more than a toy's message takes
INSTANT = 1e-7  # seconds
SYNC = (True, True, False, True)  # `sync` in each backward pass of a case


class OverlappedDDP:
    def __init__(self, model, comm, bucket_bytes):
        self.comm, self.sync, self.started = comm, True, []
        parameters = list(model.parameters())
        for tensor in [*parameters, *model.buffers()]:
            comm.broadcast(tensor, src=0)
        for indices in make_buckets(parameters, bucket_bytes):
            bucket = [parameters[i] for i in indices]
            ready = []
            for parameter in bucket:
                parameter.register_post_accumulate_grad_hook(lambda p, b=bucket, r=ready: self.count(p, b, r))

    def count(self, parameter, bucket, ready):
        if self.sync:
            ready.append(parameter)
            if len(ready) == len(bucket):
                ready.clear()
                flat = torch.cat([p.grad.flatten() for p in bucket])
                self.started.append((bucket, flat, self.comm.all_reduce(flat, op="mean", async_op=True)))

    def finish(self):
        for bucket, flat, handle in self.started:
            handle.wait()
            for parameter, part in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
                parameter.grad.copy_(part.view_as(parameter))
        self.started = []


class WithCounters:
    """Counts down, keeps its flat tensors from step to step, and divides at the end."""

    def __init__(self, model, comm, bucket_bytes):
        self.comm, self.sync = comm, True
        params = [p for p in model.parameters()]
        state = torch.cat([t.detach().flatten() for t in params + list(model.buffers())])
        comm.broadcast(state)
        with torch.no_grad():
            for tensor, values in zip(
                params + list(model.buffers()),
                state.split([t.numel() for t in params + list(model.buffers())]),
                strict=True,
            ):
                tensor.copy_(values.view_as(tensor))
        self.buckets = [[params[i] for i in bucket] for bucket in make_buckets(params, bucket_bytes)]
        self.flats = [torch.zeros(sum(p.numel() for p in b), dtype=b[0].dtype) for b in self.buckets]
        self.left = [len(b) for b in self.buckets]
        self.handles = [None] * len(self.buckets)
        for k, bucket in enumerate(self.buckets):
            start = 0
            for p in bucket:
                p.register_post_accumulate_grad_hook(self.hook(k, start))
                start += p.numel()

    def hook(self, k, start):
        def copy_and_count(p):
            if not self.sync:
                return
            self.flats[k][start : start + p.numel()] = p.grad.view(-1)
            self.left[k] -= 1
            if not self.left[k]:
                self.handles[k] = self.comm.all_reduce(self.flats[k], async_op=True)

        return copy_and_count

    def finish(self):
        for k, bucket in enumerate(self.buckets):
            if self.handles[k] is not None:
                mean = self.handles[k].wait() / self.comm.size
                start = 0
                for p in bucket:
                    p.grad = mean[start : start + p.numel()].view(p.shape).clone()
                    start += p.numel()
            self.left[k], self.handles[k] = len(bucket), None


class WithHooksOfTheGraph:
    """Listens where autograd accumulates, and sends in the order of the buckets."""

    def __init__(self, model, comm, bucket_bytes):
        self.comm, self.sync = comm, True
        for tensor in model.state_dict().values():
            comm.broadcast(tensor)
        every = list(model.parameters())
        self.plan = make_buckets(every, bucket_bytes)
        self.ready, self.sent, self.parameters = set(), {}, every
        self.nodes = []  # a node lives only as long as somebody holds it
        for index in (i for bucket in self.plan for i in bucket):
            node = every[index].expand_as(every[index]).grad_fn.next_functions[0][0]
            node.register_hook(lambda *_, index=index: self.arrived(index))
            self.nodes.append(node)

    def arrived(self, index):
        if self.sync:
            self.ready.add(index)
            while len(self.sent) < len(self.plan) and self.ready.issuperset(self.plan[len(self.sent)]):
                flat = torch.cat([self.parameters[i].grad.ravel() for i in self.plan[len(self.sent)]])
                flat /= self.comm.size
                self.sent[len(self.sent)] = flat, self.comm.all_reduce(flat, async_op=True)

    def finish(self):
        for k, (flat, handle) in self.sent.items():
            handle.wait()
            offset = 0
            for i in self.plan[k]:
                parameter = self.parameters[i]
                parameter.grad[...] = flat[offset : offset + parameter.numel()].reshape(parameter.shape)
                offset += parameter.numel()
        self.ready, self.sent = set(), {}


class OverlappedDDPStub:
    def __init__(self, model, comm, bucket_bytes):
        raise NotImplementedError("copy rank 0's parameters and buffers, make buckets, register hooks")

    def finish(self):
        raise NotImplementedError("wait for the reductions and put the means into .grad")


class NoInitialBroadcast(OverlappedDDP):
    def __init__(self, model, comm, bucket_bytes):
        self.comm, self.sync, self.started = comm, True, []
        parameters = list(model.parameters())
        self.listen(parameters, make_buckets(parameters, bucket_bytes))

    def listen(self, parameters, buckets):
        for indices in buckets:
            bucket, ready = [parameters[i] for i in indices], []
            for parameter in bucket:
                parameter.register_post_accumulate_grad_hook(lambda p, b=bucket, r=ready: self.count(p, b, r))


class ForgetsBuffers(NoInitialBroadcast):
    def __init__(self, model, comm, bucket_bytes):
        for parameter in model.parameters():
            comm.broadcast(parameter)
        super().__init__(model, comm, bucket_bytes)


class Right(NoInitialBroadcast):
    """The reference in other words; the mistakes below change one of its methods."""

    def __init__(self, model, comm, bucket_bytes):
        for tensor in [*model.parameters(), *model.buffers()]:
            comm.broadcast(tensor)
        super().__init__(model, comm, bucket_bytes)


class ReducesAfterBackward(Right):
    def count(self, parameter, bucket, ready):
        if self.sync:
            ready.append(parameter)
            if len(ready) == len(bucket):
                ready.clear()
                self.started.append(bucket)

    def finish(self):
        for bucket in self.started:
            flat = torch.cat([p.grad.flatten() for p in bucket])
            self.comm.all_reduce(flat, op="mean")
            for parameter, part in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
                parameter.grad.copy_(part.view_as(parameter))
        self.started = []


class WaitsInTheHook(Right):
    def count(self, parameter, bucket, ready):
        super().count(parameter, bucket, ready)
        if self.started:
            self.finish()


class NeverWaits(Right):
    def finish(self):
        for bucket, flat, _ in self.started:
            for parameter, part in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
                parameter.grad.copy_(part.view_as(parameter))
        self.started = []


class SumForMean(Right):
    def count(self, parameter, bucket, ready):
        if self.sync:
            ready.append(parameter)
            if len(ready) == len(bucket):
                ready.clear()
                flat = torch.cat([p.grad.flatten() for p in bucket])
                self.started.append((bucket, flat, self.comm.all_reduce(flat, async_op=True)))


class LeavesResultsInTheBucket(Right):
    def finish(self):
        for _, _, handle in self.started:
            handle.wait()
        self.started = []


class ReducesWhileAccumulating(Right):
    def count(self, parameter, bucket, ready):
        sync, self.sync = self.sync, True
        super().count(parameter, bucket, ready)
        self.sync = sync


class CountsWhileAccumulating(Right):
    def count(self, parameter, bucket, ready):
        ready.append(parameter)
        if self.sync and len(ready) >= len(bucket):
            ready.clear()
            flat = torch.cat([p.grad.flatten() for p in bucket])
            self.started.append((bucket, flat, self.comm.all_reduce(flat, op="mean", async_op=True)))


class WaitsForFrozenOnes(Right):
    def listen(self, parameters, buckets):
        frozen = [i for i, p in enumerate(parameters) if not p.requires_grad]
        for indices in buckets[:-1] + [buckets[-1] + frozen]:
            bucket, ready = [parameters[i] for i in indices], []
            for parameter in bucket:
                if parameter.requires_grad:
                    parameter.register_post_accumulate_grad_hook(lambda p, b=bucket, r=ready: self.count(p, b, r))


class CountsTiedOnesTwice(NoInitialBroadcast):
    def __init__(self, model, comm, bucket_bytes):
        self.comm, self.sync, self.started = comm, True, []
        parameters = [p for _, p in model.named_parameters(remove_duplicate=False)]
        for tensor in [*parameters, *model.buffers()]:
            comm.broadcast(tensor)
        self.listen(parameters, make_buckets(parameters, bucket_bytes))


class CountsOnWhileAccumulating(Right):
    """Begins anew only in `finish`, and counts in between."""

    def count(self, parameter, bucket, ready):
        ready.append(parameter)
        if self.sync and len(ready) == len(bucket):
            flat = torch.cat([p.grad.flatten() for p in bucket])
            self.started.append((bucket, flat, self.comm.all_reduce(flat, op="mean", async_op=True)))
            self.full = [*getattr(self, "full", []), ready]

    def finish(self):
        super().finish()
        while self.full:
            self.full.pop().clear()


class DropsWhatItAccumulated(Right):
    def count(self, parameter, bucket, ready):
        if not self.sync:
            parameter.grad = None
        super().count(parameter, bucket, ready)


class HasNoSyncAtFirst(NoInitialBroadcast):
    def __init__(self, model, comm, bucket_bytes):
        self.comm, self.started = comm, []
        for tensor in [*model.parameters(), *model.buffers()]:
            comm.broadcast(tensor)
        parameters = list(model.parameters())
        self.listen(parameters, make_buckets(parameters, bucket_bytes))


class AveragesTheStart(NoInitialBroadcast):
    def __init__(self, model, comm, bucket_bytes):
        for tensor in model.state_dict().values():
            comm.all_reduce(tensor, op="mean")
        super().__init__(model, comm, bucket_bytes)


class ReversesBeforeBuckets(NoInitialBroadcast):
    def __init__(self, model, comm, bucket_bytes):
        for tensor in model.state_dict().values():
            comm.broadcast(tensor)
        self.comm, self.sync, self.started = comm, True, []
        parameters = list(model.parameters())[::-1]
        self.listen(parameters, make_buckets(parameters, bucket_bytes))


class NeverForgetsAHandle(Right):
    def finish(self):
        every = list(self.started)
        super().finish()
        self.started = every


class StopsAfterOneStep(Right):
    def count(self, parameter, bucket, ready):
        if self.sync:
            ready.append(parameter)
            if len(ready) == len(bucket):
                flat = torch.cat([p.grad.flatten() for p in bucket])
                self.started.append((bucket, flat, self.comm.all_reduce(flat, op="mean", async_op=True)))


class SendsEachAlone(Right):
    def listen(self, parameters, buckets):
        super().listen(parameters, [[i] for bucket in buckets for i in bucket])


class SendsAtTheFirst(Right):
    def count(self, parameter, bucket, ready):
        if self.sync:
            ready.append(parameter)
            if len(ready) == 1:
                grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in bucket]
                flat = torch.cat([grad.flatten() for grad in grads])
                self.started.append((bucket, flat, self.comm.all_reduce(flat, op="mean", async_op=True)))
            if len(ready) == len(bucket):
                ready.clear()


class BindsLate(Right):
    def listen(self, parameters, buckets):
        self.buckets, self.ready = buckets, [set() for _ in buckets]
        for i, parameter in enumerate(parameters):
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(lambda p: self.arrived(i, parameters))  # noqa: B023

    def arrived(self, i, parameters):
        k = next(k for k, bucket in enumerate(self.buckets) if i in bucket)
        self.ready[k].add(i)
        if self.sync and self.ready[k] == set(self.buckets[k]):
            self.ready[k].clear()
            bucket = [parameters[j] for j in self.buckets[k]]
            flat = torch.cat([p.grad.flatten() for p in bucket])
            self.started.append((bucket, flat, self.comm.all_reduce(flat, op="mean", async_op=True)))


class ListensTooEarly(Right):
    def listen(self, parameters, buckets):
        for indices in buckets:
            bucket, ready = [parameters[i] for i in indices], []
            for parameter in bucket:
                parameter.register_hook(lambda g, p=parameter, b=bucket, r=ready: self.count(p, b, r))


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
    return again and Finding(
        f"The numbers are right, but `finish` waits again for reductions of earlier steps, {again} times in three steps.",
        "none", str(again), ("again", again),
    ) or None  # fmt: skip


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


def never_full(case: Case, seen: Observation, expected: Observation) -> bool:
    """A bucket that waits for more than it can get is never sent."""
    if seen.error is not None or len(reductions(seen, 0)[0]) >= len(reductions(expected, 0)[0]):
        return False
    return sum(seen.value[0]["sizes"][0]) < sum(expected.value[0]["sizes"][0])


def never_full_with_a_frozen_one(case: Case, seen: Observation, expected: Observation) -> bool:
    return case.args[0] == "tied" and never_full(case, seen, expected)


def never_full_though_all_are_trained(case: Case, seen: Observation, expected: Observation) -> bool:
    return case.args[0] == "plain" and never_full(case, seen, expected)


def reads_no_gradient(case: Case, seen: Observation, expected: Observation) -> bool:
    return seen.error is not None and "NoneType' object has no attribute" in seen.error.message


def leaves_handles(case: Case, seen: Observation, expected: Observation) -> bool:
    """After the first step a reduction is still on its way."""
    return seen.error is None and any(one["left"][0] for one in seen.value)


def sends_while_accumulating(case: Case, seen: Observation, expected: Observation) -> bool:
    return seen.error is None and bool(reductions(seen, 0)[SYNC.index(False)])


def changes_rank_0(case: Case, seen: Observation, expected: Observation) -> bool:
    """Rank 0 itself begins with other parameters than it had."""
    return seen.error is None and differs(seen.value[0]["start"], expected.value[0]["start"], 1e-5, 1e-8) is not None


def cases(rng: np.random.Generator) -> Iterator[Case]:
    drawn = (
        (1, "plain", 12, "two buckets"),
        (2, "tied", 4096, "one bucket, a tied and a frozen parameter, a buffer"),
        (2, "tied", 28, "two buckets, a tied and a frozen parameter, a buffer"),
    )
    for ranks, model, cap, words in drawn:
        yield on_ranks(ranks, model, cap, int(rng.integers(1, 100)), each=shards(rng, [6] * ranks), name=words)


OBSERVE, JUDGE = Simulate(trained), all_of(begins_like_rank_0, averages, overlaps, forgets_handles)

OVERLAPPED = Exercise(
    id="05.4",
    title="Reductions behind the backward pass",
    function="OverlappedDDP",
    points=3,
    asks=(
        "A class. `OverlappedDDP(model, comm, bucket_bytes)` copies rank 0's parameters and buffers to all ranks and "
        "registers hooks: when the last gradient of a bucket is ready, one asynchronous all-reduce of the bucket "
        "starts, and backward goes on. `finish()`, called after backward, waits, puts the means over the ranks into "
        "`.grad`, and forgets the handles. While the attribute `sync` is False, backward only adds up gradients and nothing is sent."
    ),
    reference=OverlappedDDP,
    also_right=(WithCounters, WithHooksOfTheGraph),
    stub=OverlappedDDPStub,
    cases=cases,
    observe=OBSERVE,
    judge=JUDGE,
    equivalent_mutants=(
        "line 24: for parameter, part in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True): -> "
        "for parameter, part in zip(bucket, flat.split([p.numel() for p in bucket]), strict=False):",
    ),
    hints=(
        "Four duties: equal parameters at the start; knowing when a bucket is full; sending it without waiting; and "
        "bringing the result home. Which of them happen in the constructor, which in a hook, which in `finish`?",
        "A hook of `register_post_accumulate_grad_hook` is given its parameter. Count, for each bucket, how many of "
        "its gradients are ready. When all are, join them into one flat tensor and call "
        "`comm.all_reduce(flat, op='mean', async_op=True)`. Keep bucket, flat tensor and handle in a list.",
        "`finish` goes through that list: wait for the handle, split the flat tensor into pieces of `numel()` "
        "elements each, and copy every piece, with its parameter's shape, into `parameter.grad`. Then empty the list. "
        "The counts have to begin anew for the next step, too.",
        "The hook in three lines: `ready.append(parameter)`, `if len(ready) == len(bucket): ready.clear()`, and the "
        "asynchronous all-reduce of `torch.cat([p.grad.flatten() for p in bucket])`; first of all it asks `self.sync`.",
    ),
    mistakes=by_first_failure(
        OBSERVE,
        JUDGE,
        (
            Mistake(
                "no initial broadcast",
                NoInitialBroadcast,
                "The ranks begin with different parameters. Equal gradients then keep them apart for ever: every rank "
                "trains a network of its own. Broadcast rank 0's parameters and buffers in the constructor.",
            ),
            Mistake(
                "averages the start",
                AveragesTheStart,
                "Rank 0's own parameters have changed: you average the ranks' parameters. A mean of random networks is a "
                "worse start than any of them; all take those of rank 0.",
                symptom=changes_rank_0,
            ),
            Mistake(
                "forgets the buffers",
                ForgetsBuffers,
                "The parameters agree, the buffers do not. A buffer is not trained, but the forward pass uses it, as batch "
                "norm does its running mean. Broadcast `model.buffers()` too.",
            ),
            Mistake(
                "has no `sync` at first",
                HasNoSyncAtFirst,
                "The attribute `sync` has to exist and be True at first: set it in `__init__`. Only then can somebody set "
                "it to False.",
                symptom=raises("AttributeError", "no attribute 'sync'"),
            ),
            Mistake(
                "reduces after backward",
                ReducesAfterBackward,
                "Every reduction begins when backward has ended: nothing is hidden behind anything. Start it in the hook "
                "of the bucket's last gradient, and only wait in `finish`.",
            ),
            Mistake(
                "waits in the hook",
                WaitsInTheHook,
                "You wait for the result inside the hook. Autograd runs hooks in the middle of backward, so the next "
                "layer is not computed until they return. Pass `async_op=True`, keep the handle, wait in `finish`.",
            ),
            Mistake(
                "handle never waited",
                NeverWaits,
                "You read the flat tensor without having waited for its handle. Until `wait()` has returned, it may hold "
                "anything; here it still holds this rank's own gradients.",
                symptom=leaves_handles,
            ),
            Mistake(
                "sum for mean",
                SumForMean,
                "These are sums over the ranks; the mean is asked for. Every step would be as many times too long as there "
                "are ranks.",
            ),
            Mistake(
                "leaves the results in the bucket",
                LeavesResultsInTheBucket,
                "The means are in the flat tensors, and `.grad` still holds this rank's own gradients. `torch.cat` made a "
                "copy: what comes back has to be copied home.",
            ),
            Mistake(
                "reduces during accumulation",
                ReducesWhileAccumulating,
                "While `sync` is False nothing may be sent: the gradient is not complete before the last of the backward "
                "passes. Ask `self.sync` at the top of the hook.",
                symptom=sends_while_accumulating,
            ),
            Mistake(
                "counts during accumulation",
                CountsWhileAccumulating,
                "A pass without sync has already been counted, so in the next one a bucket counts as full before its "
                "gradients are there. Without sync the hook has to leave the counts alone.",
            ),
            Mistake(
                "counts on while accumulating",
                CountsOnWhileAccumulating,
                "Two steps are right, but after a pass without `sync` nothing is sent: the bucket has counted that pass's "
                "gradients too, and goes beyond its number. Do not count while `sync` is False.",
            ),
            Mistake(
                "drops what it accumulated",
                DropsWhatItAccumulated,
                "What a pass without `sync` computed is lost. Its gradients have to stay in `.grad`, where autograd adds "
                "those of the next pass to them: without `sync` the hook does nothing at all.",
            ),
            Mistake(
                "never forgets a handle",
                NeverForgetsAHandle,
                "Your list of handles is never emptied. Every `finish` copies home all results since the start, and the "
                "list keeps the memory of all of them. Empty it at the end of `finish`.",
            ),
            Mistake(
                "tied weight reduced twice",
                CountsTiedOnesTwice,
                "A weight that two layers share is one parameter with one gradient. Yours is in the buckets twice, so it "
                "travels twice. `model.parameters()` gives it once.",
            ),
            Mistake(
                "frozen parameter waits for ever",
                WaitsForFrozenOnes,
                "A bucket waits for more gradients than it can get, so it is never sent: a frozen parameter has no "
                "gradient and its hook never runs. Count the trained ones only.",
                symptom=never_full_with_a_frozen_one,
            ),
            Mistake(
                "counts only the first step",
                StopsAfterOneStep,
                "The first step is right and the next one is not reduced: the counts of a bucket have to begin anew once "
                "it has been sent.",
            ),
            Mistake(
                "lambda in a loop binds late",
                BindsLate,
                "A bucket is never full: fewer gradients are counted than there are. Is the hook a lambda in a loop over "
                "`i`? It looks `i` up when it runs, so every hook sees the last `i`. Bind it when the hook is made: "
                "`lambda p, i=i: ...`.",
                symptom=never_full_though_all_are_trained,
            ),
            Mistake(
                "listens too early",
                ListensTooEarly,
                "A gradient is None when a bucket is sent. There are two ways to get there: a hook of `register_hook` runs "
                "before the gradient is in `.grad` (one of `register_post_accumulate_grad_hook` runs after it); and a "
                "lambda in a loop, unless it binds them (`lambda p, b=bucket: ...`), sees the last values of the loop's "
                "variables, so it fills the wrong bucket.",
                symptom=reads_no_gradient,
            ),
            Mistake(
                "sends every parameter alone",
                SendsEachAlone,
                "Every gradient travels alone. The buckets are there so that small ones share a message: send when the "
                "last gradient of a bucket is ready, not at each one.",
            ),
            Mistake(
                "reverses before it makes buckets",
                ReversesBeforeBuckets,
                "Your buckets hold other parameters than those of `make_buckets(list(model.parameters()), bucket_bytes)`. "
                "It goes from the last parameter to the first by itself: give it the parameters in their own order.",
            ),
            Mistake(
                "sends at the first gradient",
                SendsAtTheFirst,
                "A bucket is sent when its first gradient is ready; the others in it are not there yet. Wait for the last.",
            ),
        ),
    ),
)
