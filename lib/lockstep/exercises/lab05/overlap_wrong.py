"""Exercise 05.4: wrong solutions that students write; their sentences are in `overlap_mistakes.py`.

Floor 4, room `exercises`.
"""

from __future__ import annotations

import torch

from lockstep.exercises.lab05.bucketing import make_buckets
from lockstep.exercises.lab05.overlap_right import OverlappedDDP


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
