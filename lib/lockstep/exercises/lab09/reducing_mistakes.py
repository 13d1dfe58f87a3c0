"""What goes wrong in exercise 09.4, and the sentence that each fault gets.

Floor 4, room `exercises`; the exercise is in `reducing.py`.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from lockstep.exercises.exercise import Case, Mistake
from lockstep.exercises.observe import Observation
from lockstep.exercises.symptoms import matches


def joined(comm, bucket, shard, clears=True):
    """The bucket's gradients end to end, padded like its shards; the parameters' own are let go."""
    flat = torch.cat([p.grad.flatten() for p in bucket])
    for p in bucket if clears else ():
        p.grad = None
    return F.pad(flat, (0, shard.numel() * comm.size - len(flat)))


def add_to(shard, own):
    shard.grad = own if shard.grad is None else shard.grad + own


def passes(comm, loss, buckets, shards, *, op="mean", adds=True, clears=True, removes=True, reduce=None):
    """The right function, in which one thing can be another."""

    def ordinary(bucket, shard):
        if not adds:
            shard.grad = None
        add_to(shard, comm.reduce_scatter(joined(comm, bucket, shard, clears), op=op))

    hooks = []
    for bucket, shard in zip(buckets, shards, strict=True):
        ready = []

        def accumulated(p, bucket=bucket, shard=shard, ready=ready):
            ready.append(p)
            if len(ready) == len(bucket):
                if removes:
                    ready.clear()
                (reduce or ordinary)(bucket, shard)

        hooks += [p.register_post_accumulate_grad_hook(accumulated) for p in bucket]
    loss.backward()
    if removes:
        for handle in hooks:
            handle.remove()


def adds_up(comm, loss, buckets, shards):
    passes(comm, loss, buckets, shards, op="sum")


def overwrites(comm, loss, buckets, shards):
    passes(comm, loss, buckets, shards, adds=False)


def keeps_whole_gradients(comm, loss, buckets, shards):
    passes(comm, loss, buckets, shards, clears=False)
    for bucket in buckets:
        for p in bucket:
            p.grad = p.grad.clone()


def keeps_them_until_the_end(comm, loss, buckets, shards):
    passes(comm, loss, buckets, shards, clears=False)
    for bucket in buckets:
        for p in bucket:
            p.grad = None


def leaves_hooks(comm, loss, buckets, shards):
    passes(comm, loss, buckets, shards, removes=False)


def after_backward(comm, loss, buckets, shards):
    loss.backward()
    for bucket, shard in zip(buckets, shards, strict=True):
        add_to(shard, comm.reduce_scatter(joined(comm, bucket, shard), op="mean"))


def waits_at_the_end(comm, loss, buckets, shards):
    sent = []

    def start(bucket, shard):
        flat = joined(comm, bucket, shard)
        sent.append((shard, flat, comm.reduce_scatter(flat, op="mean", async_op=True)))

    passes(comm, loss, buckets, shards, reduce=start)
    for shard, _, handle in sent:
        add_to(shard, handle.wait())


def reduces_everywhere(comm, loss, buckets, shards):
    def reduce(bucket, shard):
        mean = comm.all_reduce(joined(comm, bucket, shard), op="mean")
        add_to(shard, mean.chunk(comm.size)[comm.rank].clone())

    passes(comm, loss, buckets, shards, reduce=reduce)


def reduces_each_gradient(comm, loss, buckets, shards):
    def reduce(bucket, shard):
        for p in bucket:
            comm.all_reduce(p.grad, op="mean")
        add_to(shard, joined(comm, bucket, shard).chunk(comm.size)[comm.rank].clone())

    passes(comm, loss, buckets, shards, reduce=reduce)


def zeroes_gradients(comm, loss, buckets, shards):
    passes(comm, loss, buckets, shards)
    for bucket in buckets:
        for p in bucket:
            p.grad = torch.zeros_like(p)


def keeps_joined_gradients(comm, loss, buckets, shards):
    kept = []

    def reduce(bucket, shard):
        kept.append(joined(comm, bucket, shard))
        add_to(shard, comm.reduce_scatter(kept[-1], op="mean"))

    passes(comm, loss, buckets, shards, reduce=reduce)


def forgets_the_padding(comm, loss, buckets, shards):
    def reduce(bucket, shard):
        own = comm.reduce_scatter(torch.cat([p.grad.flatten() for p in bucket]), op="mean")
        for p in bucket:
            p.grad = None
        add_to(shard, own)

    passes(comm, loss, buckets, shards, reduce=reduce)


def at_the_first_gradient(comm, loss, buckets, shards):
    hooks = []
    for bucket, shard in zip(buckets, shards, strict=True):

        def accumulated(p, bucket=bucket, shard=shard):
            add_to(shard, comm.reduce_scatter(joined(comm, bucket, shard, clears=False), op="mean"))

        hooks.append(bucket[0].register_post_accumulate_grad_hook(accumulated))
    loss.backward()
    for one in hooks:
        one.remove()


def backward_alone(comm, loss, buckets, shards):
    loss.backward()


def missing_gradient(case: Case, seen: Observation, expected: Observation) -> bool:
    return seen.error is not None and "NoneType" in seen.error.message


MISTAKES = (
    Mistake(
        "backward alone",
        backward_alone,
        "Backward has run, and the shards have no gradient: nothing has been averaged. In a hook, when a bucket is full, "
        "reduce it and put what arrives into `shards[i].grad`.",
    ),
    Mistake(
        "gradient summed",
        adds_up,
        "You add up the ranks' gradients; asked is their mean. `comm.reduce_scatter` takes `op='mean'`.",
    ),
    Mistake(
        "overwrites the shard's gradient",
        overwrites,
        "The second part of the batch replaces the gradient of the first. While somebody accumulates, gradients add "
        "up: set `.grad` where it is None, and add where it is not.",
    ),
    Mistake(
        "leaves its hooks",
        leaves_hooks,
        "Your hooks are still on the parameters when the function is called again. They fire once more, and each call "
        "adds others: remove them after backward.",
    ),
    Mistake(
        "reduces after backward",
        after_backward,
        "You reduce when backward is over. By then all gradients are whole at the same time, and that is the memory "
        "which stage 2 is to save: reduce in a hook, as each bucket gets full.",
    ),
    Mistake(
        "waits at the end",
        waits_at_the_end,
        "Each bucket's whole gradient is held until backward is over: for its message, or because it is only sent then. "
        "Reduce a bucket in its hook, and wait for its shard before you start the next.",
    ),
    Mistake(
        "frees gradients at the end",
        keeps_them_until_the_end,
        "You set the whole gradients to None when backward is over. At its peak all of them are there: let them go "
        "as soon as their bucket has been joined.",
    ),
    Mistake(
        "whole gradients stay",
        keeps_whole_gradients,
        "The parameters still have their whole gradients. In stage 2 only the shard of the mean stays: set `.grad` of "
        "every parameter to None in the hook.",
    ),
    Mistake(
        "gradients are zeroed",
        zeroes_gradients,
        "The parameters' gradients are zero, and as large as ever. Set `.grad` to None: that gives the memory back.",
    ),
    Mistake(
        "keeps joined gradients",
        keeps_joined_gradients,
        "You have reduced each bucket in its hook, and something still holds its flat gradient: a list, a dictionary. Let "
        "it go with the hook's end.",
    ),
    Mistake(
        "all-reduce for reduce-scatter",
        reduces_everywhere,
        "You bring the whole mean to every rank and throw most of it away. A reduce-scatter sends half as much, and "
        "gives each rank what it keeps.",
    ),
    Mistake(
        "a collective for each gradient",
        reduces_each_gradient,
        "You reduce every gradient by itself, and to everybody. One reduce-scatter of the joined bucket does it: half "
        "the bytes, and one latency a bucket.",
    ),
    Mistake(
        "shard boundary splits wrongly",
        forgets_the_padding,
        "A bucket is shorter than its shards together, so your reduce-scatter cuts it elsewhere than 09.2 does. Pad it "
        "with zeros to `shard.numel() * comm.size`.",
        symptom=matches("different size|same size|has size|sizes|shape"),
    ),
    Mistake(
        "reduces at the first gradient",
        at_the_first_gradient,
        "You reduce when a gradient of the bucket is still missing: its `.grad` is None. Count them, so that the last one "
        "starts the reduction; and see that no hook of an earlier call fires again.",
        symptom=missing_gradient,
    ),
)
