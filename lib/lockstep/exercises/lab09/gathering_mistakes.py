"""The sentence that each fault of exercise 09.5 gets.

Floor 4, room `exercises`; the exercise is in `gathering.py`, the wrong functions in `gathering_wrong.py`.
"""

from __future__ import annotations

from lockstep.exercises.exercise import Mistake
from lockstep.exercises.lab09 import gathering_wrong as wrong
from lockstep.exercises.symptoms import matches, says

MISTAKES = (
    Mistake(
        "gradient summed",
        wrong.adds_up,
        "The shards get the sum over the ranks. As in data parallel training, each rank's loss is a mean over its own images, "
        "and the gradient asked is the mean: `op='mean'`.",
    ),
    Mistake(
        "parameter not freed",
        wrong.not_freed_after_forward,
        "After forward the layer is still whole. When all layers have run, the whole model is there, and stage 3 has saved "
        "nothing: free the layer as soon as it has computed.",
    ),
    Mistake(
        "parameter not freed after backward",
        wrong.not_freed_after_backward,
        "After backward the layer is still whole. Free it when its gradients are computed, in backward as in forward.",
    ),
    Mistake(
        "autograd keeps the layer",
        wrong.autograd_keeps_it,
        "The numbers are right, and nothing is freed: what autograd has saved for backward are the gathered weights "
        "themselves. Forward has to go past autograd, and backward has to gather anew.",
    ),
    Mistake(
        "keeps the gathered layer for backward",
        wrong.keeps_the_whole,
        "You keep the gathered layer in `ctx` until backward. That saves the second all-gather, and costs the memory of the "
        "whole model between forward and backward, which is what stage 3 trades it for.",
        symptom=wrong.gathers_only_forward,
    ),
    Mistake(
        "keeps a copy for nothing",
        wrong.keeps_a_copy,
        "The layer is gathered anew in backward, and yet a copy of it stays from forward until then: in `ctx`, or in a "
        "variable that your Function sees. Let it go; `x` and the shard are enough.",
    ),
    Mistake(
        "gathers twice in backward without need",
        wrong.gathers_twice,
        "You gather the layer twice in backward. One all-gather serves both gradients, of the inputs and of the weights; a "
        "second one makes 4 volumes of 3.",
    ),
    Mistake(
        "does not gather in backward",
        wrong.does_not_gather_in_backward,
        "In backward the layer computes without having been gathered: its parameters have shapes and no numbers there. The "
        "gradients need the weights, so gather once more.",
    ),
    Mistake(
        "forward only",
        wrong.forward_only,
        "Forward is right, but no gradient arrives at `shard`. Autograd knows the layer's parameters and has never heard of "
        "it, unless it is an input of a `torch.autograd.Function` whose `backward` returns a gradient for it.",
    ),
    Mistake(
        "gradients stay in the layer",
        wrong.gradients_stay_in_the_layer,
        "`y.backward(...)` adds to the `.grad` of the layer's parameters, and nobody takes it away: it is whole, it stays, and "
        "the next step is added to it. Set it to None, or use `torch.autograd.grad`, which touches no `.grad`.",
    ),
    Mistake(
        "nothing is recorded in backward",
        wrong.forgets_to_record,
        "Inside a Function's `backward` autograd does not record. Where the layer is computed once more, say "
        "`with torch.enable_grad():`.",
        symptom=says("does not require grad"),
    ),
    Mistake(
        "no gradient for x",
        wrong.no_gradient_for_x,
        "`x` gets no gradient, so the layers before learn nothing. `backward` returns an entry for each argument of `forward`.",
    ),
    Mistake(
        "averages the gradient of x",
        wrong.averages_dx,
        "You divide the gradient of `x` by the ranks. `x` is this rank's own; only what belongs to all, the layer's gradient, "
        "is averaged.",
    ),
    Mistake(
        "gradients in another order",
        wrong.joins_in_another_order,
        "You join the gradients in another order than `layer.parameters()` has. The shard was cut from that one.",
    ),
    Mistake(
        "knows the layer",
        wrong.knows_the_layer,
        "You ask for what a linear layer has inside. A layer may be any module: `layer(x)` computes, whatever it is, and "
        "`layer.parameters()` are all its parameters.",
        symptom=matches("no attribute '(weight|bias|in_features|out_features)'"),
    ),
    Mistake(
        "all-reduce for reduce-scatter",
        wrong.reduces_everywhere,
        "You bring the whole gradient to every rank, and each keeps a shard of it. A reduce-scatter sends half as much and "
        "gives each rank its shard.",
    ),
    Mistake(
        "gradients of its own images only",
        wrong.does_not_reduce,
        "Each rank keeps what its own images say about its shard, and nobody hears of the others' images. The shard's "
        "gradient is the mean over all ranks: reduce-scatter.",
    ),
    Mistake(
        "the whole gradient for a shard",
        wrong.gives_the_whole_gradient,
        "`backward` returns the gradient of the whole layer for `shard`. An input's gradient has the input's shape: this "
        "rank's part of it, padded like the shard.",
        symptom=wrong.gradient_is(longer=True),
    ),
    Mistake(
        "shard boundary splits wrongly",
        wrong.forgets_the_padding,
        "The layer's gradient is shorter than all shards together, so your reduce-scatter cuts it elsewhere than 09.2 does. "
        "Pad it with zeros to `shard.numel() * comm.size`.",
        symptom=wrong.gradient_is(longer=False),
    ),
)
