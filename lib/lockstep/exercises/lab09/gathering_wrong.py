"""Wrong functions for exercise 09.5, and by what some of them show.

Floor 4, room `exercises`; the exercise is in `gathering.py`, what they are told in `gathering_mistakes.py`.
"""

from __future__ import annotations

import re

import torch
from torch.func import functional_call
from torch.nn import functional as F

from lockstep.exercises.exercise import Case, Symptom
from lockstep.exercises.lab09.toys import fill, free
from lockstep.exercises.observe import Observation


def gradients(layer, y, again, dy):
    """Of the input, then of the parameters; no `.grad` is touched."""
    return torch.autograd.grad(y, [again, *layer.parameters()], dy)


def done(
    comm, layer, shard, x, *,
    op="mean", frees=(True, True), gathers=1, keeps=False, recorded=True, ask=gradients, reduce=None, dx=True, order=1,
    copies=False,
):  # fmt: skip
    """The right function, in which one thing can be another."""

    def ordinary(flat, length):
        return comm.reduce_scatter(F.pad(flat, (0, length - len(flat))), op=op)

    class Whole(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, shard):
            ctx.save_for_backward(x, shard)
            flat = comm.all_gather(shard)
            fill(layer, flat)
            y = layer(x)
            if frees[0]:
                free(layer)
            if keeps:
                ctx.flat = flat
            if copies:
                ctx.copies = [flat.clone()]
            return y

        @staticmethod
        def backward(ctx, dy):
            x, shard = ctx.saved_tensors
            for _ in range(gathers):
                fill(layer, ctx.flat if keeps else comm.all_gather(shard))
            with torch.set_grad_enabled(recorded):
                again = x.detach().requires_grad_()
                y = layer(again)
                own, *parts = ask(layer, y, again, dy)
            if frees[1]:
                free(layer)
            flat = torch.cat([g.flatten() for g in parts[::order]])
            return own * dx if dx else None, (reduce or ordinary)(flat, shard.numel() * comm.size)

    return Whole.apply(x, shard)


def adds_up(comm, layer, shard, x):
    return done(comm, layer, shard, x, op="sum")


def not_freed_after_forward(comm, layer, shard, x):
    return done(comm, layer, shard, x, frees=(False, True))


def not_freed_after_backward(comm, layer, shard, x):
    return done(comm, layer, shard, x, frees=(True, False))


def gathers_twice(comm, layer, shard, x):
    return done(comm, layer, shard, x, gathers=2)


def keeps_the_whole(comm, layer, shard, x):
    return done(comm, layer, shard, x, keeps=True)


def forgets_to_record(comm, layer, shard, x):
    return done(comm, layer, shard, x, recorded=False)


def no_gradient_for_x(comm, layer, shard, x):
    return done(comm, layer, shard, x, dx=False)


def reduces_everywhere(comm, layer, shard, x):
    def reduce(flat, length):
        mean = comm.all_reduce(F.pad(flat, (0, length - len(flat))), op="mean")
        return mean.chunk(comm.size)[comm.rank].clone()

    return done(comm, layer, shard, x, reduce=reduce)


def does_not_reduce(comm, layer, shard, x):
    def reduce(flat, length):
        return F.pad(flat, (0, length - len(flat))).chunk(comm.size)[comm.rank].clone()

    return done(comm, layer, shard, x, reduce=reduce)


def gives_the_whole_gradient(comm, layer, shard, x):
    return done(comm, layer, shard, x, reduce=lambda flat, length: comm.all_reduce(flat, op="mean"))


def forgets_the_padding(comm, layer, shard, x):
    return done(comm, layer, shard, x, reduce=lambda flat, length: comm.reduce_scatter(flat, op="mean"))


def keeps_a_copy(comm, layer, shard, x):
    return done(comm, layer, shard, x, copies=True)


def averages_dx(comm, layer, shard, x):
    return done(comm, layer, shard, x, dx=1 / comm.size)


def joins_in_another_order(comm, layer, shard, x):
    return done(comm, layer, shard, x, order=-1)


def knows_the_layer(comm, layer, shard, x):
    fill(layer, comm.all_gather(shard))
    return F.linear(x, layer.weight, layer.bias)


def autograd_keeps_it(comm, layer, shard, x):
    class Gather(torch.autograd.Function):
        @staticmethod
        def forward(ctx, shard):
            return comm.all_gather(shard.detach())

        @staticmethod
        def backward(ctx, gradient):
            return comm.reduce_scatter(gradient.contiguous(), op="mean")

    flat, named, start = Gather.apply(shard), {}, 0
    for name, p in layer.named_parameters():
        named[name] = flat[start : start + p.numel()].view(p.shape)
        start += p.numel()
    return functional_call(layer, named, (x,))


def gradients_stay_in_the_layer(comm, layer, shard, x):
    def by_backward(layer, y, again, dy):
        y.backward(dy)
        return again.grad, *(p.grad for p in layer.parameters())

    return done(comm, layer, shard, x, ask=by_backward)


def forward_only(comm, layer, shard, x):
    fill(layer, comm.all_gather(shard))
    y = layer(x)
    free(layer)
    return y


def does_not_gather_in_backward(comm, layer, shard, x):
    return done(comm, layer, shard, x, gathers=0)


def gathers_only_forward(case: Case, seen: Observation, expected: Observation) -> bool:
    """Backward sends less than a gather and a reduce-scatter of each layer."""
    if seen.error is not None or case.ranks == 1:
        return False
    got, want = (sum(sent[1] for sent in one.value[0]["sent"]) for one in (seen, expected))
    return got < want


def gradient_is(longer: bool) -> Symptom:
    """What `backward` returns for the shard is longer, or shorter, than the shard."""

    def symptom(case: Case, seen: Observation, expected: Observation) -> bool:
        said = re.search(r"got \[(\d+)\] but expected .*\[(\d+)\]", seen.error.message) if seen.error else None
        return said is not None and (int(said[1]) > int(said[2])) == longer

    return symptom
