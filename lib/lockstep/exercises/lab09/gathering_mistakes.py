"""What goes wrong in exercise 09.5, and the sentence that each fault gets.

Floor 4, room `exercises`; the exercise is in `gathering.py`.
"""

from __future__ import annotations

import re

import torch
from torch.func import functional_call
from torch.nn import functional as F

from lockstep.exercises.exercise import Case, Mistake, Symptom
from lockstep.exercises.lab09.toys import fill, free
from lockstep.exercises.observe import Observation
from lockstep.exercises.symptoms import matches, says


def done(
    comm,
    layer,
    shard,
    x,
    *,
    op="mean",
    frees=(True, True),
    gathers=1,
    keeps=False,
    recorded=True,
    reduce=None,
    dx=True,
    order=1,
    copies=False,
):
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
            own, *gradients = torch.autograd.grad(y, [again, *layer.parameters()], dy)
            if frees[1]:
                free(layer)
            flat = torch.cat([g.flatten() for g in gradients[::order]])
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
    class Whole(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, shard):
            ctx.save_for_backward(x, shard)
            fill(layer, comm.all_gather(shard))
            y = layer(x)
            free(layer)
            return y

        @staticmethod
        def backward(ctx, dy):
            x, shard = ctx.saved_tensors
            fill(layer, comm.all_gather(shard))
            with torch.enable_grad():
                again = x.detach().requires_grad_()
                layer(again).backward(dy)
            free(layer)
            flat = torch.cat([p.grad.flatten() for p in layer.parameters()])
            padded = F.pad(flat, (0, shard.numel() * comm.size - len(flat)))
            return again.grad, comm.reduce_scatter(padded, op="mean")

    return Whole.apply(x, shard)


def forward_only(comm, layer, shard, x):
    fill(layer, comm.all_gather(shard))
    y = layer(x)
    free(layer)
    return y


def does_not_gather_in_backward(comm, layer, shard, x):
    class Whole(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, shard):
            ctx.save_for_backward(x, shard)
            fill(layer, comm.all_gather(shard))
            y = layer(x)
            free(layer)
            return y

        @staticmethod
        def backward(ctx, dy):
            x, shard = ctx.saved_tensors
            with torch.enable_grad():
                again = x.detach().requires_grad_()
                y = layer(again)
            dx, *gradients = torch.autograd.grad(y, [again, *layer.parameters()], dy)
            flat = torch.cat([g.flatten() for g in gradients])
            return dx, comm.reduce_scatter(F.pad(flat, (0, shard.numel() * comm.size - len(flat))), op="mean")

    return Whole.apply(x, shard)


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


MISTAKES = (
    Mistake(
        "gradient summed",
        adds_up,
        "The shards get the sum over the ranks. As in data parallel training, each rank's loss is a mean over its own images, "
        "and the gradient asked is the mean: `op='mean'`.",
    ),
    Mistake(
        "parameter not freed",
        not_freed_after_forward,
        "After forward the layer is still whole. When all layers have run, the whole model is there, and stage 3 has saved "
        "nothing: free the layer as soon as it has computed.",
    ),
    Mistake(
        "parameter not freed after backward",
        not_freed_after_backward,
        "After backward the layer is still whole. Free it when its gradients are computed, in backward as in forward.",
    ),
    Mistake(
        "autograd keeps the layer",
        autograd_keeps_it,
        "The numbers are right, and nothing is freed: what autograd has saved for backward are the gathered weights "
        "themselves. Forward has to go past autograd, and backward has to gather anew.",
    ),
    Mistake(
        "keeps the gathered layer for backward",
        keeps_the_whole,
        "You keep the gathered layer in `ctx` until backward. That saves the second all-gather, and costs the memory of the "
        "whole model between forward and backward, which is what stage 3 trades it for.",
        symptom=gathers_only_forward,
    ),
    Mistake(
        "keeps a copy for nothing",
        keeps_a_copy,
        "The layer is gathered anew in backward, and yet a copy of it stays from forward until then: in `ctx`, or in a "
        "variable that your Function sees. Let it go; `x` and the shard are enough.",
    ),
    Mistake(
        "gathers twice in backward without need",
        gathers_twice,
        "You gather the layer twice in backward. One all-gather serves both gradients, of the inputs and of the weights; a "
        "second one makes 4 volumes of 3.",
    ),
    Mistake(
        "does not gather in backward",
        does_not_gather_in_backward,
        "In backward the layer computes without having been gathered: its parameters have shapes and no numbers there. The "
        "gradients need the weights, so gather once more.",
    ),
    Mistake(
        "forward only",
        forward_only,
        "Forward is right, but no gradient arrives at `shard`. Autograd knows the layer's parameters and has never heard of "
        "it, unless it is an input of a `torch.autograd.Function` whose `backward` returns a gradient for it.",
    ),
    Mistake(
        "gradients stay in the layer",
        gradients_stay_in_the_layer,
        "`y.backward(...)` adds to the `.grad` of the layer's parameters, and nobody takes it away: it is whole, it stays, and "
        "the next step is added to it. Set it to None, or use `torch.autograd.grad`, which touches no `.grad`.",
    ),
    Mistake(
        "nothing is recorded in backward",
        forgets_to_record,
        "Inside a Function's `backward` autograd does not record. Where the layer is computed once more, say "
        "`with torch.enable_grad():`.",
        symptom=says("does not require grad"),
    ),
    Mistake(
        "no gradient for x",
        no_gradient_for_x,
        "`x` gets no gradient, so the layers before learn nothing. `backward` returns an entry for each argument of `forward`.",
    ),
    Mistake(
        "averages the gradient of x",
        averages_dx,
        "You divide the gradient of `x` by the ranks. `x` is this rank's own; only what belongs to all, the layer's gradient, "
        "is averaged.",
    ),
    Mistake(
        "gradients in another order",
        joins_in_another_order,
        "You join the gradients in another order than `layer.parameters()` has. The shard was cut from that one.",
    ),
    Mistake(
        "knows the layer",
        knows_the_layer,
        "You ask for what a linear layer has inside. A layer may be any module: `layer(x)` computes, whatever it is, and "
        "`layer.parameters()` are all its parameters.",
        symptom=matches("no attribute '(weight|bias|in_features|out_features)'"),
    ),
    Mistake(
        "all-reduce for reduce-scatter",
        reduces_everywhere,
        "You bring the whole gradient to every rank, and each keeps a shard of it. A reduce-scatter sends half as much and "
        "gives each rank its shard.",
    ),
    Mistake(
        "gradients of its own images only",
        does_not_reduce,
        "Each rank keeps what its own images say about its shard, and nobody hears of the others' images. The shard's "
        "gradient is the mean over all ranks: reduce-scatter.",
    ),
    Mistake(
        "the whole gradient for a shard",
        gives_the_whole_gradient,
        "`backward` returns the gradient of the whole layer for `shard`. An input's gradient has the input's shape: this "
        "rank's part of it, padded like the shard.",
        symptom=gradient_is(longer=True),
    ),
    Mistake(
        "shard boundary splits wrongly",
        forgets_the_padding,
        "The layer's gradient is shorter than all shards together, so your reduce-scatter cuts it elsewhere than 09.2 does. "
        "Pad it with zeros to `shard.numel() * comm.size`.",
        symptom=gradient_is(longer=False),
    ),
)
