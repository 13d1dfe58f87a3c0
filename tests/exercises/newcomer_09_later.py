"""The later exercises of lab 09, from 09.4 on; as `newcomer_09.py`, whose `FOUND` and `RIGHT` these are more of."""

import torch
from torch.nn import functional as F

from lockstep.exercises.lab09.reducing_right import zero2
from lockstep.exercises.lab09.toys import fill, free

# 09.4


def zero2_by(when, done):
    """Hooks on the parameters that `when` names of a bucket, with `done` for a bucket's flat gradient."""

    def hooked(comm, loss, buckets, shards):
        hooks, kept = [], []

        def reduce(flat, shard):
            own = comm.reduce_scatter(flat, op="mean")
            shard.grad = own if shard.grad is None else shard.grad + own

        for bucket, shard in zip(buckets, shards, strict=True):

            def full(p, bucket=bucket, shard=shard):
                if when(bucket) is None and any(q.grad is None for q in bucket):
                    return
                flat = torch.cat([q.grad.flatten() for q in bucket])
                flat = F.pad(flat, (0, len(shard) * comm.size - len(flat)))
                for q in bucket:
                    q.grad = None
                done(reduce, flat, shard, kept)

            hooks += [p.register_post_accumulate_grad_hook(full) for p in when(bucket) or bucket]
        loss.backward()
        for hook in hooks:
            hook.remove()
        for flat, shard in kept:
            if shard is not None:
                reduce(flat, shard)

    return hooked


at_the_last_listed = zero2_by(
    lambda bucket: bucket[-1:], lambda reduce, flat, shard, kept: reduce(flat, shard)
)  # Passed.
stashed = zero2_by(
    lambda bucket: None, lambda reduce, flat, shard, kept: kept.append((flat, shard))
)  # "Without waiting".
asks_who_is_there = zero2_by(lambda bucket: None, lambda reduce, flat, shard, kept: reduce(flat, shard))


def kept_in_a_list(reduce, flat, shard, kept):
    kept.append((flat, None))
    reduce(flat, shard)


keeps_flat_ones = zero2_by(lambda bucket: None, kept_in_a_list)


def counts_all_arrivals(comm, loss, buckets, shards):
    # Passed: buckets filled one after the other.
    ends = [sum(map(len, buckets[: i + 1])) for i in range(len(buckets))]
    seen = []

    def arrived(p):
        seen.append(p)
        if len(seen) in ends:
            i = ends.index(len(seen))
            flat = torch.cat([q.grad.flatten() for q in buckets[i]])
            own = comm.reduce_scatter(F.pad(flat, (0, len(shards[i]) * comm.size - len(flat))), op="mean")
            shards[i].grad = own if shards[i].grad is None else shards[i].grad + own
            for q in buckets[i]:
                q.grad = None

    hooks = [p.register_post_accumulate_grad_hook(arrived) for bucket in buckets for p in bucket]
    loss.backward()
    for hook in hooks:
        hook.remove()


def zeroed(comm, loss, buckets, shards):
    zero2(comm, loss, buckets, shards)
    for p in (p for bucket in buckets for p in bucket):
        p.grad = torch.zeros_like(p)


# 09.5


def zero3_by(forward=None, backward=None):
    """The Function with another forward computation, or with what becomes of the gradients of x and of the layer."""

    def zero3(comm, layer, shard, x):
        class Whole(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, shard):
                ctx.x = x
                flat = comm.all_gather(shard)
                fill(layer, flat)
                y = forward(ctx, layer, flat, x) if forward else layer(x)
                free(layer)
                return y

            @staticmethod
            def backward(ctx, dy):
                fill(layer, comm.all_gather(shard))
                with torch.enable_grad():
                    x = ctx.x.detach().requires_grad_()
                    y = layer(x)
                dx, *parts = torch.autograd.grad(y, [x, *layer.parameters()], dy)
                free(layer)
                if backward:
                    dx, parts = backward(comm, dx, parts)
                if parts is None:
                    return dx, None
                flat = torch.cat([part.flatten() for part in parts])
                return dx, comm.reduce_scatter(F.pad(flat, (0, len(shard) * comm.size - len(flat))), op="mean")

        return Whole.apply(x, shard)

    return zero3


linear_alone = zero3_by(lambda ctx, layer, flat, x: F.linear(x, layer.weight, layer.bias))  # Passed.
dx_averaged = zero3_by(backward=lambda comm, dx, parts: (dx / comm.size, parts))
reversed_parts = zero3_by(backward=lambda comm, dx, parts: (dx, parts[::-1]))
nothing_for_the_shard = zero3_by(backward=lambda comm, dx, parts: (dx, None))


def copy_in_ctx(ctx, layer, flat, x):
    ctx.copy = flat.clone()  # Passed: a copy that nobody has seen, and that nobody uses.
    return layer(x)


def copies_in_a_list(ctx, layer, flat, x):
    ctx.copies = [[p.detach().clone() for p in layer.parameters()]]
    return layer(x)


copy_kept, copies_kept = zero3_by(copy_in_ctx), zero3_by(copies_in_a_list)


def copy_in_a_closure(comm, layer, shard, x):
    kept = []

    def forward(ctx, layer, flat, x):
        kept.append(flat.clone())
        return layer(x)

    return zero3_by(forward)(comm, layer, shard, x)


# 09.6


def from_two_at_most(read, elements, old_size, rank, size):
    old, new = -(-elements // old_size), -(-elements // size)
    at, stop = rank * new, min((rank + 1) * new, elements)
    if at >= stop:
        return torch.zeros(new)
    source, inside = divmod(at, old)
    parts = [read(source, inside, min(old, inside + stop - at))]
    if len(parts[0]) < stop - at:
        parts.append(read(source + 1, 0, stop - at - len(parts[0])))
    own = torch.cat(parts)
    return F.pad(own, (0, new - len(own)))


def resharded(round_old=lambda n, d: -(-n // d), stop=0, whole=False):
    def reshard(read, elements, old_size, rank, size):
        old, new = round_old(elements, old_size), -(-elements // size)
        own, at, end = torch.zeros(new), rank * new, min((rank + 1) * new, elements)
        while at < end:
            source, a = divmod(at, old)
            b = min(old, a + end - at)
            part = read(source, 0, old)[a:b] if whole else read(source, a, b - stop)
            own[at - rank * new : at - rank * new + b - a] = part
            at += b - a
        return own

    return reshard


def goes_on_by_recursion(read, elements, old_size, rank, size):
    old, new = -(-elements // old_size), -(-elements // size)
    end = min((rank + 1) * new, elements)

    def parts(at):
        if at >= end:
            return []
        return [read(at // old, at % old, min(old, at % old + end - at)), *parts((at // old + 1) * old)]

    own = torch.cat([*parts(rank * new), torch.zeros(0)])
    return torch.cat([own, torch.zeros(new - len(own))])


FOUND = [
    ("09.4", at_the_last_listed, ["still missing"]),
    ("09.4", counts_all_arrivals, ["still missing"]),
    ("09.4", stashed, ["only sent then", "-is good"]),
    ("09.4", keeps_flat_ones, ["something still holds"]),
    ("09.4", zeroed, ["gives the memory back"]),
    ("09.5", linear_alone, ["may be any module"]),
    ("09.5", dx_averaged, ["this rank's own"]),
    ("09.5", reversed_parts, ["in another order"]),
    ("09.5", nothing_for_the_shard, ["unless it is an input"]),
    ("09.5", copy_kept, ["a copy of it stays"]),
    ("09.5", copies_kept, ["a copy of it stays"]),
    ("09.5", copy_in_a_closure, ["a copy of it stays"]),
    ("09.6", from_two_at_most, ["as often as", "-only"]),
    ("09.6", resharded(lambda n, d: n // d), ["They were cut as in 09.2"]),
    ("09.6", resharded(stop=1), ["`stop` itself is not read"]),
    ("09.6", resharded(whole=True), ["old shards whole"]),
]

RIGHT = [
    ("09.4", asks_who_is_there),
    ("09.6", goes_on_by_recursion),
]
