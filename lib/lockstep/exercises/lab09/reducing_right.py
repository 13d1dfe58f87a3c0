"""Exercise 09.4's reference, other right functions, and the stub.

Floor 4, room `exercises`; the exercise is in `reducing.py`.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F


def zero2(comm, loss, buckets, shards):
    def reduce(bucket, shard):
        flat = torch.cat([p.grad.flatten() for p in bucket])
        for p in bucket:
            p.grad = None
        padded = F.pad(flat, (0, shard.numel() * comm.size - len(flat)))
        own = comm.reduce_scatter(padded, op="mean")
        shard.grad = own if shard.grad is None else shard.grad + own

    def hook(bucket, shard, ready):
        def accumulated(parameter):
            ready.append(parameter)
            if len(ready) == len(bucket):
                reduce(bucket, shard)

        return accumulated

    hooks = []
    for bucket, shard in zip(buckets, shards, strict=True):
        accumulated = hook(bucket, shard, [])
        hooks += [p.register_post_accumulate_grad_hook(accumulated) for p in bucket]
    loss.backward()
    for handle in hooks:
        handle.remove()


def one_on_its_way(comm, loss, buckets, shards):
    """Lets backward go on while one bucket travels."""
    on_its_way = []

    def arrive():
        shard, handle = on_its_way.pop()
        own = handle.wait() / comm.size
        if shard.grad is None:
            shard.grad = own
        else:
            shard.grad += own

    def ready(bucket, shard, left):
        def accumulated(p):
            left.discard(id(p))
            if left:
                return
            while on_its_way:
                arrive()
            whole = shard.new_zeros(len(shard) * comm.size)
            start = 0
            for q in bucket:
                whole[start : start + q.numel()] = q.grad.reshape(-1)
                start += q.numel()
                q.grad = None
            on_its_way.append((shard, comm.reduce_scatter(whole, async_op=True)))

        return accumulated

    hooks = []
    for i, bucket in enumerate(buckets):
        accumulated = ready(bucket, shards[i], {id(p) for p in bucket})
        for p in bucket:
            hooks.append(p.register_post_accumulate_grad_hook(accumulated))
    try:
        loss.backward()
    finally:
        for one in hooks:
            one.remove()
    while on_its_way:
        arrive()


def by_asking_for_gradients(comm, loss, buckets, shards):
    """Asks autograd for one bucket after the other; what is above a bucket is computed again each time."""
    for i, (bucket, shard) in enumerate(zip(buckets, shards, strict=True)):
        found = torch.autograd.grad(loss, bucket, retain_graph=i < len(buckets) - 1)
        flat = torch.cat([g.ravel() for g in found])
        del found
        own = comm.reduce_scatter(F.pad(flat, (0, len(shard) * comm.size - len(flat))) / comm.size)
        shard.grad = own + (0 if shard.grad is None else shard.grad)


def zero2_stub(comm, loss, buckets, shards):
    raise NotImplementedError("run backward; reduce each bucket when its last gradient is there")
