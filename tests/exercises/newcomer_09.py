"""What somebody who solved lab 09 for the first time wrote on the way, and the words that the verdict must hold.

`FOUND`: (exercise, function, words); each once passed, got a wrong cause, or none. A word with a leading "-" must not be
there. `RIGHT`: (exercise, function); each once failed, or is right in a way that is unlike the reference.
"""

import math
from collections import defaultdict

import torch
from torch import nn
from torch.nn import functional as F

from lockstep.exercises.lab09.reducing_right import zero2
from lockstep.exercises.lab09.toys import fill, free

# 09.1


def counted(kept=None, width=None, shard=None, first=(3, 2, 1)):
    """The bytes, with one part counted in another way."""

    def state(parameters, ranks, stage, optimizer, precision):
        w = 4 if precision == "fp32" else 2
        k = {"sgd": 0, "momentum": 4, "adam": 8}[optimizer] + (4 if precision == "mixed" else 0)
        k = kept(optimizer, precision) if kept else k
        s = shard(parameters, ranks) if shard else -(-parameters // ranks)
        sizes = (w, w, k)
        parts = [b * (s if stage >= at else parameters) for b, at in zip(sizes, first, strict=True)]
        return dict(zip(("parameters", "gradients", "optimizer"), parts, strict=True))

    return state


one_more = counted(shard=lambda n, ranks: n // ranks + 1)  # Passed: no case divided.
nothing_on_many_ranks = counted(shard=lambda n, ranks: -(-n // ranks) if n > ranks else 0)  # Passed.
momentum_of_eight = counted(lambda o, p: (0 if o == "sgd" else 8) + (4 if p == "mixed" else 0))  # "No master copy".
means_of_two = counted(
    lambda o, p: {"sgd": 0, "momentum": 1, "adam": 2}[o] * (4 if p == "fp32" else 2) + 4 * (p != "fp32")
)
gradients_late = counted(first=(3, 3, 1))  # "One stage behind: the optimizer's part".
swapped = counted(first=(2, 3, 1))  # "You shard all parts in every stage".


def pads_in_every_stage(parameters, ranks, stage, optimizer, precision):
    padded = math.ceil(parameters / ranks) * ranks
    return counted()(padded, ranks, stage, optimizer, precision)


def in_a_defaultdict(parameters, ranks, stage, optimizer, precision):
    found = defaultdict(float)
    found.update(counted()(parameters, ranks, stage, optimizer, precision))
    return found


# 09.2


def zeros_of_float32(tensors, rank, size):
    # Passed: in float64 the zeros are promoted, in bfloat16 the numbers are.
    flat = torch.cat([t.detach().flatten() for t in tensors])
    flat = torch.cat([flat, torch.zeros(-len(flat) % size)])
    return flat.view(size, -1)[rank].clone()


def last_rank_alone(tensors, rank, size):
    flat = torch.cat([t.detach().flatten() for t in tensors])
    n = -(-len(flat) // size)
    own = flat[rank * n : (rank + 1) * n].clone()
    return torch.cat([own, own.new_zeros(n - len(own))]) if rank == size - 1 else own


def writes_zeros(tensors, rank, size):
    flat = torch.cat([t.detach().flatten() for t in tensors])
    flat = F.pad(flat, (0, -len(flat) % size))
    for t in tensors:
        t.data.fill_(0)
    return flat.view(size, -1)[rank].clone()


def twice_the_size(tensors, rank, size):
    flat = torch.cat([t.detach().flatten() for t in tensors])
    return F.pad(flat, (0, -len(flat) % (2 * size))).view(size, -1)[rank].clone()


def as_a_parameter(tensors, rank, size):
    # "Has a history", which a leaf has not.
    flat = torch.cat([t.detach().flatten() for t in tensors])
    return nn.Parameter(F.pad(flat, (0, -len(flat) % size)).view(size, -1)[rank].clone())


# 09.3


def step_with(decide, factor=None, norm=None, optimizer_step=None, last=None):
    """A step whose parts can be others: whether to step, by which factor, what happens in the end."""

    def step(comm, parameters, shard, optimizer, max_norm):
        flat = torch.cat([p.grad.flatten() for p in parameters])
        shard.grad = comm.reduce_scatter(F.pad(flat, (0, len(shard) * comm.size - len(flat))), op="mean")
        length = norm(comm, shard) if norm else comm.all_reduce(shard.grad.square().sum()).sqrt()
        ok = decide(shard, length)
        if ok:
            if factor:
                shard.grad *= factor(length, max_norm)
            elif length > max_norm:
                shard.grad *= max_norm / length
            (optimizer_step or (lambda shard, optimizer: optimizer.step()))(shard, optimizer)
        nn.utils.vector_to_parameters(comm.all_gather(shard.detach())[: len(flat)], parameters)
        for p in parameters:
            p.grad = None
        if last is None:
            shard.grad = None
        return ok

    return step


def finite(shard, norm):
    return bool(norm.isfinite())


isinf_alone = step_with(lambda shard, norm: not norm.isinf())  # Passed: there was no NaN.
unlike_infinity = step_with(lambda shard, norm: bool(norm != float("inf")))  # Passed.
square_over_limit = step_with(finite, lambda n, most: most / n if n * n > most else 1)  # Passed.
ignores_max_norm = step_with(finite, lambda n, most: (1 / n).clamp(max=1))
squares_averaged = step_with(finite, norm=lambda c, s: c.all_reduce(s.grad.square().sum(), op="mean").sqrt())
gathers_the_mean = step_with(finite, norm=lambda c, s: c.all_gather(s.grad).norm())
shard_gradient_stays = step_with(finite, last="stays")  # "16 bytes of gradients", and not whose.


def lr_by_hand(shard, optimizer):
    shard.data.sub_(shard.grad, alpha=optimizer.param_groups[0]["lr"])


by_hand = step_with(finite, optimizer_step=lr_by_hand)


def nan_to_num(comm, parameters, shard, optimizer, max_norm):
    for p in parameters:
        p.grad = p.grad.nan_to_num(0, 0, 0)
    return step_with(finite)(comm, parameters, shard, optimizer, max_norm)


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
    ("09.1", one_more, ["one number too many"]),
    ("09.1", nothing_on_many_ranks, ["Expected 4 at"]),
    ("09.1", momentum_of_eight, ["Adam that keeps two", "-no master copy"]),
    ("09.1", means_of_two, ["beside the master copy"]),
    ("09.1", gradients_late, ["whole until stage 3", "-behind"]),
    ("09.1", swapped, ["gradients first", "-all parts"]),
    ("09.1", pads_in_every_stage, ["only shards are padded"]),
    ("09.2", zeros_of_float32, ["another dtype"]),
    ("09.2", last_rank_alone, ["several ranks at the end"]),
    ("09.2", writes_zeros, ["they are the model"]),
    ("09.2", twice_the_size, ["further than to the next multiple"]),
    ("09.3", isinf_alone, ["when one is NaN"]),
    ("09.3", unlike_infinity, ["when one is NaN"]),
    ("09.3", square_over_limit, ["compare the sum of the squares"]),
    ("09.3", ignores_max_norm, ["whatever `max_norm` is"]),
    ("09.3", squares_averaged, ["they add up"]),
    ("09.3", gathers_the_mean, ["single number from each rank"]),
    ("09.3", shard_gradient_stays, ["`shard.grad` is still there", "-as much as"]),
    ("09.3", by_hand, ["its momentum is lost"]),
    ("09.3", nan_to_num, ["put zeros where"]),
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
    ("09.1", in_a_defaultdict),
    ("09.2", as_a_parameter),
    ("09.4", asks_who_is_there),
    ("09.6", goes_on_by_recursion),
]
