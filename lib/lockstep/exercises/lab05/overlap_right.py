"""Exercise 05.4's reference, other right classes, and the stub.

Floor 4, room `exercises`; the exercise is in `overlapping.py`.
"""

from __future__ import annotations

import torch

from lockstep.exercises.lab05.bucketing import make_buckets


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
