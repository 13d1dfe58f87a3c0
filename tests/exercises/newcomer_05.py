"""What somebody who solved lab 05 for the first time wrote on the way, and the words that the verdict must hold.

Each once got a wrong cause, or none, or passed. `FOUND` lists (exercise, function, words); words with a leading "-"
must not be there.
"""

import torch

from lockstep.exercises.lab05.batch_norm import sync_batch_norm
from lockstep.exercises.lab05.bucketing import make_buckets

# 05.2


def reduces_an_int(model, comm, samples):
    comm.all_reduce(samples)


def zeros_for_frozen_ones(model, comm, samples):
    total = comm.all_reduce(torch.tensor(float(samples)))
    for p in model.parameters():
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad * samples
        comm.all_reduce(p.grad)
        p.grad /= total


# 05.3


def indices_of_a_reversed_filtered_copy(parameters, bucket_bytes):
    buckets, size, dtype = [], bucket_bytes, None
    for i, p in enumerate([p for p in reversed(parameters) if p.requires_grad]):
        if size >= bucket_bytes or p.dtype != dtype:
            buckets.append([])
            size, dtype = 0, p.dtype
        buckets[-1].append(i)
        size += p.nbytes
    return buckets


def clears_the_bucket(parameters, bucket_bytes):
    buckets, cur, size = [], [], 0
    for i in range(len(parameters) - 1, -1, -1):
        p = parameters[i]
        if not p.requires_grad:
            continue
        if cur and parameters[cur[0]].dtype != p.dtype:
            buckets.append(cur)
            cur.clear()
            size = 0
        cur.append(i)
        size += p.nbytes
        if size >= bucket_bytes:
            buckets.append(cur)
            cur.clear()
            size = 0
    if cur:
        buckets.append(cur)
    return buckets


def closes_at_any_other_dtype(parameters, bucket_bytes):
    buckets, cur, size, dtype = [], [], 0, parameters[-1].dtype
    for i in range(len(parameters) - 1, -1, -1):
        p = parameters[i]
        if cur and (size >= bucket_bytes or p.dtype != dtype):
            buckets.append(cur)
            cur, size = [], 0
        dtype = p.dtype
        if p.requires_grad:
            cur.append(i)
            size += p.nbytes
    return buckets + [cur] if cur else buckets


# 05.4


class ByIndex:
    """Right. The classes below change one thing."""

    def __init__(self, model, comm, bucket_bytes):
        self.comm, self.params = comm, list(model.parameters())
        self.start()
        self.begin(model)
        self.make(bucket_bytes)
        self.reset()
        self.sent = self.nothing_sent()
        self.listen()

    def start(self):
        self.sync = True

    def begin(self, model):
        for t in model.state_dict().values():
            self.comm.broadcast(t)

    def make(self, bucket_bytes):
        self.buckets = make_buckets(self.params, bucket_bytes)

    def reset(self):
        self.ready = [set() for _ in self.buckets]

    def nothing_sent(self):
        return []

    def listen(self):
        for i, p in enumerate(self.params):
            if p.requires_grad:
                p.register_post_accumulate_grad_hook(lambda p, i=i: self.hook(i))

    def hook(self, i):
        if self.sync:
            self.count(i)

    def count(self, i):
        k = next(k for k, bucket in enumerate(self.buckets) if i in bucket)
        self.ready[k].add(i)
        if len(self.ready[k]) == len(self.buckets[k]):
            self.send(k)

    def send(self, k):
        self.ready[k] = set()
        flat = torch.cat([self.params[i].grad.flatten() for i in self.buckets[k]])
        self.sent.append((k, flat, self.comm.all_reduce(flat, op="mean", async_op=True)))

    def finish(self):
        for k, flat, handle in self.sent:
            handle.wait()
            at = 0
            for i in self.buckets[k]:
                p = self.params[i]
                p.grad.copy_(flat[at : at + p.numel()].view_as(p))
                at += p.numel()
        self.sent = []


class LateIndex(ByIndex):
    def listen(self):
        for i, p in enumerate(self.params):
            if p.requires_grad:
                p.register_post_accumulate_grad_hook(lambda p: self.hook(i))  # noqa: B023


class LateBucket(ByIndex):
    def listen(self):
        for bucket in self.buckets:
            for i in bucket:
                self.params[i].register_post_accumulate_grad_hook(lambda p: self.hook(i))  # noqa: B023


class NoSync(ByIndex):
    def start(self):
        pass


class Reversed(ByIndex):
    def make(self, bucket_bytes):
        self.params.reverse()
        super().make(bucket_bytes)


class CountsWithoutSync(ByIndex):
    def reset(self):
        self.ready = [0] * len(self.buckets)

    def hook(self, i):
        k = next(k for k, bucket in enumerate(self.buckets) if i in bucket)
        self.ready[k] += 1
        if self.ready[k] == len(self.buckets[k]) and self.sync:
            ready = self.ready[:]
            self.ready[k] = set()
            self.send(k)
            self.ready = ready

    def finish(self):
        super().finish()
        self.reset()


class AveragesTheStart(ByIndex):
    def begin(self, model):
        for t in model.state_dict().values():
            self.comm.all_reduce(t)
            t /= self.comm.size


class IgnoresSync(ByIndex):
    def hook(self, i):
        self.count(i)


class IgnoresSyncAndForgetsHandles(ByIndex):
    def hook(self, i):
        self.count(i)

    def send(self, k):
        before = [one for one in self.sent if one[0] != k]
        super().send(k)
        self.sent = [*before, self.sent[-1]]


class ThrowsAway(ByIndex):
    def hook(self, i):
        if self.sync:
            self.count(i)
        else:
            self.params[i].grad = None


class KeepsHandles(ByIndex):
    def finish(self):
        sent = self.sent
        super().finish()
        self.sent = sent


class WaitsForNothing(ByIndex):
    def finish(self):
        self.sent = []


# 05.5


def rate(step, per_epoch, base_lr, base_batch, batch, epochs, times=None, steps=None):
    full = base_lr * (batch / base_batch if times is None else times)
    steps = epochs * per_epoch if steps is None else steps
    return full if step >= steps else base_lr + (full - base_lr) * step / steps


def at_least_one_step(step, per_epoch, base_lr, base_batch, batch, epochs):
    return rate(step, per_epoch, base_lr, base_batch, batch, epochs, steps=max(epochs * per_epoch, 1))


def small_without_a_warm_up(step, per_epoch, base_lr, base_batch, batch, epochs):
    return base_lr if epochs == 0 else rate(step, per_epoch, base_lr, base_batch, batch, epochs)


def in_whole_numbers(step, per_epoch, base_lr, base_batch, batch, epochs):
    return rate(step, per_epoch, base_lr, base_batch, batch, epochs, times=batch // base_batch)


# 05.6


def in_place(server, gradient, version):
    late = server.version - version
    gradient *= server.lr
    server.parameters -= gradient
    server.version += 1
    return late


# 05.7


def wide(t):
    return t.view(1, -1, 1, 1)


def without_a_function(comm, x, weight, bias, eps):
    n = torch.full_like(weight, x.shape[0] * x.shape[2] * x.shape[3])
    s, q, n = comm.all_reduce(torch.stack([x.sum((0, 2, 3)), (x * x).sum((0, 2, 3)), n]))
    mean, var = s / n, q / n - (s / n) ** 2
    return (x - wide(mean)) / (wide(var) + eps).sqrt() * wide(weight) + wide(bias)


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t, comm):
        ctx.comm = comm
        return comm.all_reduce(t.clone())

    @staticmethod
    def backward(ctx, dy):
        return ctx.comm.all_reduce(dy.clone()), None


def without_a_view(comm, x, weight, bias, eps):
    n = torch.full_like(weight, x.shape[0] * x.shape[2] * x.shape[3])
    s, q, n = Sum.apply(torch.stack([x.sum((0, 2, 3)), (x * x).sum((0, 2, 3)), n]), comm)
    return (x - s / n) / (q / n - (s / n) ** 2 + eps).sqrt() * weight + bias


def own_images(comm, x, weight, bias, eps):
    mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
    return (x - wide(mean)) / (wide(var) + eps).sqrt() * wide(weight) + wide(bias)


def mean_of_means_in_four_calls(comm, x, weight, bias, eps):
    mean, var = x.detach().mean((0, 2, 3)), x.detach().var((0, 2, 3), unbiased=False)
    for t in (mean, var):
        comm.all_reduce(t, op="mean")
    comm.barrier()
    comm.barrier()
    return (x - wide(mean)) / (wide(var) + eps).sqrt() * wide(weight) + wide(bias)


def leaves_an_empty_rank(comm, x, weight, bias, eps):
    if x.shape[0] == 0:
        return x
    return sync_batch_norm(comm, x, weight, bias, eps)


FOUND = [
    ("05.2", reduces_an_int, ["only tensors travel", "-missing"]),
    ("05.2", zeros_for_frozen_ones, ["`scale`", "weight decay"]),
    ("05.3", indices_of_a_reversed_filtered_copy, ["copy", "-first layer"]),
    ("05.3", clears_the_bucket, ["clear()"]),
    ("05.3", closes_at_any_other_dtype, ["frozen", "another dtype"]),
    ("05.4", LateIndex, ["last `i`", "-is frozen"]),
    ("05.4", LateBucket, ["loop", "-is frozen"]),
    ("05.4", NoSync, ["be True at first", "-is None"]),
    ("05.4", Reversed, ["of 28 and 48 bytes", "in their own order", "-alone"]),
    ("05.4", CountsWithoutSync, ["not count while `sync` is False"]),
    ("05.4", AveragesTheStart, ["Rank 0's own parameters", "no longer what it was"]),
    ("05.4", IgnoresSync, ["While `sync` is False nothing"]),
    ("05.4", IgnoresSyncAndForgetsHandles, ["While `sync` is False nothing"]),
    ("05.4", ThrowsAway, ["lost"]),
    ("05.4", KeepsHandles, ["never emptied"]),
    ("05.4", WaitsForNothing, ["without having waited"]),
    ("05.5", at_least_one_step, ["step 0 already has the full rate"]),
    ("05.5", small_without_a_warm_up, ["step 0 already has the full rate"]),
    ("05.5", in_whole_numbers, ["`//`"]),
    ("05.6", in_place, ["`*=`"]),
    ("05.7", without_a_function, ["`comm` is outside autograd"]),
    ("05.7", without_a_view, ["(1, channels, 1, 1)"]),
    ("05.7", own_images, ["its own images", "-numbers are right"]),
    ("05.7", mean_of_means_in_four_calls, ["-numbers are right"]),
    ("05.7", leaves_an_empty_rank, ["leaves early"]),
]
